"""The Triton backend for CUDA tensors: binary bags with exact counts.

Each kernel scans all bags and solves those of its size: up to 12 instances, one lane per bag; up
to 32, four lanes per bag (both in :mod:`.triton_small`); and larger ones, one program per bag
(:mod:`.triton_large`). If the mean size is a few hundred, :mod:`.triton_medium` comes before that
one, with tiles of several bags of up to the next power of two. The sizes are known only on the
device, and choosing by size on the host would have to wait for it; only the mean is free. So the
first kernel, for the usual bags, has one program for every few bags; the others divide all bags
among as many programs as the device runs at once, which scan long ranges for bags of their size and
have next to nothing to do if there are none.

Logits are read in place, by offsets; nothing is padded or sorted, no other memory is used, and
nothing synchronises, so that a call can be part of a CUDA graph. Float32 logits are processed in
float32 where that is accurate (sums in small bags, whose terms are all positive) and in float64
where it is not (products over large bags).
"""
# mypy: allow-untyped-calls

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from llpkit.likelihood.kernels.triton_large import large
from llpkit.likelihood.kernels.triton_medium import medium
from llpkit.likelihood.kernels.triton_small import small

INTERPRETED = not isinstance(large, triton.runtime.JITFunction)
"""Whether the kernels run on the CPU, in Triton's interpreter (``TRITON_INTERPRET=1``)."""

TINY, SMALL = 12, 32
"""Largest bags of the first and of the second kernel."""

FEW = 4
"""The first kernel uses only this many instances per lane if no bag of a block is larger."""

LANES = 1024 if INTERPRETED else 128
"""Lanes per program for small bags; the interpreter's cost is per operation, not per lane."""

FUSED = {"enable_fp_fusion": True}  # some versions require it explicitly

MEDIUM = (512, 1024)
"""Powers of two next to the mean size at which the third kernel is used: it is 1.4 to 2.2 times as
fast as the last one there, and slower for smaller bags, as measured on one NVIDIA H200."""

TILE = 4096 if INTERPRETED else 1024
"""Instances of a tile of the third kernel: eight per lane, with 128 lanes."""

LONG = 1024
"""Mean bag size from which programs for large bags use four warps."""


def evaluate(z: Tensor, offsets: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability ``(B,)`` and posterior ``(N,)``, in the dtype of the logits.

    A NaN logit makes its whole bag NaN; an impossible bag has ``-inf`` and its prior.

    Args:
        z: float32 or float64 ``(N,)``.
        offsets: int64 ``(B + 1,)``, not checked.
        counts: int64 ``(B,)``.
    """
    num_bags = len(offsets) - 1
    z = z.detach().contiguous()
    log_p, phi = z.new_empty(num_bags), torch.empty_like(z)
    if num_bags == 0:
        return log_p, phi
    arrays = (z, counts.contiguous(), offsets.contiguous(), log_p, phi, num_bags)
    programs = _programs(z.device)
    with torch.cuda.device_of(z):
        small[(triton.cdiv(num_bags, LANES),)](
            *arrays,
            LANES,
            LEAST=0,
            MOST=TINY,
            OWN=TINY,
            LANES=LANES,
            SCAN=LANES,
            FEW=FEW,
            num_warps=4,
            **FUSED,
        )
        if len(z) > TINY:
            span = LANES // 4 * triton.cdiv(num_bags, programs * LANES // 4)
            small[(triton.cdiv(num_bags, span),)](
                *arrays,
                span,
                LEAST=TINY + 1,
                MOST=SMALL,
                OWN=8,
                LANES=LANES,
                SCAN=512,
                FEW=0,
                num_warps=4,
                **FUSED,
            )
        least, length = SMALL + 1, triton.next_power_of_2(len(z) // num_bags)
        if MEDIUM[0] <= length <= MEDIUM[1]:
            bags = max(1, TILE // length)
            span = bags * triton.cdiv(num_bags, programs * bags)
            medium[(triton.cdiv(num_bags, span),)](
                *arrays,
                span,
                LEAST=least,
                LENGTH=length,
                BAGS=bags,
                HALVES=INTERPRETED,
                num_warps=4,
                **FUSED,
            )
            least = length + 1
        if len(z) >= least:
            span = triton.cdiv(num_bags, programs)
            warps = 4 if len(z) >= LONG * num_bags else 1
            rows = 1024 if INTERPRETED else 32 * warps
            large[(triton.cdiv(num_bags, span),)](
                *arrays,
                span,
                LEAST=least,
                ROWS=rows,
                SCAN=128,
                num_warps=warps,
                **FUSED,
            )
    return log_p, phi


def pull_back(grad: Tensor, z: Tensor, phi: Tensor, offsets: Tensor) -> Tensor:
    """Gradient ``(N,)`` in the logits: each bag's gradient times posterior minus prior."""
    out = torch.empty_like(z, memory_format=torch.contiguous_format)
    if len(z):
        num_bags = len(offsets) - 1
        arrays = (grad.contiguous(), z.contiguous(), phi.contiguous(), offsets.contiguous(), out)
        with torch.cuda.device_of(z):
            _pull_back[(triton.cdiv(len(z), 512),)](
                *arrays, len(z), num_bags, num_bags.bit_length(), BLOCK=512, **FUSED
            )
    return out


@cache
def _programs(device: torch.device) -> int:
    """Number of programs that share the bags: enough to fill the device."""
    if device.type != "cuda":
        return 4
    return 16 * int(torch.cuda.get_device_properties(device).multi_processor_count)


@triton.jit(do_not_specialize=["num_instances", "num_bags", "steps"])  # type: ignore[untyped-decorator]
def _pull_back(  # type: ignore[no-untyped-def]
    grad_ptr,
    z_ptr,
    phi_ptr,
    offsets_ptr,
    out_ptr,
    num_instances,
    num_bags,
    steps,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = i < num_instances
    # Bisection: the bag of an instance is the last one that begins no later.
    low = tl.zeros((BLOCK,), tl.int64)
    high = low + num_bags - 1
    for _ in range(steps):
        middle = (low + high + 1) // 2
        begun = tl.load(offsets_ptr + middle, mask=real, other=0) <= i
        low = tl.where(begun, middle, low)
        high = tl.where(begun, high, middle - 1)
    z = tl.load(z_ptr + i, mask=real, other=0.0)
    w = tl.exp(-tl.abs(z))
    prior = tl.where(z > 0, 1.0, w) / (1.0 + w)
    gap = tl.load(phi_ptr + i, mask=real, other=0.0) - prior
    tl.store(out_ptr + i, tl.load(grad_ptr + low, mask=real, other=0.0) * gap, mask=real)
