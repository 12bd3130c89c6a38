"""The configuration: what is refused, and in which words."""

import math
import re
from pathlib import Path

import pytest

from llpkit.cli.options import key_values
from llpkit.config import absolute, check, merge, read, to_yaml
from llpkit.errors import LLPError

DIGITS = {"data": {"dataset": "digits"}}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({**DIGITS, "epoch": 3}, "epoch is unknown; did you mean 'epochs'?"),
        ({**DIGITS, "zzz": 3}, "zzz is unknown; available: method, "),
        ({**DIGITS, "bag_size": 3}, "bag_size is unknown; did you mean 'data.bag_size'?"),
        ({**DIGITS, "data.bag_size": 3}, "data.bag_size is unknown; write bag_size under data"),
        (
            {"data": {"dataset": "digits", "bagsize": 3}},
            "data.bagsize is unknown; did you mean 'data.bag_size'?",
        ),
        ({"data": {"dataset": "digts"}}, "data.dataset = 'digts'; did you mean 'digits'?"),
        ({"data": {"dataset": "feature-table"}}, "name your file as the table instead"),
        ({**DIGITS, "method": "male"}, "method = 'male'; did you mean 'mle'?"),
        ({**DIGITS, "network": "convlarge"}, "network = 'convlarge'; did you mean 'conv-large'?"),
        (
            {**DIGITS, "augment": "papers"},
            "augment = 'papers'; did you mean 'paper'",
        ),
        ({**DIGITS, "epochs": 0}, "epochs = 0; give a whole number from 1 to 1000000000"),
        ({**DIGITS, "lr": -1}, "lr = -1; give a number above 0"),
        ({**DIGITS, "lr": "nan"}, "lr = nan; give a number above 0"),
        ({**DIGITS, "held_out": 1.5}, "held_out = 1.5; give a number between 0 and 1"),
        ({**DIGITS, "schedule": "linear"}, "schedule = 'linear'; give tail, cosine or constant"),
        ({**DIGITS, "precision": "8"}, "precision = '8'; available: auto, "),
        ({**DIGITS, "resident": "maybe"}, "resident = 'maybe'; give true, false or auto"),
        ({**DIGITS, "patience": 3}, "patience needs held-out bags; give held_out=0.1, for example"),
        ({}, "there is no data to learn from; name a table or a data set"),
        ({"data": {}}, "there is no data to learn from; name a table or a data set"),
        ({"data": {"dataset": "digits", "table": "t.csv"}}, "name a table or a data set, not both"),
        (
            {"data": {"dataset": "digits", "bag": "b"}},
            "bag goes with a table, not with a data set",
        ),
        ({"data": {"table": "t.csv"}}, "a table needs the name of its bag column; give bag"),
        (
            {"data": {"table": "t.csv", "bag": "b", "bag_size": 3}},
            "bag_size goes with a data set, not with a table",
        ),
        (
            {"data": {"table": "t.csv", "bag": "b", "image_size": "9x9"}},
            "image_size goes with an image column",
        ),
        (
            {"data": {"table": "t.csv", "bag": "b", "image": "i", "features": ["a"]}},
            "features goes with a table of features, not images",
        ),
        (
            {"data": {"dataset": "digits", "bag_size": "12-1"}},
            "data.bag_size = '12-1'; give a number, or a range such as 1-12",
        ),
        (
            {"data": {"dataset": "digits", "bag_size": "1x12"}},
            "data.bag_size = '1x12'; give a number, or a range such as 1-12",
        ),
        (
            {"data": {"dataset": "digits", "bag_size": True}},
            "data.bag_size = True; give a number, or a range such as 1-12",
        ),
        (
            {"data": {"table": "t.csv", "bag": "b", "image": "i", "image_size": 9}},
            "data.image_size = 9; give height and width, such as 90x72",
        ),
        (
            {"data": {"table": "t.csv", "bag": "b", "image": "i", "image_size": "64-64"}},
            "data.image_size = '64-64'; give height and width, such as 90x72",
        ),
        (
            {"data": {"table": "t.csv", "bag": "b", "count": [1]}},
            "data.count = [1]; give the name of a column, or one per class",
        ),
        ({"data": 3}, "data = 3; give names and values"),
    ],
)
def test_what_is_wrong_is_told(settings, message):
    with pytest.raises(LLPError, match=re.escape(message)):
        check(settings)


def test_all_errors_are_told_at_once():
    settings = {"data": {"dataset": "digts", "bagg": 1}, "epochs": "ten", "metod": "mle"}
    with pytest.raises(LLPError) as caught:
        check(settings)
    message = str(caught.value)
    assert message.startswith("4 settings are wrong:")
    for part in ("data.dataset = 'digts'", "data.bagg", "epochs = 'ten'", "metod"):
        assert part in message


def test_an_option_is_called_by_its_name():
    settings = merge(DIGITS, {"batch_size": "many"})
    with pytest.raises(
        LLPError, match=r"^--batch-size = 'many'; give a whole number of at least 1"
    ):
        check(settings, options={"batch_size": "--batch-size"})


def test_yaml_numbers_that_it_reads_as_text(tmp_path: Path):
    file = tmp_path / "c.yaml"
    file.write_text("data: {dataset: digits, bag_size: 1-12}\nlr: '1e-3'\nweight_decay: 5e-4\n")
    config = check(read(file))
    assert (config.recipe.lr, config.recipe.weight_decay, config.data.bag_size) == (
        1e-3,
        5e-4,
        (1, 12),
    )


def test_numbers_may_have_an_exponent_and_no_point(tmp_path: Path):
    file = tmp_path / "c.yaml"
    file.write_text(
        "data: {table: t.csv, bag: '1e3', count: n}\nlr: 1e-3\nmethod: mle\n"
        "method_options: {step: 5E-1}\n"
    )
    for _ in range(2):
        config = check(read(file))
        assert (config.recipe.lr, config.recipe.method_options) == (1e-3, {"step": 0.5})
        assert config.data.bag == "1e3"
        file.write_text(to_yaml(config))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("3", 3),
        ("1_000", 1000),
        ("007", 7),
        (" -.5 ", -0.5),
        ("inf", math.inf),
        ('["a", 2]', ["a", 2]),
        ("null", None),
        ("None", None),
        ("TRUE", True),
        ('"3"', "3"),
        ("a=b", "a=b"),
        ("2020-13-45", "2020-13-45"),
        ("", ""),
    ],
)
def test_the_value_of_an_option_is_json_a_number_a_constant_or_text(text, value):
    assert key_values([f"key={text}"]) == {"key": value}


def test_options_win_and_what_they_leave_stays():
    file = {"data": {"dataset": "digits", "bag_size": 4}, "epochs": 5, "method_options": {"a": 1}}
    merged = merge(file, {"epochs": 9, "data.bag_size": 8, "method_options": {"b": 2}})
    assert merged["epochs"] == 9
    assert merged["data"] == {"dataset": "digits", "bag_size": 8}
    assert merged["method_options"] == {"a": 1, "b": 2}
    assert file["data"]["bag_size"] == 4


def test_another_source_drops_what_belonged_to_the_first():
    table = {"data": {"table": "a.csv", "bag": "b", "count": "c"}}
    assert merge(table, {"data.dataset": "digits"})["data"] == {"dataset": "digits"}
    other = merge(table, {"data.table": "b.csv"})["data"]
    assert other == {"table": "b.csv", "bag": "b", "count": "c"}
    digits = {"data": {"dataset": "digits", "bag_size": 4}}
    assert merge(digits, {"data.table": "b.csv"})["data"] == {"table": "b.csv"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"data: [", "is not YAML"),
        (b"a: \x80", "is not YAML"),
        (b"just text", "holds no settings; write lines such as 'method: mle'"),
        (b"", "holds no settings"),
        (b"1: 2", "holds no settings"),
        (b"!!python/object/apply:os.system ['true']", "is not YAML"),
        (b"[" * 5000, "line 1 is nested"),
    ],
)
def test_files_that_hold_no_settings(tmp_path: Path, content, message):
    file = tmp_path / "c.yaml"
    file.write_bytes(content)
    with pytest.raises(LLPError, match=re.escape(message)):
        read(file)


def test_a_missing_file(tmp_path: Path):
    with pytest.raises(LLPError, match="does not exist; check the path of the configuration"):
        read(tmp_path / "none.yaml")


def test_aliases_that_grow_without_bound_are_told_in_a_line(tmp_path: Path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    file = tmp_path / "c.yaml"
    file.write_text("\n".join([*lines, "epochs: *a11"]))
    with pytest.raises(LLPError) as caught:
        check(read(file))
    assert len(str(caught.value)) < 5000


def test_paths_in_a_file_start_from_its_folder(tmp_path: Path):
    folder = tmp_path / "project"
    folder.mkdir()
    file = folder / "c.yaml"
    file.write_text("data: {table: people.csv, bag: b, count: c}\n")
    assert read(file)["data"]["table"] == str(folder / "people.csv")


def test_the_resolved_configuration_reads_back(tmp_path: Path):
    config = check(
        {
            "data": {"table": "t.csv", "bag": "b", "count": ["x", "y"], "class_names": ["ä", "b"]},
            "method_options": {"step": 1.5},
            "lr": "1e-4",
        }
    )
    config = absolute(config)
    file = tmp_path / "c.yaml"
    file.write_text(to_yaml(config))
    assert check(read(file)) == config
    assert set(config.flat()) == set(read(file))
