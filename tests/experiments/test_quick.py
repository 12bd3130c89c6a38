"""``llpkit reproduce all --quick``: from nothing to a page that a browser shows."""

import csv
import html
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llpkit.experiments import Store
from llpkit.methods import METHODS
from report.test_page_browser import AROUND, DESK, PHONE, PROBE, THEMES, browser, look


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """The results folder, made once by the command itself."""
    folder = tmp_path_factory.mktemp("quick") / "results"
    command = [sys.executable, "-m", "llpkit.cli", "reproduce", "all", "--quick"]
    command += ["--device", "cpu", "--out", str(folder)]
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert time.monotonic() - start < 180, "three minutes on two cores is the bound"
    assert done.stdout.splitlines()[-1] == str(folder / "report" / "report.html")
    return folder


def test_every_experiment_has_its_records(results):
    store = Store([results])
    found = [(r["run"]["experiment"], r["run"]["method"]) for r in store.read()]
    for experiment, times in (("grid", 2), ("epoch-time", 2), ("convergence", 3), ("bag-size", 4)):
        for method in METHODS:
            assert found.count((experiment, method)) == times, (experiment, method)
    assert not list(store.errors())
    chosen = json.loads((results / "grid" / "digits.json").read_text())["methods"]
    for record in store.read("convergence"):
        run = record["run"]
        assert record["chosen_by"] == "grid"
        assert run["lr"] == chosen[run["method"]]["chosen"]["lr"]
    for record in store.read("epoch-time"):
        assert record["jobs"] == 1


def test_every_method_has_learnt_something(results):
    with (results / "report" / "accuracy.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert set(rows) == set(METHODS)
    assert float(rows["supervised"]["accuracy_percent"]) > 95
    for method in METHODS:
        assert float(rows[method]["accuracy_percent"]) > 80, method


@pytest.fixture(scope="module", params=list(THEMES))
def answers(request, results, tmp_path_factory) -> dict[str, dict]:
    """What a browser sees on a desk and on a phone."""
    browser()
    folder = tmp_path_factory.mktemp("browser")
    text = (results / "report" / "report.html").read_text(encoding="utf-8")
    frames = ""
    broken = text.replace("<main>", '<main><div style="width: 900px">wide</div><img src="data:,">')
    for name, width, content in (
        ("desk", DESK, text),
        ("phone", PHONE, text),
        ("broken", PHONE, broken),
    ):
        content = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", content)
        probe = PROBE.replace("FRAME", json.dumps(name))
        page = folder / f"{name}.html"
        page.write_text(content.replace("</body>", probe + "</body>"), encoding="utf-8")
        frames += f'<iframe src="{name}.html" style="width: {width}px"></iframe>'
    (folder / "all.html").write_text(AROUND % frames, encoding="utf-8")
    action = ("--virtual-time-budget=20000", "--dump-dom")
    dom = look(folder, request.param, folder / "all.html", *action)
    lines = html.unescape(re.search(r'<pre id="answers">(.*?)</pre>', dom, re.S)[1]).split("\n")
    found = [json.loads(line) for line in lines if line]
    assert {answer["dark"] for answer in found} == {request.param == "dark"}
    return {answer["frame"]: answer for answer in found}


def test_the_page_is_whole_in_a_browser(answers):
    for name, width in (("desk", DESK), ("phone", PHONE)):
        answer = answers[name]
        assert answer["width"] == width
        assert answer["scroll"] <= width
        assert answer["requests"] == []
        assert answer["headings"][0] == "Learning from label proportions: the experiments"
        assert "Digits, odd and even" in answer["headings"]
        assert len(answer["plots"]) == 4 + 1 + 1 + len(METHODS) + 1 + 1
        assert min(answer["plots"]) > 200
        assert min(answer["sizes"]) >= 9  # letters in figures
        assert 4 <= answer["images"] == answer["decoded"]  # the digits of the example bag
        assert answer["crisp"]
        assert {"instances in a bag", "epoch", "predicted", "mle"} <= set(answer["labels"])
        assert all(box <= width for _, box, _ in answer["table"])
    assert answers["broken"]["scroll"] > PHONE  # so that a page that scrolls would be seen
    assert answers["broken"]["decoded"] < answers["broken"]["images"]
