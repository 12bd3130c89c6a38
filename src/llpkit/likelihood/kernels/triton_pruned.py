"""The pruned recursion in Triton, for CUDA tensors: see :mod:`llpkit.likelihood.pruned`.

Every program takes one bag after another, in float32. The states of all positions are kept in
global memory. A new state is compared with all that its position has already, which needs neither
sorting nor atomic operations: the states after one more of the same class differ from each other.
"""
# mypy: ignore-errors
# (the functions are in Triton's language, which only looks like Python)

import torch
import triton
import triton.language as tl
from torch import Tensor

from llpkit.likelihood import pruned
from llpkit.ragged import bag_index

EPSILON = tl.constexpr(pruned.EPSILON)
ROUNDING = tl.constexpr(pruned.ROUNDING)
STATES = tl.constexpr(pruned.STATES)
FEW = tl.constexpr(pruned.FEW)
_PROGRAMS = 256
_MEMORY = 2**27


def refine(
    log_q: Tensor, counts: Tensor, offsets: Tensor, gap: Tensor, log_p: Tensor, phi: Tensor
) -> None:
    """Improve the saddlepoint's log-probability ``(B,)`` and posterior ``(N, K)`` in place.

    Args:
        log_q: Logarithms of the tilted probabilities ``(N, K)``.
        counts: int64 ``(B, K)``.
        offsets: int64 ``(B + 1,)``.
        gap: By how much the tilted bound exceeds ``log_p``, ``(B,)``; infinite for a bag that is to
            stay as it is.
        log_p: The saddlepoint's log-probability ``(B,)``.
        phi: The saddlepoint's posterior ``(N, K)``.
    """
    num_bags, classes = counts.shape
    order = log_q.amax(1).argsort(descending=True, stable=True)  # sure instances first
    order = order[bag_index(offsets, len(log_q))[order].argsort(stable=True)]
    states = STATES.value * classes
    programs = max(1, min(num_bags, _PROGRAMS, _MEMORY // states))

    def room(size: int, dtype: torch.dtype) -> Tensor:
        return torch.empty((programs, size), dtype=dtype, device=log_q.device)

    with torch.cuda.device_of(log_q):
        _refine[(programs,)](
            log_q,
            counts,
            offsets,
            order,
            gap,
            log_p,
            phi,
            pruned.codes(classes).to(log_q.device),
            torch.empty(len(log_q) + 2 * num_bags, dtype=torch.int32, device=log_q.device),
            room(STATES.value, torch.float32),
            room(states, torch.int16),
            room(2 * pruned.WIDTH, torch.int64),
            room(2 * pruned.WIDTH * classes, torch.int32),
            room(2 * pruned.WIDTH, torch.float32),
            num_bags,
            K=classes,
            KP=triton.next_power_of_2(classes),
            WIDTH=pruned.WIDTH,
            BLOCK=64,
            num_warps=4,
            enable_fp_fusion=True,
        )


@triton.jit
def _row(log_q_ptr, order_ptr, at, K: tl.constexpr, KP: tl.constexpr):
    """The instance at a position, and its tilted probabilities ``(KP,)``."""
    col = tl.arange(0, KP)
    row = tl.load(order_ptr + at)
    return row, tl.exp(tl.load(log_q_ptr + row * K + col, mask=col < K, other=-float("inf")))


@triton.jit
def _refine(
    log_q_ptr,
    counts_ptr,
    offsets_ptr,
    order_ptr,
    gap_ptr,
    log_p_ptr,
    phi_ptr,
    code_ptr,
    start_ptr,
    alpha_ptr,
    child_ptr,
    key_ptr,
    left_ptr,
    beta_ptr,
    num_bags,
    K: tl.constexpr,
    KP: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0).to(tl.int64)
    alpha_ptr += program * STATES
    child_ptr += program * STATES * K
    key_ptr += program * 2 * WIDTH
    left_ptr += program * 2 * WIDTH * K
    beta_ptr += program * 2 * WIDTH
    col, lane = tl.arange(0, KP), tl.arange(0, BLOCK)
    for bag in range(tl.program_id(0), num_bags, tl.num_programs(0)):
        begin = tl.load(offsets_ptr + bag)
        n = (tl.load(offsets_ptr + bag + 1) - begin).to(tl.int32)
        y = tl.load(counts_ptr + bag * K + col, mask=col < K, other=0).to(tl.int32)
        present = tl.sum((y > 0).to(tl.float32), 0)
        gap, near_log_p = tl.load(gap_ptr + bag), tl.load(log_p_ptr + bag)
        share = tl.minimum(tl.maximum(tl.minimum(present, FEW) - gap, 0.0), 1.0)
        if (present > 2) & (share > 0) & (n < STATES):
            tl.debug_barrier()  # all lanes are done with the bag before
            starts = start_ptr + begin + 2 * bag
            tl.store(left_ptr + col, y, mask=col < K)
            tl.store(key_ptr, 0)
            tl.store(alpha_ptr, 1.0)
            mean = tl.zeros((KP,), tl.float32)
            variance = tl.zeros((KP,), tl.float32)
            for i in range(n):
                _at, q = _row(log_q_ptr, order_ptr, begin + i, K, KP)
                mean += q
                variance += q * (1.0 - q)
            reference = share * 0.0 + 1.0
            first, width, i = n * 0, n * 0 + 1, n * 0  # of the states here; position
            while (i < n) & (width > 0):
                tl.debug_barrier()
                tl.store(starts + i, first)
                here, there = (i % 2) * WIDTH, (1 - i % 2) * WIDTH
                new_first = first + width
                _at, q = _row(log_q_ptr, order_ptr, begin + i, K, KP)
                mean -= q
                variance -= q * (1.0 - q)
                precision = 0.5 / (variance + ROUNDING)
                found, total, fits = n * 0, share * 0.0, n * 0 + 1
                for s0 in range(0, width, BLOCK):
                    s = s0 + lane
                    inside = s < width
                    alpha = tl.load(alpha_ptr + first + s, mask=inside, other=0.0)
                    key = tl.load(key_ptr + here + s, mask=inside, other=0)
                    cell = left_ptr + (here + s)[:, None] * K + col[None, :]
                    left = tl.load(cell, mask=inside[:, None] & (col < K)[None, :], other=0)
                    far = left.to(tl.float32) - mean[None, :]
                    guide = tl.sum(far * far * precision[None, :], 1)
                    for k in range(K):
                        own = col == k
                        left_k = tl.sum(tl.where(own[None, :], left, 0), 1)
                        far_k = tl.sum(tl.where(own[None, :], far, 0.0), 1)
                        precise = tl.sum(tl.where(own, precision, 0.0), 0)
                        value = alpha * tl.sum(tl.where(own, q, 0.0), 0)
                        likely = value * tl.exp((2.0 * far_k - 1.0) * precise - guide)
                        keep = (left_k > 0) & (likely > EPSILON * reference)
                        total += tl.sum(tl.where(keep, likely, 0.0), 0)
                        wanted = key + tl.load(code_ptr + k)
                        at = tl.full((BLOCK,), -1, tl.int32)
                        if tl.sum(keep.to(tl.int32), 0) > 0:
                            for t0 in range(0, found, BLOCK):
                                t = t0 + lane
                                known = tl.load(key_ptr + there + t, mask=t < found, other=0)
                                same = (wanted[:, None] == known[None, :]) & (t < found)[None, :]
                                at = tl.maximum(at, tl.max(tl.where(same, t[None, :], -1), 1))
                        seen, new = keep & (at >= 0), keep & (at < 0)
                        at = tl.where(new, found + tl.cumsum(new.to(tl.int32), 0) - 1, at)
                        at = tl.where(keep, at, -1)
                        number = tl.sum(new.to(tl.int32), 0)
                        over = (found + number > WIDTH) | (new_first + found + number > STATES)
                        fits = tl.where(over, 0, fits)
                        allowed = lane < fits * BLOCK  # all or none
                        keep, new = keep & allowed, new & allowed
                        old = tl.load(alpha_ptr + new_first + at, mask=seen, other=0.0)
                        tl.debug_barrier()  # all lanes have read what is now changed
                        tl.store(alpha_ptr + new_first + at, old + value, mask=keep)
                        tl.store(key_ptr + there + at, wanted, mask=new)
                        after = left_ptr + (there + at)[:, None] * K + col[None, :]
                        inner = new[:, None] & (col < K)[None, :]
                        tl.store(after, left - own[None, :].to(tl.int32), mask=inner)
                        child = child_ptr + (first + s) * K + k
                        tl.store(child, at.to(tl.int16), mask=inside & allowed)
                        found += fits * number
                        tl.debug_barrier()
                reference = total
                first = new_first
                width = fits * found
                i += 1
            if width > 0:
                tl.store(starts + n, first)
                result = tl.load(alpha_ptr + first)
                tl.store(beta_ptr + (n % 2) * WIDTH, 1.0 / result)
                tl.store(log_p_ptr + bag, near_log_p + share * (gap + tl.log(result)))
                for back in range(n):
                    tl.debug_barrier()
                    i = n - 1 - back
                    here, there = (i % 2) * WIDTH, (1 - i % 2) * WIDTH
                    row, q = _row(log_q_ptr, order_ptr, begin + i, K, KP)
                    first = tl.load(starts + i)
                    width = tl.load(starts + i + 1) - first
                    exact = tl.zeros((KP,), tl.float32)
                    for s0 in range(0, width, BLOCK):
                        s = s0 + lane
                        inside = s < width
                        alpha = tl.load(alpha_ptr + first + s, mask=inside, other=0.0)
                        value = tl.zeros((BLOCK,), tl.float32)
                        for k in range(K):
                            at = tl.load(child_ptr + (first + s) * K + k, mask=inside, other=-1)
                            at = at.to(tl.int32)
                            beta = tl.load(beta_ptr + there + at, mask=at >= 0, other=0.0)
                            flow = beta * tl.sum(tl.where(col == k, q, 0.0), 0)
                            value += flow
                            exact += tl.where(col == k, tl.sum(alpha * flow, 0), 0.0)
                        tl.store(beta_ptr + here + s, value, mask=inside)
                    cell = phi_ptr + row * K + col
                    near = tl.load(cell, mask=col < K, other=0.0)
                    tl.debug_barrier()
                    tl.store(cell, near + share * (exact - near), mask=col < K)
