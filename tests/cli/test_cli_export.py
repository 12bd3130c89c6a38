"""llpkit export: raw columns of a table go in, and the model's probabilities come out."""

import csv
import json
import shutil

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch

from llpkit import load
from llpkit.errors import UnseenValueWarning
from llpkit.tables import FeatureEncoder
from llpkit.training.model import ENCODER

COLUMNS = ("--bag", "district", "--count", "n_yes")
# Training knows all of these but the last three values of each.
AGES = ("20", "35,5", "50", "64,25", "", "1e300", "-7", "18,000000001")
TOWNS = ("Zürich", "東京", "a,b", "", "NA", "12", "Oslo", "zürich", "n/A")


@pytest.fixture
def town_run(tmp_path, llpkit):
    """A logistic regression of a table with decimal commas, gaps and all kinds of names."""
    draw = np.random.default_rng(0)
    lines = ["district;n_yes;age in years;label;town"]
    for district in range(30):
        ages = draw.choice(AGES[:5], 4)
        count = sum(float(age.replace(",", ".") or 0) > 40 for age in ages)
        for age in ages:
            lines.append(f"{district};{count};{age};{draw.normal():.2f};{draw.choice(TOWNS[:6])}")
    path = tmp_path / "towns.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    kind = ("--estimator", "logistic", "--categorical", "town")
    assert llpkit("fit", path, *COLUMNS, *kind, "--out", "run", "-q").code == 0
    return tmp_path / "run"


def test_the_file_has_the_name_of_the_run(town_run, llpkit):
    assert llpkit("export", town_run).code == 0
    assert (town_run.parent / "run.onnx").is_file()


def feeds_of(session, frame):
    """As in docs/export.md."""
    feeds = {}
    for each in session.get_inputs():
        column = frame[each.name.rstrip("_")]
        if each.type == "tensor(string)":
            feeds[each.name] = column.fillna("").astype(str).str.strip().to_numpy(object)
        else:
            feeds[each.name] = column.to_numpy(float)
    return feeds


def probabilities_of(path, frame):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(["probability", "label"], feeds_of(session, frame))


def test_raw_columns_go_in(llpkit, town_run):
    done = llpkit("export", town_run, "--out", "model.onnx")
    assert done.code == 0
    assert "inputs: age in years, label_, town" in done.out
    assert "1,120 rows, 120 of them the run's own" in done.out

    rows = [(age, number, town) for age in AGES for number in ("0", "") for town in TOWNS]
    with open("new.csv", "w", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["age in years", "label", "town"])
        writer.writerows(rows)
    assert llpkit("predict", town_run, "new.csv", "--prefix", "p_", "--out", "out.csv").code == 0
    wanted = pd.read_csv("out.csv")
    text = {"dtype": {"town": str}, "keep_default_na": False, "na_values": {"label": [""]}}
    text["na_values"]["age in years"] = [""]
    frame = pd.read_csv("new.csv", sep=";", decimal=",", **text)
    assert set(TOWNS) == set(frame["town"])
    probability, label = probabilities_of("model.onnx", frame)
    assert len(probability) == len(rows)
    np.testing.assert_allclose(probability[:, 1], wanted["p_probability"], atol=1e-6)
    assert label.tolist() == wanted["p_label"].tolist()


def test_a_file_describes_itself(llpkit, town_run):
    assert llpkit("export", town_run, "--out", "model.onnx", "-q") == (0, "", "")
    session = onnxruntime.InferenceSession("model.onnx")
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["class_names"]) == ["negative", "positive"]
    assert json.loads(about["columns"])[1] == {
        "input": "label_",
        "column": "label",
        "kind": "number",
    }
    assert [each.shape for each in session.get_inputs()] == [["rows"]] * 3


def test_rare_and_missing_categories_have_a_feature_of_their_own(llpkit, tmp_path):
    draw = np.random.default_rng(1)
    names = [f"name {i}" for i in range(70)]  # 64 have their own feature, the others share one
    lines = ["district,n_yes,name"]
    for district in range(60):
        chosen = [*draw.choice([*names, "", "null"], 4)]
        lines += [f"{district},{sum(name > 'name 4' for name in chosen)},{n}" for n in chosen]
    path = tmp_path / "names.csv"
    path.write_text("\n".join(lines) + "\n")
    done = llpkit("fit", path, *COLUMNS, "--estimator", "logistic", "--out", "run", "-q")
    assert done.code == 0
    encoder = FeatureEncoder.from_json((tmp_path / "run" / ENCODER).read_text("utf-8"))
    assert encoder.columns[0].rare
    assert encoder.columns[0].missing
    assert llpkit("export", "run", "--out", "model.onnx").code == 0
    frame = pd.DataFrame({"name": [*names, "new", "", "NULL", "none "]})
    frame.to_csv("new.csv", index=False)
    assert llpkit("predict", "run", "new.csv", "--out", "out.csv").code == 0
    found = probabilities_of("model.onnx", frame)[0][:, 1]
    np.testing.assert_allclose(found, pd.read_csv("out.csv")["probability"], atol=1e-6)


def test_a_network_with_its_encoder(llpkit, fitted):
    done = llpkit("export", fitted, "--out", "model.onnx")
    assert done.code == 0, done.err
    assert "inputs: age, region" in done.out
    assert llpkit("predict", fitted, "--out", "out.csv").code == 0
    frame = pd.read_csv("out.csv")
    found = probabilities_of("model.onnx", frame)[0][:, 1]
    np.testing.assert_allclose(found, frame["probability"], atol=1e-5)


def tensors_of(about, frame):
    """As in docs/export.md."""
    columns = {}
    for column in about["columns"]:
        values = frame[column["column"]]
        if column["kind"] == "category":
            levels = {level: i for i, level in enumerate(column["levels"])}
            text = values.fillna("").astype(str).str.strip()
            numbers = text.map(levels).fillna(len(levels))
            numbers[text.str.lower().isin(about["missing"])] = -1
            columns[column["input"]] = torch.tensor(numbers.to_numpy("int64"))
        else:
            columns[column["input"]] = torch.tensor(values.to_numpy(float))
    return columns


def test_a_torch_program_takes_raw_columns(llpkit, tmp_path):
    draw = np.random.default_rng(0)
    rows = {"district": np.arange(120) // 4, "n_yes": 2, "age in years": draw.choice(AGES[:5], 120)}
    rows |= {"label": draw.normal(size=120).round(2), "town": draw.choice(TOWNS[:6], 120)}
    pd.DataFrame(rows).to_csv("towns.csv", sep=";", index=False)
    kind = ("--network", "mlp", "--epochs", "2", "--categorical", "town")
    assert llpkit("fit", "towns.csv", *COLUMNS, *kind, "--out", "run", "-q").code == 0
    done = llpkit("export", "run", "--format", "torch", "--out", "model.pt2")
    assert done.code == 0, done.err
    assert "inputs: age in years, label_, town\n" in done.out
    assert "integer codes, listed in llpkit.json: town\n" in done.out

    texts = {"llpkit.json": ""}
    program = torch.export.load("model.pt2", extra_files=texts).module()
    about = json.loads(texts["llpkit.json"])
    assert about["class_names"] == ["negative", "positive"]
    frame = pd.DataFrame(
        {
            "age in years": [float(a.replace(",", ".") or "nan") for a in AGES for _ in TOWNS],
            "label": 0.5,
            "town": [*TOWNS] * len(AGES),
        }
    )
    frame.loc[::5, "town"] = None
    with pytest.warns(UnseenValueWarning):
        wanted = load(tmp_path / "run").predict_proba(frame)
    for part in (slice(None), slice(0, 1)):
        probability, label = program(tensors_of(about, frame[part]))
        np.testing.assert_allclose(probability, wanted[part], atol=1e-6)
        assert label.tolist() == wanted[part].argmax(1).tolist()


def test_without_its_table_a_run_is_checked_on_random_rows(llpkit, town_run, tmp_path):
    (tmp_path / "towns.csv").unlink()
    done = llpkit("export", town_run, "--out", "model.onnx")
    assert (done.code, done.err) == (0, "")
    assert "(1,000 rows)" in done.out


def test_files_are_not_overwritten(llpkit, town_run, tmp_path):
    mine = tmp_path / "mine.onnx"
    mine.write_text("my own")
    done = llpkit("export", town_run, "--out", mine)
    assert done.code == 2
    assert f"{mine} exists; choose another name, or replace it with --force" in done.err
    assert mine.read_text() == "my own"
    assert llpkit("export", town_run, "--out", mine, "--force", "-q").code == 0
    (tmp_path / "towns.csv").rename("towns.onnx")
    link = tmp_path / "towns.csv"
    link.symlink_to("towns.onnx")
    done = llpkit("export", town_run, "--out", "towns.onnx", "--force")
    assert done.code == 2
    assert "would overwrite the input" in done.err
    done = llpkit("export", town_run, "--out", "none/model.onnx")
    assert "there is no folder none" in done.err
    done = llpkit("export", town_run, "--out", "model.onnx", "--format", "torch")
    assert "model.onnx does not end in .pt2" in done.err


def test_a_damaged_run_is_refused(llpkit, fitted, tmp_path):
    shutil.copytree(fitted, tmp_path / "run")
    with open("run/weights.safetensors", "ab") as file:
        file.write(b"more")
    done = llpkit("export", "run", "--out", "model.onnx")
    assert done.code == 2
    assert "run is damaged: weights.safetensors has changed since it was written" in done.err
    assert not (tmp_path / "model.onnx").exists()
