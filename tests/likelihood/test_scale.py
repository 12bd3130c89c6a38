"""A bag of 100,000 instances: time that grows little faster than the bag, well under a gigabyte."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import json, sys, time
import torch
from llpkit import likelihood

def peak():  # of this process alone, which ru_maxrss is not: it begins at its parent's
    with open("/proc/self/status") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

n, backend = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)  # threads that wait for each other cost time as well
z = torch.randn(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
small = torch.tensor([0, 200])
likelihood.log_prob_and_posterior(z[:200], [50], small, backend=backend)  # compiles
before = peak()

def seconds(n):  # of this process on the CPU, best of three: other processes do not count
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        likelihood.posterior(z[:n], [n // 2], torch.tensor([0, n]), backend=backend)
        best = min(best, time.process_time() - start)
    return best

offsets = torch.tensor([0, n])
log_prob, phi = likelihood.log_prob_and_posterior(z, [n // 2], offsets, backend=backend)
extra = peak() - before
print(json.dumps({
    "slowdown": seconds(n) / seconds(n // 4), "extra_bytes": extra, "sum": phi.sum().item()
}))
"""


def measure(n, backend):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(n), backend],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        env={**os.environ, "NUMBA_NUM_THREADS": "1"},
    )
    return json.loads(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_bag_of_100_000_instances(backend):
    measured = measure(100_000, backend)
    assert measured["slowdown"] < 10  # four times the instances; a quadratic cost would take 16
    assert measured["extra_bytes"] < 1e9
    assert abs(measured["sum"] - 50_000) < 1e-6


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_grows_no_faster_than_the_bag(backend):
    small, large = measure(200_000, backend), measure(800_000, backend)
    assert large["extra_bytes"] < 1e9
    assert large["extra_bytes"] < 6 * max(small["extra_bytes"], 20e6)
