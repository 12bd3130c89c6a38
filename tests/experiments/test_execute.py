"""Runs and their execution: what is recorded, what is resumed, what fails."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.conftest import record, small
from llpkit.errors import Diverged, LLPError
from llpkit.experiments import Results, reproduce
from llpkit.experiments import results as results_module
from llpkit.experiments import run as run_module
from llpkit.experiments.check import check
from llpkit.experiments.plan import plan
from llpkit.experiments.protocol_file import FILE, write
from llpkit.experiments.records import write_run
from llpkit.files import locked
from llpkit.progress import progress

EVERYTHING = small(
    grid={"folds": 1, "epochs": 1, "lr": [0.001, 0.01], "weight_decay": []},
    sizes={"sizes": [4, 16], "folds": 1, "epochs": 1, "held_out": 0.2},
    times={"turns": 2, "epochs": 3},
)


def numbers(folder: Path) -> list[list[float]]:
    """What must not depend on how runs are carried out."""
    return [r.history["test_accuracy"] for r in Results.read(folder).records["convergence"]]


def test_every_experiment_leaves_its_records(settings):
    settings = replace(settings, protocol=EVERYTHING, command="llpkit reproduce")
    done = reproduce(settings, EVERYTHING.experiments)
    assert {name: outcome.now for name, outcome in done.items()} == {
        "grid": 4,
        "convergence": 4,
        "bag-size": 4,
        "epoch-time": 4,
    }
    again = reproduce(settings, EVERYTHING.experiments)
    assert {name: (o.before, o.now) for name, o in again.items()} == dict.fromkeys(done, (4, 0))
    results = Results.read(settings.folder)
    chosen = {r.method: r.recipe["lr"] for r in results.records["convergence"]}
    best = {
        method: max(its, key=lambda r: r.final["held_out_log_likelihood"]).recipe["lr"]
        for method, its in results.by_method("grid").items()
    }
    assert chosen == best
    for r in results.records["grid"]:  # a grid does not see the test fold
        assert not any(name.startswith("test_") for name in r.history)
        assert r.examples == []
    for r in results.records["convergence"]:
        assert r.final["accuracy"] == r.history["test_accuracy"][-1]
        assert r.environment["command"] == "llpkit reproduce"
        assert len(r.examples) == (12 if r.fold == 0 else 0)
        for bag in r.examples:
            assert sum(bag["truth"]) == bag["count"]
            assert len(bag["rows"]) == len(bag["probability"]) == bag["size"]
    assert {r.selected["epoch"] for r in results.records["bag-size"]} == {1}
    timed = [r.method for r in plan(results, "epoch-time")]
    assert timed == ["mle", "dllp", "dllp", "mle"]  # each turn begins with another method
    for r in results.records["epoch-time"]:  # only the last epoch is tested
        assert [value is None for value in r.history["test_accuracy"]] == [True, True, False]


def test_progress_counts_runs_and_their_epochs(settings):
    seen = []
    with progress(lambda tasks: seen.append([(one.name, one.done) for one in tasks])):
        reproduce(settings, ["convergence"], methods=["mle"], folds=[1])
    assert [("convergence", 0), ("mle, fold 1: epoch", 2)] in seen
    assert seen[-1] == [("convergence", 1)]


def test_only_what_is_asked_for_runs_and_the_rest_is_left(settings):
    late = reproduce(replace(settings, deadline=time.time() - 1), ["convergence"])["convergence"]
    assert (late.now, late.left) == (0, 4)
    some = reproduce(settings, ["convergence"], methods=["mle"], folds=[1])["convergence"]
    assert (some.before, some.now) == (0, 1)
    rest = reproduce(settings, ["convergence"])["convergence"]
    assert (rest.before, rest.now) == (1, 3)


def test_records_are_read_once(settings, monkeypatch):
    read = []
    for name in ("read_packed", "read_run"):
        right = getattr(results_module, name)

        def counted(path, *more, right=right):
            read.append(path.name)
            return right(path, *more)

        monkeypatch.setattr(results_module, name, counted)
    reproduce(settings, ["convergence"], methods=["mle"])
    assert len(read) == len(set(read)) == 2  # the new runs, when they are packed
    read.clear()
    reproduce(settings, ["convergence"], methods=["mle"])
    assert read == ["convergence.parquet"]


def test_failures_are_kept_and_tried_again(settings, monkeypatch):
    right = run_module.fit
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "fit", lambda *_, **__: 1 / 0)
        failed = reproduce(settings, ["convergence"], methods=["mle"])["convergence"]
    assert len(failed.failed) == 2
    results = Results.read(settings.folder)
    assert {r.error for r in results.failures} == {"ZeroDivisionError: division by zero"}
    assert "Traceback" in results.failures[0].environment["traceback"]
    assert run_module.fit is right
    done = reproduce(settings, ["convergence"], methods=["mle"])["convergence"]
    assert (done.before, done.now, done.failed) == (0, 2, [])
    assert Results.read(settings.folder).failures == []


def test_a_candidate_that_diverges_is_no_failure(settings, monkeypatch):
    right = run_module.fit

    def fit(*arguments, recipe, **more):
        if recipe.lr == 0.01:
            raise Diverged("the loss is nan")
        return right(*arguments, recipe=recipe, **more)

    monkeypatch.setattr(run_module, "fit", fit)
    settings = replace(settings, protocol=EVERYTHING)
    done = reproduce(settings, ["grid"], methods=["mle"])["grid"]
    assert (done.now, done.failed, done.left) == (2, [], 0)
    assert reproduce(settings, ["grid"], methods=["mle"])["grid"].before == 2
    assert {
        r.recipe["lr"] for r in plan(Results.read(settings.folder), "convergence", ["mle"])
    } == {1e-3}


def test_other_hyper_parameters_than_those_of_records_are_refused(settings):
    grid = {"folds": 1, "epochs": 1, "lr": [0.01, 0.02], "weight_decay": []}
    settings = replace(settings, protocol=small(grid=grid))
    reproduce(settings, ["convergence"], methods=["mle"], folds=[0])  # before there is a grid
    with pytest.raises(LLPError, match=r"lr of mle is .* in convergence"):
        reproduce(settings, ["grid", "convergence"], methods=["mle"])


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"methods": ["mel"]}, "there is no method 'mel'; did you mean 'mle'"),
        ({"methods": ["mle", "mle"]}, "mle is named twice"),
        ({"backend": "lokey"}, "backend = 'lokey'; give loky, ray or dask"),
    ],
)
def test_what_cannot_run_is_an_error_before_any_run(settings, arguments, match):
    with pytest.raises(LLPError, match=match):
        reproduce(settings, ["convergence"], **arguments)
    assert not settings.folder.exists()


def test_a_protocol_that_cannot_run_is_an_error_before_any_run(settings):
    with pytest.raises(LLPError, match="'grid' is not an experiment"):
        reproduce(settings, ["grid"])
    with pytest.raises(LLPError, match="digits has 1 bags, too few for 2 folds"):
        reproduce(replace(settings, protocol=small(bag_size=1797)), ["convergence"])
    no_bags = replace(settings.protocol, official=True, bag_size=None)
    with pytest.raises(LLPError, match="protocol: official draws random bags; set bag_size"):
        reproduce(replace(settings, protocol=no_bags), ["convergence"])
    assert not settings.folder.exists()


def test_there_may_be_more_turns_than_folds(settings):
    settings = replace(settings, protocol=small(times={"turns": 3, "epochs": 3}))
    assert reproduce(settings, ["epoch-time"], methods=["mle"])["epoch-time"].now == 3
    assert [r.fold for r in Results.read(settings.folder).records["epoch-time"]] == [0, 1, 2]
    with pytest.raises(LLPError, match="folds of epoch-time = 3"):
        reproduce(settings, ["epoch-time"], folds=[3])


def test_epoch_times_are_of_one_machine(settings):
    settings = replace(settings, protocol=EVERYTHING)
    write(EVERYTHING, settings.folder / FILE)
    elsewhere = record("mle", 0, [0.5] * 3, EVERYTHING, "epoch-time")
    write_run(settings.folder, elsewhere)
    with pytest.raises(
        LLPError, match="has epoch times of a processor, threads: 1, but this machine is"
    ):
        reproduce(settings, ["epoch-time"])
    assert list(Results.read(settings.folder).by_method("epoch-time")) == ["mle"]


def test_a_folder_in_use_is_refused(settings):
    write(settings.protocol, settings.folder / FILE)
    code = (
        "from pathlib import Path; from llpkit.files import locked; import time\n"
        "with locked(Path('results')): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(LLPError, match="is in use by"):
            reproduce(settings, ["convergence"])
        holder.kill()
    with locked(settings.folder):
        pass


@pytest.mark.slow
def test_a_killed_call_goes_on_where_it_was(settings):
    """Killed with two workers under way: what was done is kept, and the workers end as well."""
    protocol = small(folds=6, methods={"mle": {}})
    write(protocol, Path("p.yaml"))
    arguments = ["reproduce", "p.yaml", "convergence", "--jobs", "2", "--out", "results", "-q"]
    command = [sys.executable, "-m", "llpkit", *arguments, "--device", "cpu"]
    with subprocess.Popen(command, start_new_session=True) as call:
        while not list(Path("results/runs").glob("*.json")) and call.poll() is None:
            time.sleep(0.01)
        call.send_signal(signal.SIGKILL)
    kept = len(Results.read(Path("results")).records["convergence"])
    assert kept >= 1
    deadline = time.time() + 20
    while _alive(call.pid) and time.time() < deadline:
        time.sleep(0.1)
    assert not _alive(call.pid)
    found = reproduce(replace(settings, protocol=protocol), ["convergence"])["convergence"]
    assert found.before >= kept
    assert found.before + found.now == 6
    other = replace(settings, protocol=protocol, folder=Path("other"))
    reproduce(other, ["convergence"])
    assert numbers(settings.folder) == numbers(other.folder)
    assert sorted(path.name for path in Path("results").iterdir()) == [
        "convergence.parquet",
        "protocol.yaml",
    ]


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_second_run_on_a_cpu_gives_the_same_digits(settings):
    reproduce(settings, ["convergence"], methods=["mle"], folds=[0])
    [made] = Results.read(settings.folder).records["convergence"]
    found = check(made, settings)
    assert (found.agrees, found.exact, found.where) == (True, True, "")
    assert "the same to the last digit" in str(found)
    history = {**made.history, "test_accuracy": [0.5, *made.history["test_accuracy"][1:]]}
    other = check(replace(made, history=history), settings)
    assert (other.agrees, other.where) == (False, "test_accuracy of epoch 1")
    for more in ({"extra": [1.0, 2.0]}, {"log_likelihood": [0.5]}):
        less = check(replace(made, history={**made.history, **more}), settings)
        assert not less.agrees
        assert less.where.startswith(next(iter(more)))
    gpu = {**made.environment, "device": "cuda"}
    assert check(replace(made, history=history, environment=gpu), settings).agrees
