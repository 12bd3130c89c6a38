"""A bag of 100,000 instances: seconds, and well under a gigabyte."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, resource, sys, time
import torch
from llpkit import likelihood

n, path = int(sys.argv[1]), sys.argv[2]
z = torch.randn(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
small = torch.tensor([0, 200])
likelihood.log_prob_and_posterior(z[:200], [50], small, path=path)  # compiles
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
log_prob, phi = likelihood.log_prob_and_posterior(z, [n // 2], torch.tensor([0, n]), path=path)
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({
    "seconds": seconds, "extra_bytes": (peak - before) * 1024, "sum": phi.sum().item()
}))
"""


def measure(n, path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(n), path],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return json.loads(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux only")
def test_a_bag_of_100_000_instances():
    measured = measure(100_000, "auto")
    assert measured["seconds"] < 5
    assert measured["extra_bytes"] < 1e9
    assert abs(measured["sum"] - 50_000) < 1e-6


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux only")
def test_memory_of_each_path_is_bounded(path):
    measured = measure(100_000, path)
    assert measured["extra_bytes"] < 1e9
    assert abs(measured["sum"] - 50_000) < 1e-6
