"""Records with junk in them are drawn or refused by name, never a traceback."""

import json
import random
import re

import pytest

from experiments.conftest import written
from fuzzing.records import GONE, JUNK, check, damaged, junk_record, places, without_figures
from llpkit import LLPError
from llpkit.experiments import Run, Store


def whole(store: Store, experiment: str = "convergence"):
    """A folder with two records, and one of them."""
    size = 4 if experiment == "bag-size" else (1, 12)
    for fold in (0, 1):
        run = Run(experiment, "cifar10", "mle", fold=fold, bag_size=size)
        written(store, run, [0.6, 0.7, 0.8])
    path = sorted((store.home / "records" / experiment).glob("*.json"))[0]
    return path, json.loads(path.read_text())


@pytest.mark.parametrize("experiment", ["convergence", "epoch-time", "bag-size"])
def test_junk_in_any_place_of_a_record(store, experiment):
    path, record = whole(store, experiment)
    rng = random.Random(experiment)
    drawn = 0
    with without_figures():
        assert check(path, record, store.home)
        for place in places(record):
            for junk in (GONE, *rng.sample(JUNK, 2)):
                drawn += check(path, damaged(record, place, junk), store.home)
        for _ in range(30):
            check(path, junk_record(rng, record), store.home)
        for other in ([], 3, None, "abc", [[1, 2]], {"format": 2}, {"format": []}):
            assert not check(path, other, store.home)
    assert drawn  # a text may be any text


@pytest.mark.parametrize(
    ("place", "junk"),
    [
        (("jobs",), "two"),
        (("quick",), 1),
        (("started",), 3),
        (("data", "bags"), [9]),
        (("data", "instances", 1), 0),
        (("data", "class_names"), "ab"),
        (("final", "accuracy"), float("nan")),
        (("final", "accuracy"), None),
        (("final", "log_loss"), "low"),
        (("history", "seconds"), GONE),
        (("history", "test_accuracy", 0), 7.0),
        (("history", "log_likelihood", 1), float("inf")),
        (("calibration", "number"), ["1"]),
        (("example", "truth"), [1, 0, 5]),
        (("hardware", "threads"), 100_000),
        (("versions",), []),
        (("run", "method_options"), []),
        (("run", "epochs"), 10**30),
        (("run", "bag_size"), {}),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(store, place, junk):
    path, record = whole(store)
    path.write_text(json.dumps(damaged(record, place, junk)))
    named = f"{re.escape(str(path))}.*{place[-1] if isinstance(place[-1], str) else place[-2]}"
    with pytest.raises(LLPError, match=named):
        list(store.read())
    assert not store.done(Run.of(record))
    [(aside, _)] = store.set_aside()  # and its run can be run again
    assert aside.name == f"{path.name}.damaged"
    assert len(list(store.read())) == 1


def test_a_copy_of_a_record_does_not_count_twice(store):
    path, _ = whole(store)
    path.with_name("copy.json").write_bytes(path.read_bytes())
    with pytest.raises(LLPError, match=r"copy\.json"):
        list(store.read())


def test_a_failed_run_is_none_that_is_done(store):
    path, record = whole(store)
    path.write_text(json.dumps(record | {"error": "RuntimeError: no"}))
    with pytest.raises(LLPError, match=re.escape(str(path))):
        list(store.read())
