"""The benchmarks of tables: they run on little data, and say so where a demand is missed."""

from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def _path(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


def test_records_are_added_and_read_as_they_were(tmp_path):
    import records

    file = tmp_path / "new" / "some.parquet"
    assert records.read(file) == []
    rows = [{"a": 1, "hits": {"x": [1, 2]}}, {"a": 2.5, "b": "text", "hits": {"y": [3]}}]
    records.add(file, rows[:1])
    records.add(file, rows[1:])
    assert records.read(file) == rows
    assert [path.name for path in file.parent.iterdir()] == ["some.parquet"]


def write_adult(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for part, rows, end in (("data", 300, ""), ("test", 200, ".")):
        lines = []
        for _ in range(rows):
            age, hours = rng.integers(20, 60), rng.integers(20, 60)
            rich = ">50K" if age + rng.normal() * 5 > 40 else "<=50K"
            job, school = rng.choice(["Sales", "?"]), rng.choice(["HS-grad", "Masters"])
            lines.append(
                f"{age}, Private, 1, {school}, 9, Divorced, {job}, Wife, White, Male, 0, 0, "
                f"{hours}, Peru, {rich}{end}"
            )
        (folder / f"adult.{part}").write_text("\n".join(lines) + "\n")


def test_adult(tmp_path, monkeypatch, capsys):
    import adult

    write_adult(tmp_path)
    few = {k: adult.ESTIMATORS[k] for k in ("supervised logistic", "exact logistic", "InvCal")}
    monkeypatch.setattr(adult, "ESTIMATORS", few)
    monkeypatch.setattr(adult, "ABLATION", {})
    out = tmp_path / "out"
    adult.main(["--quick", "--data-dir", str(tmp_path), "--out", str(out)])
    assert (out / "adult.png").stat().st_size > 10_000
    runs = adult.records.read(out / "runs.parquet")
    assert len(runs) == 5
    assert all(run["auc"] > 0.8 for run in runs)
    capsys.readouterr()
    adult.main(["--quick", "--data-dir", str(tmp_path), "--out", str(out)])
    assert "seed 0:" not in capsys.readouterr().out  # what is on file is not made again


def test_adult_says_what_is_missed():
    import adult

    def run(name, bags, auc):
        return adult.Run(name, bags, 0, 1, auc, 0.0, 0.0, 0.0, None, "")

    runs = [run("supervised boosting", "", 0.93)]
    for size in ("8", "32"):
        runs += [run("EM, boosting", size, 0.915), run("DLLP", size, 0.90)]
    text = "\n".join(adult.demands(runs))
    assert "at n = 8 | 0.0150 | ≤ 0.01 | NO |" in text
    assert "at n = 32 | 0.0150 | ≤ 0.025 | yes |" in text
    assert "above the best other at n = 8, DLLP | +0.0150" in text
    runs.append(run("InvCal", "8", 0.95))
    assert "InvCal | -0.0350 | ≥ 0, or within its spread of 0.0000 | NO |" in "\n".join(
        adult.demands(runs)
    )


@pytest.mark.slow
def test_table_scale(tmp_path):
    import table_scale

    found = [table_scale.measure(rows) for rows in (1000, 4000)]
    assert all(f["m_step"] > 0 and f["rest"] > 0 and f["prediction"] > 0 for f in found)
    table_scale.figure(found, tmp_path / "scale.png")
    assert (tmp_path / "scale.png").stat().st_size > 10_000
    slow = [{**f, "rest": f["m_step"], "total": f["rows"] ** 2, "peak_gb": 20.0} for f in found]
    text = "\n".join(table_scale.demands(slow))
    assert text.count("NO") == 3


def test_selection(monkeypatch):
    import selection
    from sklearn.datasets import load_breast_cancer

    few = {k: v for k, v in selection.CANDIDATES.items() if k.startswith("logistic")}
    monkeypatch.setattr(selection, "CANDIDATES", few)
    cell = selection.cell("cancer", *load_breast_cancer(return_X_y=True), size=8, seed=0)
    assert len(cell.bags) == len(cell.test_auc) == len(few)
    assert np.argmax(cell.bags) != 0  # the strongest penalty explains bags worst
    assert "Bags and labels chose the same candidate" in selection.summary([cell])[-1]


def test_which_method(tmp_path, monkeypatch, capsys):
    import which_method

    small = {
        "rows": which_method.Problem("rows", lambda s: which_method.linear(s, 4, 120), 1),
        "ten": which_method.Problem(
            "images", lambda s: which_method.images(s, "digits", 60, 4, classes=10), 1, fresh=True
        ),
    }
    monkeypatch.setattr(which_method, "PROBLEMS", small)
    monkeypatch.setattr(which_method, "pick_estimator", lambda _: which_method.Pick("logistic", ""))
    few = ["direct", "dsq", "logistic (estimator)", "naive-bayes (estimator)"]
    options = [word for name in few for word in ("--method", name)] + ["--seed", "0"]
    which_method.main([*options, "--out", str(tmp_path)])
    runs = which_method.records.read(tmp_path / "runs.parquet")
    assert len(runs) == 6
    assert all(0 <= run["score"] <= 1 for run in runs)
    picks = {(run["problem"], run["measure"], run["method"]) for run in runs if run["auto"]}
    assert picks == {("rows", "AUC", "logistic (estimator)"), ("ten", "accuracy", "direct")}
    assert (tmp_path / "which-method.png").stat().st_size > 5_000
    capsys.readouterr()
    which_method.main([*options, "--out", str(tmp_path)])
    assert "0:" not in capsys.readouterr().out  # what is on file is not made again


def test_which_method_says_what_is_too_far():
    import which_method

    found = {"a": {0: 0.9, 1: 0.8}, "b": {0: 0.95}, "c": {1: 0.81}}
    assert which_method.best_beside(found, "a") == ("b", 0.95, 0.9)
    assert which_method.best_beside(found, "b") == ("b", 0.95, 0.95)
