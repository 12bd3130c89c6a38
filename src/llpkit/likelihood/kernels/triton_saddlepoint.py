"""The saddlepoint approximation in Triton, for CUDA tensors: K classes, exact counts.

The formulas of :mod:`llpkit.likelihood.saddlepoint`, one program per bag. Posteriors and factors
are kept in global memory, from which columns and blocks of rows are read again through the cache;
matrices of the classes are tiles in registers. Nothing waits for the host: iterations end by what
the program itself finds, after at most 40 Newton steps. A second kernel, of :mod:`.triton_pruned`,
improves confident bags.

Everything over instances is in float32, the algebra of classes and the sum of the bound in float64.
Posteriors agree with the float64 backends to about 1e-4 where labels are uncertain.
"""
# mypy: ignore-errors
# (the functions are in Triton's language, which only looks like Python)

import torch
import triton
import triton.language as tl
from torch import Tensor

from llpkit.likelihood import saddlepoint
from llpkit.likelihood.kernels import triton_pruned
from llpkit.likelihood.kernels.triton_large import product, times

PASSES = tl.constexpr(saddlepoint.PASSES)
NEGLIGIBLE = tl.constexpr(saddlepoint.NEGLIGIBLE)
RIDGE = tl.constexpr(saddlepoint.RIDGE)
TINY = tl.constexpr(saddlepoint.TINY)
NIL = tl.constexpr(saddlepoint.NIL)
WIDTH = tl.constexpr(2 * 3.141592653589793 / saddlepoint.SURE)
NOISE = tl.constexpr(1e-6)
"""Rounding of a margin's probability in float32."""
SWEEPS = tl.constexpr(6)
FREQUENCIES = tl.constexpr(16)
FUSED = {"enable_fp_fusion": True}


def evaluate(z: Tensor, offsets: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probability ``(B,)``, posterior ``(N, K)``, by how much its totals miss the counts.

    A NaN logit makes its whole bag NaN; if too few instances can belong to a class, the bag has
    ``-inf`` and its prior.

    Args:
        z: Logits ``(N, K)``, computed in float32.
        offsets: int64 ``(B + 1,)``, not checked.
        counts: int64 ``(B, K)``.
    """
    num_bags, classes = len(offsets) - 1, z.shape[1]
    z = z.detach().float().contiguous()
    phi = torch.empty_like(z)
    log_p, gap, off = z.new_empty((3, num_bags)).unbind()
    if num_bags == 0:
        return log_p, phi, off
    scratch = torch.empty((3, *z.shape), dtype=z.dtype, device=z.device)
    counts, offsets = counts.contiguous(), offsets.contiguous()
    with torch.cuda.device_of(z):
        _bag[(num_bags,)](
            z,
            counts,
            offsets,
            log_p,
            gap,
            phi,
            off,
            scratch[0],
            scratch[1],
            scratch[2],
            K=classes,
            KP=max(16, triton.next_power_of_2(classes)),  # a product of matrices needs 16
            ROWS=64,
            num_warps=4,
            **FUSED,
        )
    triton_pruned.refine(scratch[0], counts, offsets, gap, log_p, phi)
    return log_p, phi, off


@triton.jit
def _load(base_ptr, at, n, K: tl.constexpr, KP: tl.constexpr, ROWS: tl.constexpr):
    """Rows ``at … at + ROWS - 1`` of a bag, ``-inf`` outside; a known label is 0."""
    row, col = at + tl.arange(0, ROWS), tl.arange(0, KP)
    inside = (row < n)[:, None] & (col < K)[None, :]
    z = tl.load(base_ptr + row[:, None] * K + col[None, :], mask=inside, other=-float("inf"))
    known = tl.max((z == float("inf")).to(tl.int32), 1) > 0
    return tl.where(known[:, None], tl.where(z == float("inf"), 0.0, -float("inf")), z)


@triton.jit
def _store(base_ptr, at, n, value, K: tl.constexpr, KP: tl.constexpr, ROWS: tl.constexpr):
    row, col = at + tl.arange(0, ROWS), tl.arange(0, KP)
    inside = (row < n)[:, None] & (col < K)[None, :]
    tl.store(base_ptr + row[:, None] * K + col[None, :], value, mask=inside)


@triton.jit
def _softmax(z, t, present):
    """Tilted probabilities, zero in rows without a possible class; and their log-normaliser."""
    x = tl.where(present[None, :], z + t[None, :], -float("inf"))
    top = tl.max(x, 1)
    top = tl.where(top == -float("inf"), 0.0, top)
    e = tl.exp(x - top[:, None])
    norm = tl.sum(e, 1)
    q = e / tl.where(norm > 0, norm, 1.0)[:, None]
    return q, x, top + tl.log(norm)


@triton.jit
def _solve(matrix, right, K: tl.constexpr, KP: tl.constexpr):
    """Solve a positive definite system for every column of ``right`` by elimination."""
    i = tl.arange(0, KP)
    for j in range(K):
        column = tl.sum(tl.where((i == j)[None, :], matrix, 0.0), 1)
        pivot = tl.sum(tl.where(i == j, column, 0.0), 0)
        factor = tl.where(i == j, 0.0, column / pivot)
        row = tl.sum(tl.where((i == j)[:, None], matrix, 0.0), 0)
        of_right = tl.sum(tl.where((i == j)[:, None], right, 0.0), 0)
        matrix -= factor[:, None] * row[None, :]
        right -= factor[:, None] * of_right[None, :]
    diagonal = tl.sum(tl.where(i[:, None] == i[None, :], matrix, 0.0), 1)
    return right / diagonal[:, None]


@triton.jit
def _gram(q):
    """Edge weights between classes, float32 in full precision."""
    return tl.dot(tl.trans(q), q, input_precision="ieee")


@triton.jit
def _tilt(base_ptr, n, y, present, K: tl.constexpr, KP: tl.constexpr, ROWS: tl.constexpr):
    """The tilt of the rows' logarithms whose totals are the counts, and by how much they miss."""
    i = tl.arange(0, KP)
    t = y * 0.0
    for _ in range(SWEEPS):
        total = y * 0.0
        for at in range(0, n, ROWS):
            z = _load(base_ptr, at, n, K, KP, ROWS)
            q, _x, _norm = _softmax(z, t, present)
            total += tl.sum(q, 0)
        t += tl.where(present, tl.log(y / tl.maximum(total, 1e-30)), 0.0)
    off = n * 1.0
    close = 2e-6 * n + 1e-5
    steps = 0
    kept = tl.sum(present.to(tl.float32), 0)
    both = present[:, None] & present[None, :]
    eye = (i[:, None] == i[None, :]).to(tl.float64)
    while (off > close) & (steps < 40):
        total = y * 0.0
        gram = tl.zeros((KP, KP), tl.float32)
        for at in range(0, n, ROWS):
            z = _load(base_ptr, at, n, K, KP, ROWS)
            q, _x, _norm = _softmax(z, t, present)
            total += tl.sum(q, 0)
            gram += _gram(q)
        gap = tl.where(present, total - y, 0.0)
        off = tl.max(tl.abs(gap), 0)
        # Adding a constant to the tilt changes nothing: a rank-one term makes that regular.
        matrix = eye * tl.where(present, total, 1.0)[:, None].to(tl.float64)
        matrix += tl.where(both, 1.0 / kept - gram, 0.0).to(tl.float64)
        matrix += 1e-7 * eye
        right = tl.where((i == 0)[None, :], gap[:, None], 0.0).to(tl.float64)
        step = tl.sum(_solve(matrix, right, K, KP), 1)
        # Damped Newton steps need no line search; close to the solution they are full ones.
        decrement = tl.sqrt(tl.maximum(tl.sum(step * gap.to(tl.float64), 0), 0.0))
        moved = t - (step / (1.0 + decrement)).to(tl.float32)
        t = tl.where(off > close, tl.where(present, moved, t), t)
        steps += 1
    return t, off


@triton.jit
def _respond(phi_ptr, n, K: tl.constexpr, KP: tl.constexpr, ROWS: tl.constexpr):
    """The matrix ``W`` and the covariance, ``(KP, KP)`` in float64: see saddlepoint.respond."""
    i = tl.arange(0, KP)
    same = i[:, None] == i[None, :]
    edges = tl.zeros((KP, KP), tl.float32)
    for at in range(0, n, ROWS):
        q = _load(phi_ptr, at, n, K, KP, ROWS)
        edges += _gram(tl.where(q > 0, q, 0.0))
    edges = tl.where(same, 0.0, edges).to(tl.float64)
    variance = tl.sum(edges, 1)
    across = tl.sum(edges, 0)  # the same numbers along the other axis
    root, root_across = tl.sqrt(variance), tl.sqrt(across)
    scale = tl.where(variance > NIL, 1.0 / tl.where(variance > NIL, root, 1.0), 0.0)
    scale_across = tl.where(across > NIL, 1.0 / tl.where(across > NIL, root_across, 1.0), 0.0)
    trace = tl.maximum(tl.sum(variance, 0), 1e-300)
    ridge = RIDGE * scale * scale
    eye = same.to(tl.float64)
    matrix = eye * (1.0 + ridge)[:, None] - edges * scale[:, None] * scale_across[None, :]
    inverse = _solve(matrix + root[:, None] * root_across[None, :] / trace, eye, K, KP)
    response = inverse * ((1.0 + ridge / 2) * scale)[:, None] * root_across[None, :]
    return response, eye * variance[:, None] - edges


@triton.jit
def _dimensions(response, covariance, present, K: tl.constexpr, KP: tl.constexpr):
    """Weights of the margins ``(KP,)``: see saddlepoint.dimensions."""
    i = tl.arange(0, KP)
    same = i[:, None] == i[None, :]
    variance = tl.sum(tl.where(same, covariance, 0.0), 1)
    across = tl.sum(tl.where(same, covariance, 0.0), 0)
    edges = tl.where(same, 0.0, -covariance)
    root = tl.sqrt(variance)
    scale = tl.where(variance > NIL, 1.0 / tl.where(variance > NIL, root, 1.0), 0.0)
    scale_across = tl.where(across > NIL, 1.0 / tl.sqrt(tl.where(across > NIL, across, 1.0)), 0.0)
    inverse = response * (scale_across * scale_across)[None, :]
    own = tl.sum(tl.where(same, inverse, 0.0), 1)
    own_across = tl.sum(tl.where(same, inverse, 0.0), 0)
    far = own[:, None] + own_across[None, :] - inverse - tl.trans(inverse)
    right = tl.sum(edges * far, 1) * scale
    right = tl.where((i == 0)[None, :], right[:, None], 0.0)
    matrix = (1.0 + TINY) * same.to(tl.float64) + edges * scale[:, None] * scale_across[None, :]
    fit = tl.sum(_solve(matrix, right, K, KP), 1) * root
    return tl.where(present, tl.minimum(tl.maximum(fit, 0.0), 1.0), 0.0)


@triton.jit
def _log_width(variance):
    wide = WIDTH * tl.maximum(variance, 0.0)
    return tl.log(1.0 + wide * wide) / 4


@triton.jit
def _correction(covariance, share, present, K: tl.constexpr, KP: tl.constexpr):
    """The normal density's part of the log-probability: see saddlepoint.correction."""
    i = tl.arange(0, KP)
    same = i[:, None] == i[None, :]
    variance = tl.sum(tl.where(same, covariance, 0.0), 1)
    value = tl.sum(share * _log_width(variance), 0)
    alive = present
    for _ in range(K - 1):
        diagonal = tl.sum(tl.where(same, covariance, 0.0), 1)
        diagonal = tl.where(alive, diagonal, -1.0)
        pivot = tl.max(diagonal, 0)
        at = tl.min(tl.where(alive & (diagonal == pivot), i, KP), 0)
        if tl.sum(alive.to(tl.int32), 0) > 1:
            value -= _log_width(pivot)
        column = tl.sum(tl.where((i == at)[None, :], covariance, 0.0), 1)
        row = tl.sum(tl.where((i == at)[:, None], covariance, 0.0), 0)
        safe = tl.where(pivot > 1e-12, pivot, float("inf"))
        covariance -= column[:, None] * row[None, :] / safe
        alive = alive & (i != at)
    return value


@triton.jit
def _odds(phi_ptr, m_ptr, at, n, k, K: tl.constexpr, ROWS: tl.constexpr):
    """Odds of class ``k`` with the old factors divided out, and the other classes' probability.

    Outside the bag these are 0 and 1.
    """
    row = at + tl.arange(0, ROWS)
    p = tl.load(phi_ptr + row * K + k, mask=row < n, other=0.0)
    m = tl.load(m_ptr + row * K + k, mask=row < n, other=1.0)
    other = tl.maximum(1.0 - p, 1e-7)
    return p / (other * m), other


@triton.jit
def _log_factors(m_ptr, at, n, K: tl.constexpr, KP: tl.constexpr, ROWS: tl.constexpr):
    """Logarithms of the factors of some rows, zero outside."""
    m = _load(m_ptr, at, n, K, KP, ROWS)
    return tl.log(tl.where(m > 0, m, 1.0))


@triton.jit
def _margin(phi_ptr, m_ptr, n, y, k, K: tl.constexpr, ROWS: tl.constexpr):
    """Replace column ``k`` of the factors; returns ``log C`` for the old ones."""
    row = tl.arange(0, ROWS)
    size = n * 1.0
    move, mean, variance = size * 0.0 + 1.0, size * 0.0, size * 0.0
    turn, going = 0, size > 0
    while going:
        mean, variance = size * 0.0, size * 0.0
        for at in range(0, n, ROWS):
            odds, _other = _odds(phi_ptr, m_ptr, at, n, k, K, ROWS)
            odds *= move
            rest = 1.0 / (1.0 + odds)
            mean += tl.sum(odds * rest, 0)
            variance += tl.sum(odds * rest * rest, 0)
        going = (turn < 3) & (tl.abs(mean - y) >= 0.01)
        going = going & (mean > 0) & (mean < size) & (variance > 0)
        step = tl.log(y * (size - mean) / (mean * (size - y))) * mean * (size - mean)
        step = tl.minimum(tl.maximum(step / (size * variance), -4.0), 4.0)
        move = tl.where(going, move * tl.exp(step), move)
        turn += 1

    points = tl.minimum(tl.ceil(6.0 * tl.sqrt(variance)).to(tl.int32) + 11, n) + 1
    points += 1 - points % 2  # odd, so that no factor vanishes
    index = tl.arange(0, FREQUENCIES)
    half = index.to(tl.float32) * (3.141592653589793 / points)
    cos, sin = tl.cos(half), tl.sin(half)
    used = (2 * index < points) & (sin * sin * (variance - 0.25) <= NEGLIGIBLE)
    twice_cos2, sin_omega = 2.0 * cos * cos, 2.0 * sin * cos
    real = tl.full((FREQUENCIES, ROWS), 1.0, tl.float32)
    imag = tl.full((FREQUENCIES, ROWS), 0.0, tl.float32)
    for at in range(0, n, ROWS):
        odds, _other = _odds(phi_ptr, m_ptr, at, n, k, K, ROWS)
        odds *= move
        rest = 1.0 / (1.0 + odds)
        p = odds * rest
        a = (rest - p)[None, :] + p[None, :] * twice_cos2[:, None]
        b = p[None, :] * sin_omega[:, None]
        real, imag = times(real, imag, a, b)
    real, imag = product(real, imag, FREQUENCIES, ROWS)
    # exp(-i omega y), the angle reduced in integers; each frequency counts for its mirror image.
    angle = ((index * y.to(tl.int32)) % points).to(tl.float32) * (2 * 3.141592653589793 / points)
    real, imag = times(real, imag, tl.cos(angle), -tl.sin(angle))
    weight = tl.where(used, tl.where(index == 0, 1.0, 2.0), 0.0) / points
    real, imag = real * weight, imag * weight
    total = tl.sum(real, 0)
    # Times exp(i omega): one positive fewer among the others.
    real1, imag1 = times(real, imag, twice_cos2 - 1.0, sin_omega)
    log_c = tl.zeros((ROWS,), tl.float64)
    for at in range(0, n, ROWS):
        odds, other = _odds(phi_ptr, m_ptr, at, n, k, K, ROWS)
        odds *= move
        log_c += tl.log(other * (1.0 + odds)).to(tl.float64)
        rest = 1.0 / (1.0 + odds)
        p = odds * rest
        a = (rest - p)[None, :] + p[None, :] * twice_cos2[:, None]
        b = p[None, :] * sin_omega[:, None]
        scale = 1.0 / (a * a + b * b)
        same = tl.sum((real[:, None] * a + imag[:, None] * b) * scale, 0)
        fewer = tl.sum((real1[:, None] * a + imag1[:, None] * b) * scale, 0)
        m = tl.maximum(fewer, NOISE) / tl.maximum(same, NOISE)
        tl.debug_barrier()  # all lanes have read their old factors
        tl.store(m_ptr + (at + row) * K + k, m, mask=at + row < n)
    return tl.log(tl.maximum(total, 1e-30)) - y * tl.log(move) + tl.sum(log_c, 0)


@triton.jit
def _bag(
    z_ptr,
    counts_ptr,
    offsets_ptr,
    log_p_ptr,
    gap_ptr,
    phi_ptr,
    off_ptr,
    log_q_ptr,
    m_ptr,
    log_x_ptr,
    K: tl.constexpr,
    KP: tl.constexpr,
    ROWS: tl.constexpr,
):
    bag = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, KP)
    begin = tl.load(offsets_ptr + bag)
    n = (tl.load(offsets_ptr + bag + 1) - begin).to(tl.int32)
    y = tl.load(counts_ptr + bag * K + col, mask=col < K, other=0).to(tl.float32)
    present = y > 0
    z_ptr += begin * K
    phi_ptr += begin * K
    log_q_ptr += begin * K
    m_ptr += begin * K
    log_x_ptr += begin * K
    t, off = _tilt(z_ptr, n, y, present, K, KP, ROWS)

    # The bound; what the classes can hold; the tilted probabilities.
    bound = tl.zeros((ROWS,), tl.float64)
    able = y * 0.0
    sick = tl.zeros((ROWS,), tl.int32)
    for at in range(0, n, ROWS):
        inside = at + tl.arange(0, ROWS) < n
        z = _load(z_ptr, at, n, K, KP, ROWS)
        _p, _z, log_all = _softmax(z, y * 0.0, col < K)
        q, x, log_norm = _softmax(z, t, present)
        bound += tl.where(inside, log_norm.to(tl.float64) - log_all.to(tl.float64), 0.0)
        able += tl.sum((z > -float("inf")).to(tl.float32), 0)
        sick += tl.where(inside, tl.max((z != z).to(tl.int32), 1), 0)
        _store(log_q_ptr, at, n, x - log_norm[:, None], K, KP, ROWS)
        _store(phi_ptr, at, n, q, K, KP, ROWS)
        _store(m_ptr, at, n, q * 0.0 + 1.0, K, KP, ROWS)
    log_p = tl.sum(bound, 0) - tl.sum(tl.where(present, t * y, 0.0).to(tl.float64), 0)
    first = log_p
    share = tl.zeros((KP,), tl.float64)
    for turn in tl.static_range(PASSES):
        tl.debug_barrier()
        response, covariance = _respond(phi_ptr, n, K, KP, ROWS)
        for k in range(K):
            own = tl.sum(tl.where(col == k, y, 0.0), 0)
            if (own > 0) & (own < n):
                log_c = _margin(phi_ptr, m_ptr, n, own, k, K, ROWS)
                if turn == 1:
                    log_p += log_c * tl.sum(tl.where(col == k, share, 0.0), 0)
        mixing = tl.trans(response.to(tl.float32))
        tl.debug_barrier()
        for at in range(0, n, ROWS):
            log_q = _load(log_q_ptr, at, n, K, KP, ROWS)
            gain = tl.dot(_log_factors(m_ptr, at, n, K, KP, ROWS), mixing, input_precision="ieee")
            _store(log_x_ptr, at, n, log_q + gain, K, KP, ROWS)
        tl.debug_barrier()
        t, off = _tilt(log_x_ptr, n, y, present, K, KP, ROWS)
        if turn == 0:
            share = _dimensions(response, covariance, present, K, KP)
            log_p += _correction(covariance, share, present, K, KP)
            log_p -= tl.sum(tl.where(present, t * y, 0.0).to(tl.float64), 0)
        bound = tl.zeros((ROWS,), tl.float64)
        for at in range(0, n, ROWS):
            x = _load(log_x_ptr, at, n, K, KP, ROWS)
            q, _x, log_norm = _softmax(x, t, present)
            _store(phi_ptr, at, n, q, K, KP, ROWS)
            if turn == 0:
                log_q = _load(log_q_ptr, at, n, K, KP, ROWS)
                log_m = _log_factors(m_ptr, at, n, K, KP, ROWS)
                extra = x - log_q - share.to(tl.float32)[None, :] * log_m
                extra = tl.sum(tl.where(q > 0, q * extra, 0.0), 1)
                inside = at + tl.arange(0, ROWS) < n
                bound += tl.where(inside, log_norm - extra, 0.0).to(tl.float64)
        log_p += tl.sum(bound, 0)
    gap = first - log_p
    possible = tl.min(tl.where(able >= y, 1, 0), 0) > 0
    if possible == 0:
        gap = gap * 0.0 + float("inf")
        log_p = log_p * 0.0 - float("inf")
        for at in range(0, n, ROWS):
            z = _load(z_ptr, at, n, K, KP, ROWS)
            p, _z, _norm = _softmax(z, y * 0.0, col < K)
            _store(phi_ptr, at, n, p, K, KP, ROWS)
    if tl.sum(sick, 0) > 0:
        gap = gap * 0.0 + float("inf")
        log_p = log_p * 0.0 + float("nan")
        for at in range(0, n, ROWS):
            z = _load(z_ptr, at, n, K, KP, ROWS)
            _store(phi_ptr, at, n, z * 0.0 + float("nan"), K, KP, ROWS)
    tl.store(log_p_ptr + bag, log_p.to(tl.float32))
    tl.store(gap_ptr + bag, gap.to(tl.float32))
    tl.store(off_ptr + bag, off)
