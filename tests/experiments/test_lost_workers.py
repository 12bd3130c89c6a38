"""A worker of a cluster that dies costs its run alone, which another worker performs."""

from dataclasses import replace
from pathlib import Path

import dask
import distributed  # noqa: F401  (its defaults have to be there before they are changed)
import pytest

from experiments.conftest import small
from llpkit import plugins
from llpkit.errors import LLPError
from llpkit.experiments import reproduce

PLUGIN = """
import os, signal
from pathlib import Path
from llpkit.methods import METHODS
from llpkit.methods.mle import MLE

class Dies(MLE):
    key, summary = "dies", "kills its process at the first call"

    def prepare(self, task, network):
        super().prepare(task, network)
        left = sorted(Path({folder!r}).glob("kill-*"))
        if left:
            left[0].unlink()
            os.kill(os.getpid(), signal.SIGKILL)

if "dies" not in METHODS:
    METHODS.add("dies", Dies)
"""


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """Tests end however busy the machine is: Dask waits for workers, Ray's are not niced."""
    monkeypatch.setenv("RAY_worker_niceness", "0")
    with dask.config.set({"distributed.comm.timeouts.connect": "600s"}):
        yield


@pytest.fixture
def deadly(tmp_path: Path, settings, registries):  # noqa: ARG001
    """Settings with a method that kills its process as often as there are files."""
    folder = tmp_path / "kills"
    folder.mkdir()
    (tmp_path / "plugin.py").write_text(PLUGIN.format(folder=str(folder)))
    plugins.load([str(tmp_path / "plugin.py")])
    protocol = small(methods={"mle": {}, "dies": {}})

    def prepare(times: int):
        for i in range(times):
            (folder / f"kill-{i}").touch()
        return replace(settings, protocol=protocol, jobs=2)

    return prepare


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_its_run_is_performed_again(deadly, backend, tmp_path):
    done = reproduce(deadly(times=1), ["convergence"], backend=backend)["convergence"]
    assert (done.now, done.left, list(done.failed)) == (4, 0, [])
    assert not list((tmp_path / "kills").iterdir())  # it did die


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_a_run_that_kills_every_worker_is_given_up_alone(deadly, backend, monkeypatch):
    # Every retry starts a worker, which takes long on a busy machine.
    monkeypatch.setattr("llpkit.experiments.backends.RETRIES", 1)
    with pytest.raises(LLPError, match=r"2 runs had no result.*dies, fold"):
        reproduce(deadly(times=99), ["convergence"], backend=backend)
    again = reproduce(deadly(times=0), ["convergence"], methods=["mle"], backend="loky")
    assert again["convergence"].before == 2
