"""``llpkit reproduce all --quick``: from nothing to a page that a browser shows."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from llpkit.experiments import Run, Store
from llpkit.experiments._plan import names
from llpkit.methods import METHODS
from report.test_page_browser import AROUND, DESK, PHONE, PROBE, THEMES, browser, told


def _processor() -> float:
    """Seconds that finished children have used."""
    used = os.times()
    return used.children_user + used.children_system


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """The results folder, made once by the command itself."""
    folder = tmp_path_factory.mktemp("quick") / "results"
    command = [sys.executable, "-m", "llpkit.cli", "reproduce", "all", "--quick"]
    command += ["--device", "cpu", "--out", str(folder)]
    start = _processor()
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    # Of the processor, so that whatever else a busy machine does is not counted.
    assert _processor() - start < 180, "three minutes are the bound"
    assert done.stdout.splitlines()[-1] == str(folder / "report" / "report.html")
    return folder


def test_every_experiment_has_its_records(results):
    store = Store([results])
    found = [(run.experiment, run.name) for run in map(Run.of, store.read())]
    for experiment, times in (("grid", 2), ("epoch-time", 2), ("convergence", 3), ("bag-size", 4)):
        for name in METHODS if experiment == "bag-size" else names():
            assert found.count((experiment, name)) == times, (experiment, name)
    assert not list(store.errors())
    [grid] = json.loads((results / "grid" / "digits.json").read_text())
    for record in store.read("convergence"):
        run = Run.of(record)
        assert record["chosen_by"] == "grid"
        assert run.lr == grid["methods"][run.name]["chosen"]["lr"]
    for record in store.read("epoch-time"):
        assert record["jobs"] == 1


def test_every_method_has_learnt_something(results):
    with (results / "report" / "accuracy.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert list(rows) == names()
    assert {row["hyper_parameters"] for row in rows.values()} == {"grid"}
    assert float(rows["supervised"]["accuracy_percent"]) > 95
    for method in names():
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
    return told(folder, request.param, folder / "all.html")


def test_the_page_is_whole_in_a_browser(answers):
    for name, width in (("desk", DESK), ("phone", PHONE)):
        answer = answers[name]
        assert answer["width"] == width
        assert answer["scroll"] <= width
        assert answer["requests"] == []
        assert answer["headings"][0] == "Learning from label proportions: the experiments"
        assert "Digits, odd and even" in answer["headings"]
        assert len(answer["plots"]) == 4 + 2 + 1 + len(names()) + 1 + 1 + 2  # two sizes of bags
        assert min(answer["plots"]) > 200
        assert min(answer["sizes"]) >= 9  # letters in figures
        assert 4 <= answer["images"] == answer["decoded"]  # the digits of the example bag
        assert answer["crisp"]
        assert {"instances in a bag", "epoch", "predicted", "mle"} <= set(answer["labels"])
        assert all(box <= width for _, box, _ in answer["table"])
    assert answers["broken"]["scroll"] > PHONE  # so that a page that scrolls would be seen
    assert answers["broken"]["decoded"] < answers["broken"]["images"]
