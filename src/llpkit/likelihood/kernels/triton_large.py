r"""Triton kernel for larger bags: the tilted Fourier sum, one program per bag.

The sum is that of :mod:`llpkit.likelihood.binary`.
The order statistics around the count bracket the tilt; they are found bit by bit, which needs no
sorting and is exact for any logits. Newton's method then finds the tilt in float32, since an
approximate tilt is enough. One pass in float64 multiplies the characteristic functions, one factor
per instance, for all frequencies in parallel; a last pass divides each factor out again. A bag is
read several times, but after the first pass from the cache.

The number of points and frequencies depends on the precision. With ``M`` points the count ``y``
aliases with ``y ± M`` only, and frequencies whose product is provably below
``exp(-2 * negligible)`` are left out:

======== ================= ========== =====================
logits   ``M``             negligible frequencies, at most
======== ================= ========== =====================
float32  ``6 sigma + 12``  9.5        16
float64  ``8 sigma + 25``  18         32
======== ================= ========== =====================
"""
# mypy: ignore-errors
# (the functions are in Triton's language, which only looks like Python)

import triton
import triton.language as tl


@triton.jit
def times(a, b, c, d):
    """The complex product of ``a + ib`` and ``c + id``."""
    return a * c - b * d, a * d + b * c


@triton.jit
def product(real, imag, NUMBER: tl.constexpr, ROWS: tl.constexpr):
    """Complex products over the rows of ``(NUMBER, ROWS)``, halved until one is left."""
    for step in tl.static_range(1, 12):
        if ROWS >> step > 0:
            a, c = tl.split(tl.reshape(real, (NUMBER, ROWS >> step, 2)))
            b, d = tl.split(tl.reshape(imag, (NUMBER, ROWS >> step, 2)))
            real, imag = times(a, b, c, d)
    return tl.reshape(real, (NUMBER,)), tl.reshape(imag, (NUMBER,))


@triton.jit
def _powers(angle, NUMBER: tl.constexpr):
    """Cosine and sine of ``0, 1, … NUMBER - 1`` times an angle.

    Powers of one complex number: the sine of every multiple would cost more than the whole bag.
    """
    index = tl.arange(0, NUMBER)
    real = tl.full((NUMBER,), 1.0, tl.float64)
    imag = tl.full((NUMBER,), 0.0, tl.float64)
    a, b = tl.cos(angle), tl.sin(angle)
    for bit in tl.static_range(5):
        c, d = times(real, imag, a, b)
        real = tl.where((index >> bit) & 1 == 1, c, real)
        imag = tl.where((index >> bit) & 1 == 1, d, imag)
        a, b = times(a, b, a, b)
    return real, imag


@triton.jit
def order(bits, BITS: tl.constexpr):
    """Map the bits of a float to an integer that sorts like the float, and back."""
    LOW: tl.constexpr = (1 << (BITS - 1)) - 1
    return tl.where(bits < 0, bits ^ LOW, bits)


@triton.jit
def _around(bag_ptr, n, y, ROWS: tl.constexpr):
    """The ``y``-th and the next largest logit, ``0 < y < n``."""
    dtype: tl.constexpr = bag_ptr.dtype.element_ty
    BITS: tl.constexpr = dtype.primitive_bitwidth
    integer: tl.constexpr = tl.int64 if BITS == 64 else tl.int32
    row = tl.arange(0, ROWS)
    one = tl.full((), 1, integer)
    mark = one << (BITS - 1)  # the smallest integer: all keys reach it
    number = n
    bit = BITS - 1
    # Find the largest mark that at least y keys reach; stop early once exactly y do.
    while (number != y) & (bit >= 0):
        trial = mark ^ (one << bit)
        reached = tl.zeros((ROWS,), tl.int32)
        for at in range(0, n, ROWS):
            z = tl.load(bag_ptr + at + row, mask=at + row < n, other=0.0)
            key = order(z.to(integer, bitcast=True), BITS)
            reached += ((key >= trial) & (at + row < n)).to(tl.int32)
        found = tl.sum(reached, 0)
        mark = tl.where(found >= y, trial, mark)
        number = tl.where(found >= y, found, number)
        bit -= 1
    above = tl.full((ROWS,), float("inf"), dtype)
    below = -above
    for at in range(0, n, ROWS):
        z = tl.load(bag_ptr + at + row, mask=at + row < n, other=-float("inf"))
        reaches = order(z.to(integer, bitcast=True), BITS) >= mark
        above = tl.minimum(above, tl.where(reaches, z, float("inf")))
        below = tl.maximum(below, tl.where(reaches, -float("inf"), z))
    last = tl.min(above, 0)
    return last, tl.where(number > y, last, tl.max(below, 0))


@triton.jit
def _moments(bag_ptr, n, centre, tau, ROWS: tl.constexpr):
    """Approximate mean and variance of the count of unknown labels under the tilt."""
    row = tl.arange(0, ROWS)
    mean = tl.zeros((ROWS,), tl.float64)
    variance = tl.zeros((ROWS,), tl.float64)
    for at in range(0, n, ROWS):
        z = tl.load(bag_ptr + at + row, mask=at + row < n, other=-float("inf"))
        x = ((z.to(tl.float64) - centre) + tau).to(tl.float32)
        w = tl.exp(-tl.abs(x))
        p = tl.where(x > 0, 1.0, w) / (1.0 + w)
        p = tl.where(z == float("inf"), 0.0, p)
        mean += p
        variance += p * tl.where(x > 0, w, 1.0) / (1.0 + w)
    return tl.sum(mean, 0), tl.sum(variance, 0)


@triton.jit
def _tilt(bag_ptr, n, free, target, centre, half, ROWS: tl.constexpr):
    """``tau`` in ``[-half, half]`` whose mean is close to the target; and the variance.

    Newton's method on the log-odds of the mean, kept inside a shrinking bracket by bisection.
    """
    left, right = -half, half
    tau = half * 0.0
    mean, variance = _moments(bag_ptr, n, centre, tau, ROWS)
    steps = 0
    while (tl.abs(mean - target) > 0.05 + 0.01 * tl.sqrt(variance)) & (steps < 200):
        left = tl.where(mean < target, tau, left)
        right = tl.where(mean > target, tau, right)
        odds = tl.log(target / (free - target)) - tl.log(mean / (free - mean))
        newton = tau + odds * mean * (free - mean) / (free * variance)
        inside = (newton > left) & (newton < right)
        tau = tl.where(inside, newton, left / 2 + right / 2)
        mean, variance = _moments(bag_ptr, n, centre, tau, ROWS)
        steps += 1
    return tau, variance


@triton.jit
def _fourier(bag_ptr, log_p_ptr, phi_ptr, n, y, positive, free, ROWS: tl.constexpr):
    """Log-probability and posterior of a bag with ``0 < y - positive < free``."""
    dtype: tl.constexpr = bag_ptr.dtype.element_ty
    FINE: tl.constexpr = dtype.primitive_bitwidth == 64
    FREQUENCIES: tl.constexpr = 32 if FINE else 16
    row = tl.arange(0, ROWS)
    last, following = _around(bag_ptr, n, y, ROWS)
    last, following = last.to(tl.float64), following.to(tl.float64)
    centre = last / 2 + following / 2
    half = (last - centre) + tl.log(2.0 * n.to(tl.float64))
    target = (y - positive).to(tl.float64)
    tau, variance = _tilt(bag_ptr, n, free.to(tl.float64), target, centre, half, ROWS)

    if FINE:
        reach = tl.ceil(8.0 * tl.sqrt(variance)).to(tl.int32) + 24
        negligible = 18.0
    else:
        reach = tl.ceil(6.0 * tl.sqrt(variance)).to(tl.int32) + 11
        negligible = 9.5
    points = tl.minimum(reach, n) + 1
    points += 1 - points % 2  # odd, so that no factor vanishes
    index = tl.arange(0, FREQUENCIES)
    half_step = tl.full((), 3.141592653589793, tl.float64) / points.to(tl.float64)
    cos, sin = _powers(half_step, FREQUENCIES)  # of half of omega
    used = (2 * index < points) & (sin * sin * (variance - 0.25) <= negligible)
    twice_cos2, sin_omega = 2.0 * cos * cos, 2.0 * sin * cos

    # Per lane: the product of q + p exp(i omega), the log-scale of the tilt, labels above it.
    real = tl.full((FREQUENCIES, ROWS), 1.0, tl.float64)
    imag = tl.full((FREQUENCIES, ROWS), 0.0, tl.float64)
    scale = tl.zeros((ROWS,), tl.float64)
    top = tl.zeros((ROWS,), tl.int32)
    for at in range(0, n, ROWS):
        z = tl.load(bag_ptr + at + row, mask=at + row < n, other=-float("inf")).to(tl.float64)
        x = (z - centre) + tau
        w = tl.exp(-tl.abs(x))
        p = tl.where(x > 0, 1.0, w) / (1.0 + w)
        gap = tl.where(x > 0, w - 1.0, 1.0 - w) / (1.0 + w)
        a = gap[None, :] + p[None, :] * twice_cos2[:, None]
        b = p[None, :] * sin_omega[:, None]
        real, imag = times(real, imag, a, b)
        known = tl.abs(z) == float("inf")
        rest = tl.where(x > 0, tl.minimum(z, 0.0), -tl.maximum(z, 0.0))
        rest += tl.log((1.0 + w) / (1.0 + tl.exp(-tl.abs(z))))
        scale += tl.where(known, 0.0, rest)
        top += ((x > 0) & (z != float("inf"))).to(tl.int32)
    real, imag = product(real, imag, FREQUENCIES, ROWS)

    # exp(-i omega y); each frequency counts twice, for its mirror image.
    c, d = _powers((y % points).to(tl.float64) * (2.0 * half_step), FREQUENCIES)
    real, imag = times(real, imag, c, -d)
    weight = tl.where(used, tl.where(index == 0, 1.0, 2.0), 0.0) / points.to(tl.float64)
    real, imag = real * weight, imag * weight
    total = tl.sum(real, 0)
    over = (y - positive - tl.sum(top, 0)).to(tl.float64)
    tl.store(log_p_ptr, tl.log(total) + tl.sum(scale, 0) - over * (tau - centre))

    # The same sum with one factor replaced by p exp(i omega).
    real, imag = times(real / total, imag / total, twice_cos2 - 1.0, sin_omega)
    real, imag = real.to(dtype), imag.to(dtype)
    cosine, sine = twice_cos2.to(dtype), sin_omega.to(dtype)
    for at in range(0, n, ROWS):
        z = tl.load(bag_ptr + at + row, mask=at + row < n, other=-float("inf"))
        x = ((z.to(tl.float64) - centre) + tau).to(dtype)
        w = tl.exp(-tl.abs(x))
        p = tl.where(x > 0, 1.0, w) / (1.0 + w)
        gap = tl.where(x > 0, w - 1.0, 1.0 - w) / (1.0 + w)
        a = gap[None, :] + p[None, :] * cosine[:, None]
        b = p[None, :] * sine[:, None]
        part = (real[:, None] * a + imag[:, None] * b) / (a * a + b * b)
        phi = p * tl.sum(part, 0)
        phi = tl.where(phi < 0.0, 0.0, tl.where(phi > 1.0, 1.0, phi))  # by rounding
        tl.store(phi_ptr + at + row, phi, mask=at + row < n)


@triton.jit
def _plain(bag_ptr, log_p_ptr, phi_ptr, n, y, positive, free, sick, ROWS: tl.constexpr):
    """A bag whose unknown labels are all equal, or that is impossible, or that has a NaN."""
    dtype: tl.constexpr = bag_ptr.dtype.element_ty
    row = tl.arange(0, ROWS)
    ones = y == positive + free
    possible = ones | (y == positive)
    log_p = tl.zeros((ROWS,), tl.float64)
    for at in range(0, n, ROWS):
        z = tl.load(bag_ptr + at + row, mask=at + row < n, other=-float("inf"))
        known = tl.abs(z) == float("inf")
        w = tl.exp(-tl.abs(z))
        prior = tl.where(z > 0, 1.0, w) / (1.0 + w)
        phi = tl.where(possible & (known == 0), ones.to(dtype), prior)
        tl.store(phi_ptr + at + row, tl.where(sick, float("nan"), phi), mask=at + row < n)
        x = tl.where(ones, z, -z).to(tl.float64)
        log_p += tl.where(known, 0.0, tl.minimum(x, 0.0) - tl.log(1.0 + tl.exp(-tl.abs(x))))
    total = tl.where(possible, tl.sum(log_p, 0), -float("inf"))
    tl.store(log_p_ptr, tl.where(sick, float("nan"), total))


@triton.jit(do_not_specialize=["num_bags", "span"])
def large(
    z_ptr,
    counts_ptr,
    offsets_ptr,
    log_p_ptr,
    phi_ptr,
    num_bags,
    span,
    LEAST: tl.constexpr,
    ROWS: tl.constexpr,
    SCAN: tl.constexpr,
):
    """Bags of ``LEAST`` instances and more among the ``span`` bags of this program."""
    first = tl.program_id(0).to(tl.int64) * span
    last = tl.minimum(first + span, num_bags)
    row = tl.arange(0, ROWS)
    for part in range(first, last, SCAN):
        bags = part + tl.arange(0, SCAN)
        begin = tl.load(offsets_ptr + bags, mask=bags < last, other=0)
        size = tl.load(offsets_ptr + bags + 1, mask=bags < last, other=0) - begin
        bags = tl.where(size >= LEAST, bags, last)
        bag = tl.min(bags, 0)
        while bag < last:
            start = tl.load(offsets_ptr + bag)
            n = (tl.load(offsets_ptr + bag + 1) - start).to(tl.int32)
            y = tl.load(counts_ptr + bag)
            y = tl.minimum(tl.maximum(y, -1), n + 1).to(tl.int32)
            positive = tl.zeros((ROWS,), tl.int32)
            negative = tl.zeros((ROWS,), tl.int32)
            nan = tl.zeros((ROWS,), tl.int32)
            for at in range(0, n, ROWS):
                z = tl.load(z_ptr + start + at + row, mask=at + row < n, other=0.0)
                positive += (z == float("inf")).to(tl.int32)
                negative += (z == -float("inf")).to(tl.int32)
                nan += (z != z).to(tl.int32)
            ones = tl.sum(positive, 0)
            free = n - ones - tl.sum(negative, 0)
            sick = tl.sum(nan, 0) > 0
            if (y > ones) & (y < ones + free) & (sick == 0):
                _fourier(z_ptr + start, log_p_ptr + bag, phi_ptr + start, n, y, ones, free, ROWS)
            else:
                _plain(
                    z_ptr + start, log_p_ptr + bag, phi_ptr + start, n, y, ones, free, sick, ROWS
                )
            bag = tl.min(tl.where(bags > bag, bags, last), 0)
