"""Compile the Triton kernels for a GPU, which needs none: Triton's interpreter accepts more."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

COMPILE = """
import contextlib, torch
from triton.backends.compiler import GPUTarget
from triton.runtime import JITFunction, driver

class Hopper:
    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

driver.set_active(Hopper())
torch.cuda.device_of = lambda tensor: contextlib.nullcontext()
launch, compiled = JITFunction.run, set()

def compile_only(kernel, *args, grid, warmup, **options):
    program = launch(kernel, *args, grid=grid, warmup=True, **options)
    assert program.asm["cubin"]
    compiled.add(kernel.__name__)

JITFunction.run = compile_only
"""

BINARY = """
from llpkit.likelihood.kernels import triton_binary

for ends in ([0, 1, 14, 514, 1614], [0, 2000, 4000]):  # a bag of each kernel, and only large ones
    z, offsets = torch.zeros(ends[-1], dtype=torch.{dtype}), torch.tensor(ends)
    log_p, phi = triton_binary.evaluate(z, offsets, torch.ones(len(ends) - 1, dtype=torch.int64))
    triton_binary.pull_back(log_p, z, phi, offsets)
assert compiled == {{"small", "medium", "large", "_pull_back"}}, compiled
"""

PRUNED = """
from llpkit.likelihood.kernels import triton_pruned

log_q, counts = torch.full((3, 3), -1.1), torch.ones(1, 3, dtype=torch.int64)
triton_pruned.refine(
    log_q, counts, torch.tensor([0, 3]), torch.ones(1), torch.zeros(1), log_q.exp()
)
assert compiled == {"_refine"}, compiled
"""

SADDLEPOINT = """
from llpkit.likelihood.kernels import triton_saddlepoint

counts = torch.ones(1, 3, dtype=torch.int64)
triton_saddlepoint.evaluate(torch.zeros(3, 3), torch.tensor([0, 3]), counts)
assert compiled == {"_bag", "_refine"}, compiled
"""

WRONG = """
import triton, triton.language as tl

WIDTH = 4  # a global that is no tl.constexpr: fine in the interpreter, refused by the compiler

@triton.jit
def kernel(out_ptr):
    tl.store(out_ptr, WIDTH)

kernel[(1,)](torch.zeros(1))
"""


def compile_for_gpu(tmp_path, code):
    script = tmp_path / "kernels.py"  # Triton reads the source of a kernel from its file
    script.write_text(COMPILE + code)
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path / "cache")
    command = [sys.executable, script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=800)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(BINARY.format(dtype="float32"), id="float32", marks=pytest.mark.slow),
        pytest.param(BINARY.format(dtype="float64"), id="float64", marks=pytest.mark.slow),
        pytest.param(PRUNED, id="pruned"),
        pytest.param(SADDLEPOINT, id="saddlepoint", marks=pytest.mark.slow),
    ],
)
def test_kernels_compile(tmp_path, code):
    result = compile_for_gpu(tmp_path, code)
    assert result.returncode == 0, result.stderr[-3000:]


def test_the_compiler_refuses_what_the_interpreter_accepts(tmp_path):
    result = compile_for_gpu(tmp_path, WRONG)
    assert "Cannot access global variable WIDTH" in result.stderr
