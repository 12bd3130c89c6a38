r"""Triton kernel for bags of 33 to 1,024 instances: the tilted Fourier sum, several bags at once.

The sum is that of :mod:`llpkit.likelihood.binary` with the points of :mod:`.triton_large`. A tile
``(BAGS, LENGTH)`` holds whole bags in registers, eight instances per lane, so that logits are read
once and the many short steps of a bag (order statistics, tilt, one product per frequency) are
shared by the bags of a tile instead of waiting for each other. Frequencies are a loop: each one
multiplies the factors of a bag and at once divides each of them out again.

Products of up to 1,024 factors lose a few units of float32's last digit, so everything is in the
dtype of the logits except sums of log-probabilities, which are in float64.
"""
# mypy: ignore-errors
# (the functions are in Triton's language, which only looks like Python)

import triton
import triton.language as tl

from llpkit.likelihood.kernels.triton_large import order, product, times


@triton.jit
def _around(z, inside, y, BAGS: tl.constexpr):
    """The ``y``-th and the next largest logit of every bag, bit by bit: see triton_large."""
    dtype: tl.constexpr = z.dtype
    BITS: tl.constexpr = dtype.primitive_bitwidth
    integer: tl.constexpr = tl.int64 if BITS == 64 else tl.int32
    key = order(z.to(integer, bitcast=True), BITS)
    one = tl.full((BAGS,), 1, integer)
    mark = one << (BITS - 1)  # the smallest integer: all keys reach it
    number = tl.sum(inside.to(tl.int32), 1)
    bit = BITS - 1
    while (tl.max((number != y).to(tl.int32), 0) > 0) & (bit >= 0):
        trial = mark ^ (one << bit)
        found = tl.sum(((key >= trial[:, None]) & inside).to(tl.int32), 1)
        better = (found >= y) & (number != y)
        mark = tl.where(better, trial, mark)
        number = tl.where(better, found, number)
        bit -= 1
    reaches = (key >= mark[:, None]) & inside
    last = tl.min(tl.where(reaches, z, float("inf")), 1)
    below = tl.max(tl.where(reaches, -float("inf"), z), 1)
    return last, tl.where(number > y, last, below)


@triton.jit
def _chance(x):
    """``sigmoid(x)``, ``sigmoid(-x)`` and ``exp(-|x|)``."""
    w = tl.exp(-tl.abs(x))
    scale = 1.0 / (1.0 + w)
    return tl.where(x > 0, 1.0, w) * scale, tl.where(x > 0, w, 1.0) * scale, w


@triton.jit
def _tilt(d, free, target, half, usual, known):
    """``tau`` of every bag, as in triton_large; and the variance."""
    left, right = -half, half
    tau = half * 0.0
    variance = half * 0.0
    steps, going = 0, True
    while going:
        p, q, _w = _chance(d + tau[:, None])
        mean = tl.sum(tl.where(known, 0.0, p), 1)
        variance = tl.sum(tl.where(known, 0.0, p * q), 1)
        open_ = usual & (tl.abs(mean - target) > 0.05 + 0.01 * tl.sqrt(variance))
        left = tl.where(mean < target, tau, left)
        right = tl.where(mean > target, tau, right)
        odds = tl.log(target / (free - target)) - tl.log(mean / (free - mean))
        newton = tau + odds * mean * (free - mean) / (free * variance)
        inside = (newton > left) & (newton < right)
        tau = tl.where(open_, tl.where(inside, newton, left / 2 + right / 2), tau)
        steps += 1
        going = (tl.max(open_.to(tl.int32), 0) > 0) & (steps < 200)
    return tau, variance


@triton.jit
def _block(
    first,
    last,
    z_ptr,
    counts_ptr,
    offsets_ptr,
    log_p_ptr,
    phi_ptr,
    LEAST: tl.constexpr,
    LENGTH: tl.constexpr,
    BAGS: tl.constexpr,
    HALVES: tl.constexpr,
):
    """Solve the bags ``first … first + BAGS - 1`` that have the right size."""
    dtype: tl.constexpr = z_ptr.dtype.element_ty
    FINE: tl.constexpr = dtype.primitive_bitwidth == 64
    FREQUENCIES: tl.constexpr = 32 if FINE else 16
    bag = first + tl.arange(0, BAGS)
    begin = tl.load(offsets_ptr + bag, mask=bag < last, other=0)
    size = tl.load(offsets_ptr + bag + 1, mask=bag < last, other=0) - begin
    mine = (bag < last) & (size >= LEAST) & (size <= LENGTH)
    n = tl.where(mine, size, 0).to(tl.int32)
    y = tl.load(counts_ptr + bag, mask=mine, other=0)
    y = tl.minimum(tl.maximum(y, -1), n + 1).to(tl.int32)
    at = tl.arange(0, LENGTH)
    inside = at[None, :] < n[:, None]
    place = begin[:, None] + at[None, :]
    z = tl.load(z_ptr + place, mask=inside, other=-float("inf"))

    positive = tl.sum((z == float("inf")).to(tl.int32), 1)
    free = n - positive - tl.sum((inside & (z == -float("inf"))).to(tl.int32), 1)
    sick = tl.sum((z != z).to(tl.int32), 1) > 0
    usual = (y > positive) & (y < positive + free) & (sick == 0)
    known = tl.abs(z) == float("inf")  # also outside the bag

    above, below = _around(z, inside, tl.where(usual, y, n), BAGS)
    centre = tl.where(usual, above.to(tl.float64) / 2 + below.to(tl.float64) / 2, 0.0)
    half = tl.where(usual, above.to(tl.float64) - centre, 0.0).to(dtype)
    half += tl.log(2.0 * tl.maximum(n, 1).to(dtype))
    d = (z.to(tl.float64) - centre[:, None]).to(dtype)
    target = tl.where(usual, y - positive, 1).to(dtype)
    tau, variance = _tilt(d, tl.where(usual, free, 2).to(dtype), target, half, usual, known)

    if FINE:
        reach = tl.ceil(8.0 * tl.sqrt(variance)).to(tl.int32) + 24
        negligible = 18.0
    else:
        reach = tl.ceil(6.0 * tl.sqrt(variance)).to(tl.int32) + 11
        negligible = 9.5
    points = tl.minimum(reach, n) + 1
    points += 1 - points % 2  # odd, so that no factor vanishes
    p, q, w = _chance(d + tau[:, None])
    step = (3.141592653589793 / points.to(tl.float64)).to(dtype)  # half of the first frequency
    turn = ((y % points + points) % points).to(dtype)
    total = tl.zeros((BAGS,), dtype)
    part = tl.zeros((BAGS, LENGTH), dtype)
    for index in range(FREQUENCIES):
        cos, sin = tl.cos(step * index), tl.sin(step * index)
        twice_cos2, sin_omega = 2.0 * cos * cos, 2.0 * sin * cos
        used = (2 * index < points) & (sin * sin * (variance - 0.25) <= negligible)
        a = (q - p) + p * twice_cos2[:, None]
        b = p * sin_omega[:, None]
        # The product of the factors. The interpreter takes seconds for a reduction of its own kind.
        if HALVES:
            real, imag = product(a, b, BAGS, LENGTH)
        else:
            real, imag = tl.reduce((a, b), 1, times)
        # exp(-i omega y), the angle reduced to one turn; mirror images count once more.
        angle = 2.0 * step * ((turn * index) - points * tl.floor(turn * index / points))
        real, imag = times(real, imag, tl.cos(angle), -tl.sin(angle))
        weight = tl.where(used, tl.where(index == 0, 1.0, 2.0), 0.0) / points.to(dtype)
        real, imag = real * weight, imag * weight
        total += real
        # The same product with one factor replaced by p exp(i omega).
        real, imag = times(real, imag, twice_cos2 - 1.0, sin_omega)
        part += (real[:, None] * a + imag[:, None] * b) / (a * a + b * b)
    phi = p * part / total[:, None]
    phi = tl.where(phi < 0.0, 0.0, tl.where(phi > 1.0, 1.0, phi))  # by rounding

    # log P(y) = log P_t(y) + the tilt's scale: the labels above the tilt count as positive.
    rest = tl.where(d + tau[:, None] > 0, tl.minimum(z, 0.0), -tl.maximum(z, 0.0))
    rest += tl.log((1.0 + w) / (1.0 + tl.exp(-tl.abs(z))))
    scale = tl.sum(tl.where(known, 0.0, rest).to(tl.float64), 1)
    top = tl.sum(((d + tau[:, None] > 0) & (z != float("inf")) & inside).to(tl.int32), 1)
    over = (y - positive - top).to(tl.float64)
    log_p = tl.log(total).to(tl.float64) + scale - over * (tau.to(tl.float64) - centre)

    # A bag whose unknown labels are all equal, or that is impossible, or that has a NaN.
    ones = y == positive + free
    possible = ones | (y == positive)
    prior, _q, _w = _chance(z)
    same = tl.where((possible[:, None]) & (known == 0), ones[:, None].to(dtype), prior)
    phi = tl.where(usual[:, None], phi, same)
    x = tl.where(ones[:, None], z, -z)
    plain = tl.minimum(x, 0.0) - tl.log(1.0 + tl.exp(-tl.abs(x)))
    plain = tl.sum(tl.where(known, 0.0, plain).to(tl.float64), 1)
    log_p = tl.where(usual, log_p, tl.where(possible, plain, -float("inf")))
    tl.store(log_p_ptr + bag, tl.where(sick, float("nan"), log_p).to(dtype), mask=mine)
    tl.store(phi_ptr + place, tl.where(sick[:, None], float("nan"), phi), mask=inside)


@triton.jit(do_not_specialize=["num_bags", "span"])
def medium(
    z_ptr,
    counts_ptr,
    offsets_ptr,
    log_p_ptr,
    phi_ptr,
    num_bags,
    span,
    LEAST: tl.constexpr,
    LENGTH: tl.constexpr,
    BAGS: tl.constexpr,
    HALVES: tl.constexpr,
):
    """Bags of ``LEAST`` to ``LENGTH`` instances among the ``span`` bags of this program."""
    first = tl.program_id(0).to(tl.int64) * span
    last = tl.minimum(first + span, num_bags)
    for at in range(first, last, BAGS):
        bag = at + tl.arange(0, BAGS)
        begin = tl.load(offsets_ptr + bag, mask=bag < last, other=0)
        size = tl.load(offsets_ptr + bag + 1, mask=bag < last, other=0) - begin
        if tl.max(((size >= LEAST) & (size <= LENGTH)).to(tl.int32), 0) > 0:
            _block(
                at,
                last,
                z_ptr,
                counts_ptr,
                offsets_ptr,
                log_p_ptr,
                phi_ptr,
                LEAST,
                LENGTH,
                BAGS,
                HALVES,
            )
