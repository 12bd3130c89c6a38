"""Ten classes in bags of 60 by the command line: the exact likelihood is intractable."""

import json
import re

import numpy as np
import pytest

CLASSES = [f"c{k}" for k in range(10)]
COLUMNS = [
    *("--bag", "bag", "--label", "truth"),
    *(word for name in CLASSES for word in ("--count", name)),
]


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    truth, bag = rng.integers(0, 10, 480), np.repeat(np.arange(8), 60)
    counts = np.stack([np.bincount(truth[bag == b], minlength=10) for b in range(8)])
    x = 4 * np.eye(10)[truth] + rng.normal(size=(480, 10))
    heads = ["bag", *CLASSES, *(f"x{j}" for j in range(10)), "truth"]
    lines = [",".join(heads)]
    for b, row, label in zip(bag, x, truth, strict=True):
        known = ",".join(map(str, counts[b]))
        lines.append(f"b{b},{known},{','.join(f'{v:.3f}' for v in row)},c{label}")
    path = tmp_path / "k10.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    "how",
    [
        ("--estimator", "logistic", "--estimator-option", "max_iter=30"),
        ("--estimator", "dllp"),
        ("--network", "linear", "--epochs", 2, "--method-option", "approximation=auto"),
        ("--network", "linear", "--epochs", 2, "--method", "dllp"),
    ],
    ids=["logistic", "dllp-estimator", "mle", "dllp"],
)
def test_fit_predict_and_evaluate(llpkit, table, tmp_path, how):
    done = llpkit("fit", table, *COLUMNS, *how, "--test-fraction", 0.25, "--out", "run")
    assert done.code == 0, done.err
    assert done.err.count("the exact likelihood of 8 of 8 bags is intractable") == 1
    chosen = "dllp" not in how
    assert done.err.count('approximation="saddlepoint"') == chosen
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert re.search("<small>approximate for [268] of [268] bags, mean of", page)
    assert "<small>exact" not in page

    done = llpkit("predict", "run", table, "--out", "p.csv")
    assert done.code == 0, done.err
    assert "posteriors are approximate" in done.err
    rows = np.genfromtxt("p.csv", delimiter=",", names=True, dtype=None, encoding="utf-8")
    total = sum(rows["posterior_c0"][rows["bag"] == "b0"])
    assert total == pytest.approx(rows["c0"][0], abs=1e-2)

    done = llpkit("evaluate", "run", "--json")
    assert done.code == 0, done.err
    parts = json.loads(done.out)["parts"]
    assert {name: part["bags"]["approximated"] for name, part in parts.items()} == {
        "training": 6,
        "test": 2,
    }
    for part in parts.values():
        assert np.isfinite(part["bags"]["baseline_log_likelihood"])
    assert np.isfinite(parts["test"]["bags"]["log_likelihood"])
    assert "approximated" in llpkit("evaluate", "run").out


@pytest.mark.parametrize(
    ("how", "option"),
    [
        (("--network", "linear"), "--method-option"),
        (("--network", "linear", "--method", "direct"), "--method-option"),
        (("--estimator", "logistic"), "--estimator-option"),
        (("--estimator", "naive-bayes"), "--estimator-option"),
    ],
)
def test_the_remedy_is_an_option_of_the_command(llpkit, table, tmp_path, how, option):
    done = llpkit("fit", table, *COLUMNS, *how, option, "approximation=null", "--out", "run")
    assert done.code != 0
    assert f"approximate it with {option} approximation=auto" in " ".join(done.err.split())
    assert not (tmp_path / ".run.llpkit").exists()
