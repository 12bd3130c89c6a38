"""Many runs: side by side, on clusters, killed and continued."""

import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments.conftest import small
from llpkit import LLPError
from llpkit.experiments import (
    Place,
    Store,
    _execute,
    _machine,
    carry_out,
    plan,
    planned,
    reproduce,
)

FEW = small(methods=["mle"])


def accuracies(store: Store) -> dict[str, float]:
    return {record["id"]: record["final"]["accuracy"] for record in store.read()}


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory) -> dict[str, float]:
    """What the runs find when nothing runs beside them."""
    store = Store([tmp_path_factory.mktemp("alone")])
    reproduce("convergence", FEW, store, Place(tuple(store.folders), device="cpu"))
    return accuracies(store)


def test_side_by_side_finds_the_same(store, place, one_by_one):
    done = reproduce("convergence", FEW, store, replace(place, jobs=2))
    assert (done.now, done.failed) == (2, [])
    assert accuracies(store) == one_by_one
    assert {record["jobs"] for record in store.read()} == {2}
    assert {record["hardware"]["threads"] for record in store.read()} == {1}


# In a process of their own: what a cluster leaves behind must not reach other tests.
CLUSTER = """
import sys
from pathlib import Path
from llpkit.experiments import Place, Settings, Store, reproduce

def main():
    backend, folder = sys.argv[1], Path(sys.argv[2])
    store = Store([folder])
    settings = Settings("digits", methods=["mle"], folds=[0, 1], epochs=2)
    place = Place((folder,), device="cpu", jobs=2)
    if backend == "ray":
        import ray
        ray.init(num_cpus=2, include_dashboard=False)
        done = reproduce("convergence", settings, store, place, backend="ray")
        assert ray.is_initialized(), "a cluster of the user's own was shut down"
    else:
        from distributed import Client, LocalCluster
        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
            with Client(cluster) as client:
                done = reproduce("convergence", settings, store, place, backend="dask")
                ran = sum(client.run(lambda: "llpkit.experiments" in __import__("sys").modules)
                    .values())
                assert ran, "no worker of the cluster was used"
    assert (done.now, done.failed) == (2, []), done

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("backend", ["ray", "dask"])
def test_a_cluster_finds_the_same(tmp_path, store, one_by_one, backend):
    pytest.importorskip("distributed" if backend == "dask" else backend)
    script = tmp_path / "cluster.py"
    script.write_text(CLUSTER)
    command = [sys.executable, str(script), backend, str(store.home)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert accuracies(store) == one_by_one


def test_a_cluster_that_is_not_installed_is_named(store, place, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(LLPError, match=r"ray is not installed; .*pip install 'llpkit\[ray\]'"):
        reproduce("convergence", small(), store, place, backend="ray")
    with pytest.raises(LLPError, match="backend = 'slurm'; known are loky, ray, dask"):
        reproduce("convergence", small(), store, place, backend="slurm")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_told_before_any_run(store, place):
    for device, message in (("cuda", "torch sees no CUDA device"), ("gpu", "give auto, or")):
        with pytest.raises(LLPError, match=message):
            reproduce("convergence", small(), store, replace(place, device=device))
    assert not store.home.exists()


def test_a_killed_grid_goes_on(store, place):
    def free(run):
        with store.claimed(run) as mine:
            return mine

    settings = small(methods=["supervised", "mle", "dllp"], folds=[0, 1], epochs=12)
    runs = plan("convergence", settings)
    command = [sys.executable, "-m", "llpkit.cli", "reproduce", "convergence"]
    command += ["--dataset", "digits", "--methods", "supervised,mle,dllp", "--folds", "2"]
    command += ["--epochs", "12", "--device", "cpu", "--jobs", "2", "--out", str(store.home)]
    process = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + 120
        while not any(map(store.done, runs)) and time.monotonic() < end:
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    while not all(map(free, runs)):  # its workers may take a moment to die
        assert time.monotonic() < end
        time.sleep(0.02)
    finished = {record["id"]: record for record in store.read()}  # whole, every one of them
    assert 0 < len(finished) < len(runs)

    done = reproduce("convergence", settings, store, place)
    assert (done.before, done.now) == (len(finished), len(runs) - len(finished))
    now = {record["id"]: record for record in store.read()}
    assert now.keys() == {run.id for run in runs}
    assert all(now[name] == record for name, record in finished.items())
    draft = store.home / "records" / "convergence" / ".0123-half-written.json"
    draft.write_text("{")
    assert len(list(store.read())) == len(runs)  # what a killed process was writing is passed over


class Told:
    """A display that remembers."""

    def __init__(self, while_waiting=lambda: None):
        self.calls, self.while_waiting = [], while_waiting

    def begin(self, runs, done):
        self.calls.append(("begin", len(runs), done))

    def update(self, running):
        self.calls += [("running", note["method"], note["epochs"]) for note in running]

    def ended(self, run, how, record):
        self.calls.append((how, run.method, record["id"] == run.id))

    def waits(self, what):
        self.calls.append(("waits", what))
        self.while_waiting()

    def end(self):
        self.calls.append("end")


ANOTHER = ("waits", "waits for runs that another call has under way: 1")


@pytest.mark.parametrize("jobs", [1, 2])
def test_two_calls_on_one_folder_share_the_work(store, place, jobs):
    [first, second] = plan("convergence", FEW)
    with ExitStack() as theirs:

        def finish():
            assert store.done(second)
            theirs.close()
            carry_out(first, place)

        assert theirs.enter_context(store.claimed(first))
        assert store.busy(first)
        told = Told(finish)
        done = reproduce("convergence", FEW, store, replace(place, jobs=jobs), display=told)
    assert (done.now, done.elsewhere, done.left) == (1, 1, 0)
    assert told.calls.count(ANOTHER) == 1
    assert not list(store.home.rglob("*.claim"))


def test_a_run_of_a_call_that_died_is_taken_over(store, place):
    with ExitStack() as theirs:
        theirs.enter_context(store.claimed(plan("convergence", FEW)[0]))
        told = Told(theirs.close)
        done = reproduce("convergence", FEW, store, place, display=told)
    assert (done.now, done.elsewhere, done.left) == (2, 0, 0)
    assert ANOTHER in told.calls


def test_another_call_is_waited_for_within_the_time_limit(store, place):
    [first, second] = plan("convergence", FEW)
    assert carry_out(second, place) == "done"
    with store.claimed(first):
        done = reproduce("convergence", FEW, store, replace(place, deadline=time.time() + 1))
    assert (done.before, done.now, done.elsewhere, done.left) == (1, 0, 0, 1)


def test_a_grid_goes_on_when_another_call_has_done_its_part(store, place):
    settings = small(methods=["mle"], folds=[0], quick=True)
    [first, _] = planned("grid", settings, store)
    with ExitStack() as theirs:

        def finish():
            theirs.close()
            carry_out(first, replace(place, quick=True))

        theirs.enter_context(store.claimed(first))
        done = reproduce("grid", settings, store, place, display=Told(finish))
    assert (done.now, done.elsewhere, done.left) == (1, 1, 0)
    reproduce("convergence", settings, store, place)
    assert {record["chosen_by"] for record in store.read("convergence")} == {"grid"}


def test_workers_end_with_the_call_that_started_them(store, place, monkeypatch):
    runs = plan("convergence", small(methods=["mle"], epochs=20_000))
    command = [sys.executable, "-m", "llpkit.cli", "reproduce", "convergence"]
    command += ["--dataset", "digits", "--methods", "mle", "--folds", "2", "--epochs", "20000"]
    command += ["--device", "cpu", "--jobs", "2", "--out", str(store.home)]
    monkeypatch.setenv("TMPDIR", tempfile.gettempdir())
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    try:
        while not all(map(store.busy, runs)) and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    until = time.monotonic() + 60
    while any(map(store.busy, runs)):
        assert time.monotonic() < until, "the workers are still at it"
        time.sleep(0.05)
    assert not any(map(store.done, runs))
    left = list(Path(tempfile.gettempdir()).glob("llpkit-status-*"))
    assert len(left) == 1
    reproduce("convergence", small(methods=["mle"], folds=[0]), store, place)
    assert not list(Path(tempfile.gettempdir()).glob("llpkit-status-*"))


@pytest.mark.parametrize(("experiment", "alone"), [("epoch-time", False), ("convergence", True)])
def test_nothing_runs_beside_timed_runs(store, place, experiment, alone):
    settings = small(methods=["mle"], folds=[0], epochs=3)
    with ExitStack() as theirs:
        assert theirs.enter_context(_machine.turn(alone, math.inf, print))
        late = replace(place, deadline=time.time() + 0.5)
        waited = Told()
        done = reproduce(experiment, settings, store, late, display=waited)
        assert (done.now, done.left) == (0, 1)
        [(kind, what)] = waited.calls
        assert kind == "waits"
        assert ("times are taken alone" in what) == (not alone)
        told = Told(theirs.close)
        done = reproduce(experiment, settings, store, place, display=told)
    assert (done.now, done.left) == (1, 0)
    assert told.calls[0] == (kind, what)


def test_ordinary_runs_go_on_beside_each_other(store, place):
    with _machine.turn(False, math.inf, print):
        assert reproduce("convergence", FEW, store, replace(place, deadline=time.time() + 60)).now


def test_times_are_taken_alone_and_in_turns(store, place):
    settings = small(methods=["supervised", "mle"], folds=[0, 1], epochs=3, held_out=0.2)
    reproduce("epoch-time", settings, store, replace(place, jobs=4))
    records = sorted(store.read(), key=lambda r: Path(path_of(store, r)).stat().st_mtime_ns)
    order = [(r["run"]["method"], r["run"]["fold"]) for r in records]
    assert order == [("supervised", 0), ("mle", 0), ("mle", 1), ("supervised", 1)]
    for record in records:
        assert record["jobs"] == 1
        assert record["run"]["held_out"] is None
        assert record["history"]["test_accuracy"][:-1] == [None, None]  # nothing in between


def path_of(store: Store, record) -> Path:
    return store.home / "records" / record["run"]["experiment"] / f"{record['id']}.json"


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_display_is_told_of_every_run(store, place, jobs, monkeypatch):
    monkeypatch.setattr(_execute, "_POLL", 0.01)
    told = Told()
    settings = small(methods=["mle", "dllp"], folds=[0], epochs=30)
    reproduce("convergence", settings, store, replace(place, jobs=jobs), display=told)
    assert told.calls[0] == ("begin", 2, 0)
    assert told.calls[-1] == "end"
    assert {("done", "mle", True), ("done", "dllp", True)} <= set(told.calls)
    assert ("running", "mle", 30) in told.calls
    again = Told()
    hopeless = small(methods=["supervised"], folds=[0], lr=1e30)
    for _ in range(2):  # an old error is not taken for the new one
        again.calls.clear()
        reproduce("convergence", hopeless, store, place, display=again)
        assert again.calls.count(("failed", "supervised", True)) == 1
