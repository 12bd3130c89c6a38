"""The constant rate beside every log-likelihood that the commands print, and the note."""

import html
import json
import re

import numpy as np
import pytest

from llpkit import load

COLUMNS = ("--bag", "bag", "--count", "count")
MODELS = {
    "network": ("--network", "linear", "--lr", 0.3, "--epochs", 30),
    "logistic": ("--estimator", "logistic"),
    "boosting": (
        *("--estimator", "hist-gradient-boosting", "--estimator-option", "max_iter=2"),
        *("--estimator-option", "estimator__max_iter=20"),
    ),
}


def table(path, scrambled):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1200, 3))
    bag = np.arange(1200) // 6
    count = np.bincount(bag, x[:, 0] > 0).astype(int)
    if scrambled:
        count = rng.permutation(count)
    lines = [
        f"b{b},{count[b]},{','.join(f'{v:.3f}' for v in row)}"
        for b, row in zip(bag, x, strict=True)
    ]
    path.write_text("\n".join(["bag,count,u,v,w", *lines]) + "\n")
    return path


@pytest.mark.parametrize(
    ("model", "more"),
    [
        *((name, ("--held-out", 0.2)) for name in MODELS),
        ("network", ("--test-fraction", 0.2)),
        ("logistic", ()),
    ],
)
def test_terminal_page_evaluate_and_repr_give_one_verdict(llpkit, tmp_path, model, more):
    """Without unseen bags nobody can tell."""
    for scrambled in (True, False):
        data = table(tmp_path / "t.csv", scrambled)
        done = llpkit("fit", data, *COLUMNS, *MODELS[model], *more, "--out", "run", "--force")
        assert done.code == 0, done.err
        trained = load("run")
        assert trained.details["verdict"]["ok"] is (not scrambled if more else None)
        text = trained.details["verdict"]["text"]
        page = html.unescape((tmp_path / "run" / "report.html").read_text(encoding="utf-8"))
        evaluated = llpkit("evaluate", "run")
        for shown in (done.err + done.out, evaluated.err + evaluated.out, page, repr(trained)):
            assert text[1:] in shown
        assert json.loads(llpkit("evaluate", "run", "--json").out)["verdict"]["text"] == text

    for part in json.loads(llpkit("evaluate", "run", "--json").out)["parts"].values():
        bags = part["bags"]
        assert bags["log_likelihood"] > bags["baseline_log_likelihood"]
    # Other data are held against the rate of the training bags, and judged by themselves.
    found = json.loads(llpkit("evaluate", "run", data, "--json").out)
    assert found["parts"]["all"]["bags"]["baseline_log_likelihood"] < -1
    assert found["verdict"]["ok"]
    assert "on 200 bags" in found["verdict"]["text"]


def test_what_em_measures_on_its_way_is_not_called_the_training_bags(llpkit, tmp_path):
    data = table(tmp_path / "t.csv", False)
    done = llpkit("fit", data, *COLUMNS, *MODELS["boosting"], "--out", "run", "--quiet")
    assert done.code == 0, done.err
    head = (tmp_path / "run" / "metrics.csv").read_text().splitlines()[0]
    assert head == "epoch,out_of_fold_log_likelihood"
    measured = json.loads(llpkit("evaluate", "run", "--json").out)["parts"]["training"]["bags"]
    shown = f"training bags: mean log-likelihood {measured['log_likelihood']:.3f}"
    assert shown in repr(load("run"))


@pytest.mark.parametrize("model", ["network", "logistic"])
def test_warnings_about_columns_name_them(llpkit, tmp_path, model):
    rng = np.random.default_rng(0)
    lines = ["bag,count,height,shade"]
    for bag in range(60):  # every bag has both shades equally often
        for row in range(4):
            lines.append(f"{bag},{bag % 4},{rng.normal():.3f},{'dark' if row % 2 else 'light'}")
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    done = llpkit("fit", "t.csv", *COLUMNS, *MODELS[model], "--out", "run")
    assert done.code == 0, done.err
    assert "shade = dark" in done.err
    assert not re.search(r"'x\d+'", done.err)


def test_measure_is_an_option_and_a_setting(llpkit, tmp_path):
    data = table(tmp_path / "t.csv", False)
    (tmp_path / "c.yaml").write_text("measure: off\nepochs: 1\nnetwork: linear\n")
    for out, options in (("a", ("--measure", "off")), ("b", ())):
        config = () if options else ("c.yaml", "--table")
        extra = (*options, "--network", "linear", "--epochs", 1) if options else ()
        done = llpkit("fit", *config, data, *COLUMNS, *extra, "--out", out)
        assert done.code == 0, done.err
        head = (tmp_path / out / "metrics.csv").read_text().splitlines()[0].split(",")
        assert "log_likelihood" not in head
        assert {"seconds", "measure_seconds"} <= set(head)
    done = llpkit("fit", data, *COLUMNS, "--measure", "some")
    assert (done.code, "--measure = 'some'; give auto, all or off" in done.err) == (2, True)
