"""A run whose method nobody names: what is picked, where the reason is, and that it repeats."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

COLUMNS = ("--bag", "bag", "--count", "count")


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    bag = np.arange(120) // 4
    count = np.bincount(bag, x[:, 0] > 0).astype(int)
    rows = [f"b{b},{count[b]},{u:.3f},{v:.3f}" for b, (u, v) in zip(bag, x, strict=True)]
    file = tmp_path / "t.csv"
    file.write_text("\n".join(["bag,count,u,v", *rows]) + "\n")
    return file


def test_a_table_gets_an_estimator_and_the_reason_is_everywhere(llpkit, table):
    done = llpkit("fit", table, *COLUMNS, "--held-out", 0.2, "--out", "run")
    assert done.code == 0, done.err
    assert "picked ensemble: " in done.out
    reason = json.loads(Path("run/environment.json").read_text())["picked"]
    assert reason.startswith("ensemble: ")
    assert reason in done.out
    assert reason in Path("run/report.html").read_text(encoding="utf-8")
    config = yaml.safe_load(Path("run/config.yaml").read_text())
    assert config["estimator"] == "ensemble"
    # The configuration names the choice, so that nothing is picked again.
    again = llpkit("fit", "run/config.yaml", "--out", "again")
    assert (again.code, "picked" in again.out) == (0, False), again.err
    for run in ("run", "again"):
        assert llpkit("predict", run, table, "--out", f"{run}.csv").code == 0
    assert Path("run.csv").read_bytes() == Path("again.csv").read_bytes()


def test_settings_of_a_network_ask_for_one(llpkit, table):
    done = llpkit("fit", table, *COLUMNS, "--epochs", 2, "--network", "linear", "--out", "run")
    assert done.code == 0, done.err
    config = yaml.safe_load(Path("run/config.yaml").read_text())
    assert config["estimator"] is None
    assert f"picked {config['method']}: " in done.out
    reason = json.loads(Path("run/environment.json").read_text())["picked"]
    assert reason in Path("run/report.html").read_text(encoding="utf-8")
    # The whole command again is the same run, although it names no method.
    again = llpkit(
        *("fit", table, *COLUMNS, "--epochs", 2, "--network", "linear", "--out", "run"),
        "--resume",
    )
    assert (again.code, "nothing to resume" in again.out) == (0, True)


def test_an_estimator_or_method_that_is_named_is_not_picked(llpkit, table):
    for name in (("--estimator", "logistic"), ("--method", "dllp", "--epochs", 1)):
        done = llpkit("fit", table, *COLUMNS, *name, "--out", "run", "--force")
        assert (done.code, "picked" in done.out) == (0, False), done.err
