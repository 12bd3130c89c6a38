"""A cache of compiled kernels that is damaged costs time and nothing else."""

import importlib.util
import shutil
from pathlib import Path

import pytest

KERNEL = """
from llpkit.likelihood.kernels.numba_binary import jit

@jit()
def double(x):
    return 2 * x
"""


@pytest.fixture
def source(tmp_path):
    """A small kernel whose compiled form is kept in a folder beside it."""
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL)
    return path


def load(source: Path):
    """The kernel as a new process would see it: nothing is compiled in memory."""
    spec = importlib.util.spec_from_file_location("kernel", source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.double


def is_compiled(kernel) -> bool:
    """Compute with a kernel; returns whether it had to be compiled for that."""
    assert kernel(21) == 42
    return not kernel.stats.cache_hits


def flipped(content: bytes) -> bytes:
    changed = bytearray(content)
    for place in range(len(content) // 4, len(content), len(content) // 4):
        changed[place] ^= 16
    return bytes(changed)


@pytest.mark.parametrize("damage", [flipped, lambda c: c[: len(c) // 2], lambda _: b""])
def test_a_damaged_file_is_compiled_again(source, damage):
    assert is_compiled(load(source))
    assert not is_compiled(load(source))
    (file,) = source.parent.rglob("*.nbc")
    file.write_bytes(damage(file.read_bytes()))
    assert is_compiled(load(source))
    assert not is_compiled(load(source))


def test_a_cache_that_cannot_be_written(source):
    kernel = load(source)
    cache = source.parent / "__pycache__"
    shutil.rmtree(cache)
    cache.write_text("")  # a file where the folder was when the kernel was declared
    assert is_compiled(kernel)
    assert is_compiled(load(source))


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
