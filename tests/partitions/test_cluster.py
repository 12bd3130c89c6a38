"""Two real worker processes, one of which is killed."""

import contextlib
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _path(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    # Workers start as new processes and import the benchmark by its name.
    monkeypatch.setenv("PYTHONPATH", f"{BENCHMARKS}:{':'.join(filter(None, sys.path))}")


@pytest.mark.slow
def test_a_killed_worker_does_not_change_the_model(tmp_path):
    import large_tables

    found = large_tables.kill(24_000, tmp_path, trees=60)
    assert found["killed"]
    assert found["m_steps_begun_again"] >= 1
    assert found["same_bytes"]
    assert found["same_scale"]


@pytest.mark.slow
def test_benchmark(tmp_path):
    import large_tables

    out = tmp_path / "out"
    options = ["--data", str(tmp_path), "--out", str(out), "--trees", "5", "--memory"]
    large_tables.main([*options, "--rows", "20000", "40000", "--predict", "600000", "--report"])
    fits, predicted = (large_tables.records(out, kind) for kind in ("boosting", "predict"))
    assert [fit["rows"] for fit in fits] == [20_000, 40_000]
    assert [one["written"] for one in predicted] == [600_000]
    assert (out / "large_tables.png").exists()


@pytest.mark.slow
def test_a_worker_that_dask_has_paused_is_named(tmp_path):
    from xgboost import XGBClassifier

    from large import write
    from llpkit import LLPError, distributed
    from llpkit.distributed.cluster import connected
    from llpkit.distributed.ranks import Workers
    from llpkit.estimators import LLPClassifier

    def fill(dask_worker):  # a local function: workers cannot import this file
        dask_worker.memory_manager.memory_pause_fraction = 1e-6

    write(tmp_path, 2, rows=1000)
    with connected(workers=1, memory_limit="2GB") as client:

        def log(event):
            if event["step"] == "start":
                client.run(fill)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Workers.__init__, "__defaults__", (5, 1.0))
            with pytest.raises(LLPError, match=r"of 2\.00 GB in use, and Dask has paused it"):
                distributed.fit(
                    LLPClassifier(XGBClassifier(n_estimators=3, max_depth=2), max_iter=1),
                    tmp_path,
                    bag="bag",
                    count="n",
                    log=log,
                )


@pytest.mark.slow
def test_a_scheduler_that_dies_is_told(tmp_path):
    import dask
    from distributed import Client
    from xgboost import XGBClassifier

    from large import write
    from llpkit import LLPError, distributed
    from llpkit.estimators import LLPClassifier

    write(tmp_path, 2, rows=1000)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    commands = [
        ["scheduler", "--port", port, "--no-dashboard"],
        ["worker", f"tcp://127.0.0.1:{port}", "--no-dashboard", "--no-nanny"],
    ]
    with contextlib.ExitStack() as stack:
        scheduler, _ = (
            _ended(
                stack,
                subprocess.Popen(
                    [sys.executable, "-m", "dask", *command], stderr=subprocess.DEVNULL
                ),
            )
            for command in commands
        )
        client = stack.enter_context(Client(f"tcp://127.0.0.1:{port}", timeout=120))
        client.wait_for_workers(1, timeout=120)
        stack.enter_context(dask.config.set({"distributed.comm.timeouts.connect": "2s"}))

        def log(event):
            if event["step"] == "M":
                scheduler.kill()

        with pytest.raises(LLPError, match="no longer answers, so the fit ended"):
            distributed.fit(
                LLPClassifier(XGBClassifier(n_estimators=3, max_depth=2), max_iter=2, tol=1e-9),
                tmp_path,
                bag="bag",
                count="n",
                log=log,
            )


def _ended(stack, process):
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


@pytest.mark.parametrize("there", [False, True], ids=["nobody", "another server"])
def test_no_scheduler_at_the_address(monkeypatch, there):
    from llpkit import LLPError
    from llpkit.distributed.cluster import connected, current

    monkeypatch.setattr("llpkit.distributed.cluster._TIMEOUT", 1.0)

    def answer(server):
        with contextlib.suppress(OSError):
            while True:
                with server.accept()[0] as client:
                    client.sendall(b"HTTP/1.1 400 Bad Request" + bytes(40))

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        if there:
            threading.Thread(target=answer, args=(server,), daemon=True).start()
        else:
            server.close()
        with (
            pytest.raises(LLPError, match=f"no Dask scheduler answers at {address}"),
            connected(address),
        ):
            pass
    assert current() is None  # else the next computation would wait for this scheduler
