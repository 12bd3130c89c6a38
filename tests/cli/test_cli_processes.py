"""Several processes from the command line: started by llpkit, by torchrun, and killed."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

pytestmark = pytest.mark.slow

LLPKIT = [sys.executable, "-m", "llpkit"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    x = torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
    bag = torch.arange(400) // 5
    count = torch.bincount(bag, (x.sum(1) > 0).double()).long()[bag]
    rows = [
        f"{b},{n},{u},{v}"
        for b, n, (u, v) in zip(bag.tolist(), count.tolist(), x.tolist(), strict=True)
    ]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["bag,n,u,v", *rows]) + "\n")
    return path


def arguments(table: Path, out: Path, epochs: int, *more: str) -> list[str]:
    usual = ["--bag", "bag", "--count", "n", "--precision", "64-true", "--method", "mle"]
    return ["fit", str(table), *usual, "--epochs", str(epochs), "--out", str(out), *more]


def run(command: list[str], **variables: str) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | variables
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def assert_same(one: Path, other: Path) -> None:
    before, after = (load_file(run / "weights.safetensors") for run in (one, other))
    for name, value in before.items():
        assert float((after[name] - value).norm() / value.norm().clamp(min=1e-12)) < 1e-6, name


def test_two_processes_and_torchrun_write_the_run_of_one(table, tmp_path):
    run([*LLPKIT, *arguments(table, tmp_path / "one", 3)])
    shown = run([*LLPKIT, *arguments(table, tmp_path / "two", 3, "--devices", "2")])
    assert "on 2 processes" in shown
    assert_same(tmp_path / "one", tmp_path / "two")
    elastic = [*TORCHRUN, "--nproc-per-node", "2", "-m", "llpkit"]
    run([*elastic, *arguments(table, tmp_path / "elastic", 3)])
    assert_same(tmp_path / "one", tmp_path / "elastic")
    # Repeating the command is not an error, and nobody waits for a process that has nothing to do.
    run([*elastic, *arguments(table, tmp_path / "elastic", 3, "--resume")])


SCRIPT = """
import os, sys, torch, llpkit
rank, what = int(os.environ["RANK"]), sys.argv[1]
x = torch.randn(60, 2, generator=torch.Generator().manual_seed(rank * (what == "inputs")))
bags = llpkit.random_bags((x[:, 0] > 0).long(), 3, generator=rank * (what == "bags"))
torch.manual_seed(rank)
network = torch.nn.Linear(2, 1) if what == "initial weights" else "linear"
strategy = "fsdp" if what == "initial weights" else "ddp"
llpkit.fit(network, bags, x, "mle", epochs=1, strategy=strategy, seed=rank * (what == "seed"))
"""


@pytest.mark.parametrize("what", ["inputs", "bags", "seed", "initial weights"])
def test_processes_that_torchrun_starts_must_agree(tmp_path, what):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [*TORCHRUN, "--nproc-per-node", "2", str(tmp_path / "script.py"), what]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert re.search(f"process 1 has different .*{what}.* from process 0", done.stderr)


@pytest.mark.parametrize("torchrun", [True, False])
def test_two_nodes_on_this_machine(table, tmp_path, torchrun):
    run([*LLPKIT, *arguments(table, tmp_path / "one", 2)])
    more = [] if torchrun else ["--devices", "1", "--nodes", "2"]
    rest = arguments(table, tmp_path / "nodes", 2, *more)
    port, nodes = str(29700 + os.getpid() % 200 + torchrun), []
    for rank in ("0", "1"):
        place = {"NODE_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [*LLPKIT, *rest]
        if torchrun:
            place = {}
            where = ["--master-addr", "127.0.0.1", "--master-port", port]
            elastic = ["--nnodes", "2", "--node-rank", rank, "--nproc-per-node", "1", *where]
            command = [*TORCHRUN, *elastic, "-m", "llpkit", *rest]
        nodes.append(subprocess.Popen(command, env=os.environ | place, stderr=subprocess.DEVNULL))
    assert [node.wait(300) for node in nodes] == [0, 0]
    assert_same(tmp_path / "one", tmp_path / "nodes")


def test_a_killed_process_ends_the_command_and_resume_goes_on_with_three(table, tmp_path):
    out, enough = tmp_path / "run", 60
    run([*LLPKIT, *arguments(table, tmp_path / "one", enough)])
    command = [*LLPKIT, *arguments(table, out, enough, "--devices", "2")]
    before = {*psutil.Process().children(recursive=True)}  # of other tests
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    checkpoint = tmp_path / ".run.llpkit" / "work" / "checkpoint.pt"
    while process.poll() is None and not checkpoint.exists():
        time.sleep(0.02)
    _kill_a_training_process(process.pid)
    _, shown = process.communicate(timeout=120)
    assert process.returncode == 2, shown
    assert "was killed by SIGKILL" in shown
    assert "--resume" in shown
    assert {*psutil.Process().children(recursive=True)} <= before
    run([*LLPKIT, "fit", "--resume", "--out", str(out), "--devices", "3"])
    assert_same(tmp_path / "one", out)


def _kill_a_training_process(parent: int) -> None:
    """Of the server's children, the last one."""
    for child in psutil.Process(parent).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if below := child.children():
                os.kill(below[-1].pid, signal.SIGKILL)
                return
    raise AssertionError("no training process")
