"""``llpkit predict`` and ``llpkit evaluate``: the table back, and how good it is."""

import csv
import json
import pickle
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from llpkit.files import add_checksums


@pytest.fixture
def run(fitted, survey) -> Path:
    """A copy of it, beside the survey."""
    assert survey.exists()
    return Path(shutil.copytree(fitted, "run"))


def rows_of(path: str) -> list[dict[str, str]]:
    with Path(path).open() as file:
        return list(csv.DictReader(file))


def test_the_table_comes_back_with_predictions(llpkit, run, survey):
    done = llpkit("predict", run, survey, "--out", "p.csv")
    assert done.code == 0, done.err
    before, after = rows_of(str(survey)), rows_of("p.csv")
    assert list(after[0]) == [*before[0], "probability", "label", "posterior"]
    for old, new in zip(before, after, strict=True):
        assert {key: new[key] for key in old} == old
        assert 0 <= float(new["probability"]) <= 1
        assert new["label"] == str(int(float(new["probability"]) >= 0.5))
    right = [row["label"] == row["answer"] for row in after]
    assert sum(right) > 0.8 * len(right)


def test_posteriors_sum_to_the_counts(llpkit, run, survey):
    assert llpkit("predict", run, survey, "--out", "p.csv").code == 0
    sums: dict[str, float] = {}
    counts = {}
    for row in rows_of("p.csv"):
        sums[row["district"]] = sums.get(row["district"], 0) + float(row["posterior"])
        counts[row["district"]] = int(row["n_yes"])
    assert sums == pytest.approx(counts, abs=1e-5)


def test_a_cell_with_a_carriage_return_comes_back(llpkit, run, survey):
    header, first, *others = survey.read_text().splitlines()
    lines = [header + ",note", first + ',"a\rb"', *(line + ",c" for line in others)]
    Path("notes.csv").write_bytes("\n".join(lines).encode())
    assert llpkit("predict", run, "notes.csv", "--out", "p.csv").code == 0
    with Path("p.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["note"] for row in found] == ["a\rb", *["c"] * len(others)]
    assert llpkit("predict", run, "p.csv", "--out", "q.csv", "--prefix", "again_").code == 0


def test_the_threshold(llpkit, run, survey):
    assert llpkit("predict", run, survey, "--out", "p.csv", "--threshold", 0.9).code == 0
    for row in rows_of("p.csv"):
        assert row["label"] == str(int(float(row["probability"]) >= 0.9))


def test_parquet_and_a_prefix(llpkit, run, survey):
    done = llpkit("predict", run, survey, "--out", "p.parquet", "--prefix", "llp_")
    assert done.code == 0, done.err
    table = pq.read_table("p.parquet")
    assert table.column_names[-3:] == ["llp_probability", "llp_label", "llp_posterior"]
    assert llpkit("predict", run, "p.parquet", "--out", "again.csv").code == 0


def test_without_counts_there_is_no_posterior(llpkit, run, survey):
    lines = [",".join(line.split(",")[2:4]) for line in survey.read_text().splitlines()]
    Path("new.csv").write_text("\n".join(lines) + "\n")
    done = llpkit("predict", run, "new.csv", "--out", "p.csv")
    assert done.code == 0
    assert "new.csv has no column 'district', 'n_yes'" in done.err
    assert list(rows_of("p.csv")[0]) == ["age", "region", "probability", "label"]


def test_why_there_is_no_posterior_is_told_in_full(llpkit, run):
    Path("new.csv").write_text(
        "district,n_yes,age,region\nup; down,1,30,north\nup; down,2,40,south\n"
    )
    done = llpkit("predict", run, "new.csv", "--out", "p.csv")
    assert done.code == 0
    assert "no posterior" in done.err
    assert "up; down" in done.err


def test_a_data_set_and_the_run_s_own_data(llpkit):
    options = ("--dataset", "digits", "--epochs", 1, "--quiet", "--out", "digits-run")
    assert llpkit("fit", *options).code == 0
    assert llpkit("predict", "digits-run", "digits", "--out", "p.csv").code == 0
    assert llpkit("predict", "digits-run", "--out", "own.csv").code == 0
    assert rows_of("p.csv") == rows_of("own.csv")
    assert list(rows_of("p.csv")[0]) == ["row", "bag", "probability", "label", "posterior"]
    assert llpkit("evaluate", "digits-run", "digits", "--bag-size", 4).code == 0
    table = llpkit("predict", "digits-run", "x.csv", "--out", "p.csv")
    assert table.code == 2
    assert "learned from the data set digits, not from a table" in table.err
    other = llpkit("predict", "digits-run", "synthetic", "--out", "p.csv")
    assert other.code == 2
    assert "this model takes (rows, 1, 8, 8)" in other.err


def test_many_classes_have_a_column_each(llpkit):
    lines = ["bag,a,b,c,x"]
    for bag in range(20):
        lines += [f"{bag},1,1,1,{x + 0.1 * (bag % 5)}" for x in (-3, 0, 3)]
    Path("t.csv").write_text("\n".join(lines) + "\n")
    counts = ("--count", "a", "--count", "b", "--count", "c")
    assert llpkit("fit", "t.csv", "--bag", "bag", *counts, "--epochs", 2, "--out", "run").code == 0
    assert llpkit("predict", "run", "t.csv", "--out", "p.csv").code == 0
    row = rows_of("p.csv")[0]
    parts = {
        kind: [float(row[f"{kind}_{c}"]) for c in "abc"] for kind in ("probability", "posterior")
    }
    for values in parts.values():
        assert sum(values) == pytest.approx(1, abs=1e-5)
    assert row["label"] == "abc"[parts["probability"].index(max(parts["probability"]))]


def test_a_second_table_of_counts(llpkit, survey):
    rows = rows_of(str(survey))
    counts = {row["district"]: row["n_yes"] for row in rows}
    lines = ["district,n_yes", *(f"{d},{n}" for d, n in counts.items())]
    Path("counts.csv").write_text("\n".join(lines) + "\n")
    Path("people.csv").write_text(
        "district,age\n" + "".join(f"{row['district']},{row['age']}\n" for row in rows)
    )
    columns = ("--bag", "district", "--count", "n_yes", "--counts-table", "counts.csv")
    assert llpkit("fit", "people.csv", *columns, "--epochs", 1, "--out", "run").code == 0
    done = llpkit("predict", "run", "people.csv", "--out", "p.csv")
    assert "people.csv has no column 'n_yes'; name the table that has" in done.err
    assert "with --counts-table" in done.err
    done = llpkit("predict", "run", "people.csv", "--out", "p.csv", "--counts-table", "counts.csv")
    assert done.code == 0, done.err
    assert "posterior" in rows_of("p.csv")[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none", "survey.csv", "--out", "p.csv"], "none is not a run directory"),
        (["run", "none.csv", "--out", "p.csv"], "none.csv does not exist"),
        (["run", "digit", "--out", "p.csv"], "data set = 'digit'; did you mean 'digits'?"),
        (["run", "digits", "--out", "p.csv", "--bag-size", "0"], "--bag-size = '0'; give a number"),
        (["run", "survey.csv", "--out", "p.txt"], "p.txt is neither .csv nor .parquet"),
        (["run", "survey.csv", "--out", "no/p.csv"], "there is no folder no; create it"),
        (["run", "survey.csv", "--out", "survey.csv"], "survey.csv would overwrite "),
        (["run", "survey.csv", "--out", "p.csv", "--threshold", "2"], "threshold = 2.0"),
        (["run", "survey.csv", "--out", "p.csv", "--device", "abacus"], "device = 'abacus'"),
        (["run", "short.csv", "--out", "p.csv"], "has no column 'age'"),
        (
            ["run", "wrong.csv", "--out", "p.csv"],
            "row 1 (header not counted), column 'age' = 'old'",
        ),
    ],
)
@pytest.mark.usefixtures("run")
def test_errors_of_predict(llpkit, arguments, message):
    Path("short.csv").write_text("district,region\nd1,north\n")
    Path("wrong.csv").write_text("age,region\nold,north\n")
    done = llpkit("predict", *arguments)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err


def test_a_column_of_that_name_is_not_overwritten(llpkit, run, survey):
    survey.write_text(survey.read_text().replace("answer", "label"))
    done = llpkit("predict", run, survey, "--out", "p.csv")
    assert done.code == 2
    assert "already has a column 'label'; choose other names" in done.err
    assert not Path("p.csv").exists()


def test_evaluate_its_own_parts(llpkit, fit_survey):
    assert fit_survey("--out", "run", "--held-out", 0.2, "--test-fraction", 0.3).code == 0
    done = llpkit("evaluate", "run", "--json")
    assert done.code == 0
    found = json.loads(done.out)["parts"]
    assert list(found) == ["training", "held-out", "test"]
    assert sum(part["bags"]["number"] for part in found.values()) == 30
    assert {"accuracy", "log_loss", "brier", "calibration_error", "auc"} < set(
        found["test"]["instances"]
    )
    table = llpkit("evaluate", "run")
    assert all(name in table.out for name in ("training", "held-out", "test", "accuracy"))


def test_evaluate_another_table(llpkit, run, survey):
    done = llpkit("evaluate", run, survey, "--json")
    assert set(json.loads(done.out)["parts"]["all"]) == {"bags", "instances"}
    assert llpkit("predict", run, survey, "--out", "p.csv").code == 0
    right = [row["label"] == row["answer"] for row in rows_of("p.csv")]
    accuracy = json.loads(done.out)["parts"]["all"]["instances"]["accuracy"]
    assert accuracy == pytest.approx(sum(right) / len(right))


def test_evaluate_needs_labels_or_counts(llpkit, survey):
    columns = ("--bag", "district", "--count", "n_yes", "--features", "age")
    assert llpkit("fit", survey, *columns, "--epochs", 1, "--out", "run").code == 0
    lines = [",".join(line.split(",")[2:]) for line in survey.read_text().splitlines()]
    Path("new.csv").write_text("\n".join(lines) + "\n")
    done = llpkit("evaluate", "run", "new.csv")
    assert done.code == 2
    assert "give the counts, or labels with --label" in done.err
    labelled = llpkit("evaluate", "run", "new.csv", "--label", "answer", "--json")
    assert set(json.loads(labelled.out)["parts"]["all"]) == {"instances"}


# Nothing that is loaded can run code


class Attack:
    def __reduce__(self):
        return (Path("attacked").touch, ())


def test_a_pickle_in_place_of_the_weights_is_refused(llpkit, run, survey):
    (run / "weights.safetensors").write_bytes(pickle.dumps(Attack()))
    add_checksums(run, ["weights.safetensors"])
    done = llpkit("predict", run, survey, "--out", "p.csv")
    assert done.code == 2
    assert "cannot be read" in done.err
    assert not Path("attacked").exists()


def test_a_pickle_in_place_of_the_checkpoint_is_refused(llpkit, fit_survey, monkeypatch):
    def stop(*_):
        raise KeyError

    with monkeypatch.context() as patch:
        patch.setattr("llpkit.runs.train._write_model", stop)
        with pytest.raises(KeyError):
            fit_survey("--out", "run")
    Path(".run.llpkit/work/checkpoint.pt").write_bytes(pickle.dumps(Attack()))
    done = llpkit("fit", "--resume", "--out", "run")
    assert done.code == 2
    assert "cannot be read as a checkpoint" in done.err
    assert not Path("attacked").exists()


@pytest.mark.parametrize(
    "name", ["config.yaml", "model.json", "encoder.json", "weights.safetensors"]
)
@pytest.mark.parametrize("content", [b"", b"{}", b"[1, 2", b"\xff\x00"])
@pytest.mark.parametrize("signed", [True, False])
def test_damaged_files_end_in_a_line(llpkit, run, survey, name, content, signed):
    (run / name).write_bytes(content)
    if signed:  # as somebody who wants to harm would
        add_checksums(run, [name])
    done = llpkit("predict", run, survey, "--out", "p.csv")
    assert done.code == 2
    assert done.err.strip()
    assert signed or f"is damaged: {name}" in done.err
    assert "Traceback" not in done.err


def test_weights_of_another_shape(llpkit, run, survey):
    tensors = load_file(run / "weights.safetensors")
    save_file(
        {key: torch.cat([value, value]) for key, value in tensors.items()},
        run / "weights.safetensors",
    )
    add_checksums(run, ["weights.safetensors"])
    done = llpkit("predict", run, survey, "--out", "p.csv")
    assert done.code == 2
    assert "do not fit" in done.err


def test_a_run_can_be_moved(llpkit, run, survey):
    shutil.move(run, "elsewhere")
    assert llpkit("predict", "elsewhere", survey, "--out", "p.csv").code == 0
