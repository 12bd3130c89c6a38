"""Many runs: side by side, on clusters, killed and continued."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments.conftest import small
from llpkit import LLPError
from llpkit.experiments import Place, Store, _execute, plan, reproduce

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
    for device, message in (("cuda", "torch sees no CUDA device"), ("gpu", "give auto, cpu or")):
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


def test_two_calls_on_one_folder_share_the_work(store, place):
    [first, second] = plan("convergence", small(methods=["mle"]))
    with store.claimed(first) as mine, store.claimed(first) as theirs:
        assert (mine, theirs) == (True, False)
        done = reproduce("convergence", small(methods=["mle"]), store, place)
        assert (done.now, done.left) == (1, 1)
        assert not store.done(first)
        assert store.done(second)
    assert reproduce("convergence", small(methods=["mle"]), store, place).now == 1
    assert not list(store.home.rglob("*.claim"))


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


class Told:
    """A display that remembers."""

    def __init__(self):
        self.calls = []

    def begin(self, runs, done):
        self.calls.append(("begin", len(runs), done))

    def update(self, running):
        self.calls += [("running", note["method"], note["epochs"]) for note in running]

    def ended(self, run, how, record):
        self.calls.append((how, run.method, record["id"] == run.id))

    def end(self):
        self.calls.append("end")


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
