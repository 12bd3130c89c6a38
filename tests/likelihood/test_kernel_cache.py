"""A cache of compiled kernels that is damaged costs time and nothing else."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")

COMPUTE = """
import os, pathlib, shutil, sys, torch
import llpkit.likelihood.kernels.numba_binary
if len(sys.argv) > 1:  # what was a folder when the kernels were declared is one no longer
    folder = pathlib.Path(os.environ["NUMBA_CACHE_DIR"])
    shutil.rmtree(folder)
    folder.write_text("")
z = torch.tensor([0.5, -1.0, 2.0, 0.1, 0.3], dtype=torch.float64)
offsets, counts = torch.tensor([0, 3, 5]), torch.tensor([2, 1])
from llpkit.likelihood import Evidence, log_prob
print(log_prob(z, Evidence.exact(counts), offsets, backend="numba").tolist())
"""


def compute(cache: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", COMPUTE, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A cache, and what is computed with it."""
    cache = tmp_path_factory.mktemp("kernels")
    return cache, compute(cache)


def flipped(content: bytes) -> bytes:
    changed = bytearray(content)
    for place in range(len(content) // 4, len(content), len(content) // 4):
        changed[place] ^= 16
    return bytes(changed)


def test_a_damaged_cache(kept, tmp_path):
    whole, expected = kept
    for number, damage in enumerate((flipped, lambda content: content[: len(content) // 2])):
        cache = tmp_path / str(number)
        shutil.copytree(whole, cache)
        files = [path for path in cache.rglob("*") if path.suffix in (".nbi", ".nbc")]
        assert files
        damaged = {path: damage(path.read_bytes()) for path in files}
        for path, content in damaged.items():
            path.write_bytes(content)
        assert compute(cache) == expected
        assert any(path.read_bytes() != damaged[path] for path in files)  # compiled and kept


def test_a_cache_that_cannot_be_written(kept, tmp_path):
    assert compute(tmp_path / "cache", "gone") == kept[1]


def test_a_change_in_another_file_makes_kernels_old(tmp_path):
    """Constants of other files are compiled into a kernel."""
    from llpkit.likelihood.kernels import cache
    from llpkit.likelihood.kernels.numba_classes import run_classes

    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "one.py").write_text("from limits import MOST")
    found = []
    for text in ("MOST = 1", "MOST = 2", "MOST = 1"):
        (tmp_path / "limits.py").write_text(text)
        cache.sources.cache_clear()
        found.append(cache.sources(tmp_path))
    assert found[0] == found[2] != found[1]
    package = cache.sources(Path(cache.__file__).parents[1])
    assert package in run_classes._cache._cache_file.made[1]
