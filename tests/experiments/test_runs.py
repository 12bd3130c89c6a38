"""What a run is, its id, its record, and folders of records."""

import json
import os
import shutil
import time
from dataclasses import fields, replace
from pathlib import Path

import pytest

from experiments.conftest import small, written
from llpkit import LLPError
from llpkit.experiments import Run, Store, _work, carry_out, plan, reproduce
from llpkit.experiments._run import VARIANTS

RUN = Run("convergence", "digits", "mle", bag_size=(1, 12), epochs=2, flat=True, network="mlp")
OTHER = {
    "experiment": "grid",
    "dataset": "cifar10",
    "method": "dllp",
    "fold": 1,
    "folds": 5,
    "seed": 1,
    "bag_size": 4,
    "data_options": {"size": "half"},
    "flat": False,
    "network": "small-cnn",
    "epochs": 3,
    "batch_size": 64,
    "lr": 0.01,
    "weight_decay": 0.1,
    "schedule": "cosine",
    "augment": "paper",
    "precision": "bf16-mixed",
    "held_out": 0.1,
    "method_options": {"refresh": "pass"},
    "compiled": True,
}


def test_an_id_is_the_same_on_every_machine_and_in_every_version():
    assert RUN.id == "2e8d9a210bfd"


@pytest.mark.parametrize("name", [field.name for field in fields(Run)])
def test_an_id_follows_from_every_field(name):
    assert replace(RUN, **{name: OTHER[name]}).id != RUN.id


def test_a_run_is_read_back_from_its_record(store, place):
    assert carry_out(RUN, place) == "done"
    [record] = store.read()
    assert Run.of(record) == RUN
    assert record["id"] == RUN.id


def test_a_record_says_what_was_measured_where_and_on_what(store, place):
    carry_out(replace(RUN, held_out=0.2), place)
    [record] = store.read()
    history = record["history"]
    assert history["epoch"] == [1, 2]
    for name in (
        "loss",
        "log_likelihood",
        "proportion_error",
        "held_out_log_likelihood",
        "test_accuracy",
        "test_log_loss",
        "test_brier",
        "test_log_likelihood",
        "seconds",
    ):
        assert len(history[name]) == 2
        assert all(isinstance(value, float) for value in history[name])
    assert record["final"]["accuracy"] == history["test_accuracy"][-1]
    best = history["held_out_log_likelihood"].index(max(history["held_out_log_likelihood"]))
    assert record["selected"]["epoch"] == history["epoch"][best]
    assert record["selected"]["accuracy"] == history["test_accuracy"][best]
    assert sum(record["calibration"]["number"]) == record["data"]["instances"][1]
    assert sum(record["data"]["instances"]) == 1797
    assert len(record["data"]["sha256"]) == 64
    assert record["versions"]["llpkit"]
    assert record["hardware"]["cores"] == os.cpu_count()
    assert record["seconds"]["training"] <= record["seconds"]["total"]
    assert record["jobs"] == 1
    example = record["example"]
    assert sum(example["truth"]) == example["count"]
    assert len(example["probability"]) == len(example["rows"])


def without_times(record):
    kept = {k: v for k, v in record.items() if k not in ("started", "seconds")}
    return kept | {
        "history": {k: v for k, v in record["history"].items() if not k.endswith("seconds")}
    }


@pytest.mark.parametrize(
    "method", ["supervised", "mle", "mle-pass", "direct", "amle", "dllp", "llp-gan"]
)
def test_a_second_run_gives_the_same_record_to_the_last_digit(tmp_path, place, method):
    records = []
    for name in ("first", "second"):
        base, options = VARIANTS.get(method, (method, {}))
        run = replace(RUN, method=base, method_options=options)
        assert carry_out(run, replace(place, folders=(tmp_path / name,))) == "done"
        records += Store([tmp_path / name]).read()
    assert without_times(records[0]) == without_times(records[1])
    accuracy = records[0]["final"]["accuracy"]
    assert accuracy * records[0]["data"]["instances"][1] == pytest.approx(
        round(accuracy * records[0]["data"]["instances"][1])
    )  # a whole number of instances, so the last digit is there


def test_a_record_tells_which_source_made_it(store, place, tmp_path):
    carry_out(RUN, place)
    [record] = store.read()
    assert record["code"] == _work.code()
    package = Path(_work.__file__).parent.parent
    made = []
    for changed in (None, "report/_style.py", "methods/mle.py", "experiments/_work.py"):
        copy = tmp_path / f"copy-{len(made)}"
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
        if changed is not None:
            with (copy / changed).open("a") as file:
                file.write("# changed")
        made.append(_work.code(copy))
    assert made[0] == made[1] == record["code"]  # how it is drawn is no part of a result
    assert len({record["code"], *made[2:]}) == 3


def test_a_finished_run_is_never_run_again(store, place):
    carry_out(RUN, place)
    path = store.home / "records" / "convergence" / f"{RUN.id}.json"
    written = path.stat().st_mtime_ns
    time.sleep(0.01)
    assert carry_out(RUN, place) == "done"
    assert path.stat().st_mtime_ns == written


def test_folders_of_two_machines_merge(tmp_path, place):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, fold in ((first, 0), (second, 1)):
        its_place = replace(place, folders=(folder,))
        done = reproduce("convergence", small(folds=[fold]), Store([folder]), its_place)
        assert done.now == 2
    both = plan("convergence", small())
    assert all(map(Store([first, second]).done, both))
    assert not all(map(Store([first]).done, both))
    merged = tmp_path / "merged"
    shutil.copytree(first, merged)
    shutil.copytree(second, merged, dirs_exist_ok=True)
    assert len(list(Store([merged]).read())) == 4
    assert len(list(Store([merged, first, second]).read())) == 4
    done = reproduce("convergence", small(), Store([merged]), replace(place, folders=(merged,)))
    assert (done.before, done.now) == (4, 0)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": 0}'])
def test_a_damaged_record_is_named(store, place, damage):
    carry_out(RUN, place)
    path = store.home / "records" / "convergence" / f"{RUN.id}.json"
    path.write_text(damage)
    with pytest.raises(LLPError, match=rf"{RUN.id}.json is not a record .*; remove it"):
        list(store.read())


@pytest.mark.parametrize(
    ("part", "name", "value", "told"),
    [
        ("run", "lr", 0.5, "changed by hand"),
        ("final", "accuracy", 0.999, r"changed by hand: its final accuracy is 0\.999, but 0\."),
    ],
)
def test_a_record_that_was_changed_is_not_believed(store, place, part, name, value, told):
    carry_out(RUN, place)
    path = store.home / "records" / "convergence" / f"{RUN.id}.json"
    record = json.loads(path.read_text())
    record[part][name] = value
    path.write_text(json.dumps(record))
    with pytest.raises(LLPError, match=told):
        list(store.read())


@pytest.mark.parametrize("experiment", ["convergence", "grid"])
def test_a_record_without_a_part_that_is_read_is_not_believed(store, place, experiment):
    reproduce(experiment, small(methods=["mle"], folds=[0], quick=True), store, place)
    path = next((store.home / "records" / experiment).glob("*.json"))
    whole = json.loads(path.read_text())
    parts = ["history", "versions"] + ["calibration"] * (experiment == "convergence")
    for part in parts:
        path.write_text(json.dumps({k: v for k, v in whole.items() if k != part}))
        assert not store.done(Run.of(whole))
        with pytest.raises(LLPError, match=f"incomplete: it has no {part}"):
            list(store.read(experiment))
    whole["history"]["loss"].pop()
    path.write_text(json.dumps(whole))
    with pytest.raises(LLPError, match="incomplete: the columns of its history differ in length"):
        list(store.read(experiment))


@pytest.mark.parametrize("experiment", ["convergence", "grid"])
def test_a_damaged_record_is_set_aside_and_its_run_run_again(store, place, experiment):
    settings = small(methods=["mle"], folds=[0], quick=True)
    reproduce(experiment, settings, store, place)
    path = next((store.home / "records" / experiment).glob("*.json"))
    whole = path.read_text()
    path.write_text(whole[:100])
    run = Run.of(json.loads(whole))
    assert not store.done(run)
    with pytest.warns(UserWarning, match=rf"damaged record is now .*{run.id}.json.damaged \(JSOND"):
        done = reproduce(experiment, settings, store, place)
    assert done.now == 1
    assert store.done(run)
    assert path.with_name(f"{path.name}.damaged").read_text() == whole[:100]


def test_a_record_of_another_format_stays_where_it_is(store, place):
    carry_out(RUN, place)
    path = store.home / "records" / "convergence" / f"{RUN.id}.json"
    path.write_text('{"format": 99}')
    assert store.set_aside() == []
    assert path.exists()
    with pytest.raises(LLPError, match="it is of format 99, not 2"):
        list(store.read())


def test_a_run_that_fails_leaves_an_error_and_is_tried_again(store, place):
    hopeless = small(methods=["supervised"], folds=[0], lr=1e30)
    [run] = plan("convergence", hopeless)
    for _ in range(2):
        done = reproduce("convergence", hopeless, store, place)
        assert (done.before, done.now, done.left) == (0, 0, 0)
        assert "lower the learning rate" in done.failed[0]["error"]
    waited = reproduce("convergence", hopeless, store, replace(place, deadline=0.0))
    assert (waited.failed, waited.left) == ([], 1)  # not tried, so not failed again
    assert not store.done(run)
    assert not list(store.read())
    [error] = store.errors()
    assert error["id"] == run.id
    written(store, run, [0.5] * run.epochs)  # it worked after all, on another machine say
    assert not list(store.errors())


def test_an_unforeseen_error_keeps_its_traceback(store, place):
    assert carry_out(replace(RUN, network="no-such"), place) == "failed"
    assert carry_out(replace(RUN, fold=99), place) == "failed"
    told = {record["run"]["fold"]: record for record in store.errors()}
    assert "no-such" in told[0]["error"]
    assert "traceback" not in told[0]
    assert "IndexError" in told[99]["traceback"]


def test_no_run_begins_after_the_deadline(store, place):
    done = reproduce("convergence", small(), store, replace(place, deadline=time.time() - 1))
    assert (done.now, done.left) == (0, 4)
    assert not list(store.read())
