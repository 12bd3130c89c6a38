r"""Triton kernel for bags of up to 32 instances: prefixes and suffixes in registers.

The rarer label is counted: with ``k`` of them and logits :math:`z_i` towards them,

.. math:: P(k) \propto [s^k] \prod_i (a_i + b_i s), \qquad
          a_i = \min(1, e^{-x_i}), \quad b_i = \min(1, e^{x_i}), \quad x_i = z_i - c.

All terms are positive, so sums are accurate to rounding, and only overflow and underflow matter.
Neither occurs if ``c`` is the ``k``-th largest logit: then the coefficient lies between 1, the term
of the ``k`` largest, and :math:`\binom nk`. With :math:`\sum |z_i|` below :data:`MODERATE` it is in
range with ``c = 0`` too, and the search for ``c`` is skipped.

A lane owns ``OWN`` neighbouring instances of one bag. The vector ``tail[j]``, the weight of
reaching ``k`` from ``j``, first absorbs the rest of the bag; then prefixes of the lane's own
instances are combined with the tail as it moves back over them. All indices are constants, so
everything stays in registers.
"""
# mypy: ignore-errors
# (the functions are in Triton's language, which only looks like Python)
# ruff: noqa: RUF005 - the compiler knows tuples that are added, not tuples that are unpacked

import triton
import triton.language as tl

MODERATE = tl.constexpr(80.0)
"""Sum of a bag's absolute logits up to which no product leaves float32's range."""


@triton.jit
def _logit(bag_ptr, i, n, flip):
    """Logit towards the counted label; ``-inf`` (never that label) past the end of the bag."""
    z = tl.load(bag_ptr + i, mask=i < n, other=0.0)
    return tl.where(i < n, tl.where(flip, -z, z), -float("inf"))


@triton.jit
def _block(
    first,
    z_ptr,
    counts_ptr,
    offsets_ptr,
    log_p_ptr,
    phi_ptr,
    num_bags,
    LEAST: tl.constexpr,
    MOST: tl.constexpr,
    OWN: tl.constexpr,
    LANES: tl.constexpr,
):
    """Solve the bags from ``first`` on that have the right size, one or several lanes each."""
    PARTS: tl.constexpr = MOST // OWN
    K: tl.constexpr = MOST // 2
    dtype: tl.constexpr = z_ptr.dtype.element_ty
    lane = tl.arange(0, LANES)
    bag, part = first + lane // PARTS, lane % PARTS
    begin = tl.load(offsets_ptr + bag, mask=bag < num_bags, other=0)
    size = tl.load(offsets_ptr + bag + 1, mask=bag < num_bags, other=0) - begin
    mine = (bag < num_bags) & (size >= LEAST) & (size <= MOST)
    if tl.max(mine.to(tl.int32), 0) > 0:
        n = tl.where(mine, size, 0).to(tl.int32)
        y = tl.load(counts_ptr + bag, mask=mine, other=0)
        y = tl.minimum(tl.maximum(y, -1), size + 1).to(tl.int32)  # others are as impossible
        flip = 2 * y > n
        k = tl.where(flip, n - y, y)
        bag_ptr = z_ptr + begin

        zero = tl.zeros((LANES,), dtype)
        length, norm = zero, zero + 1.0
        z = ()
        for i in tl.static_range(MOST):
            zi = _logit(bag_ptr, i, n, flip)
            length += tl.where(i < n, tl.abs(zi), 0.0)
            norm *= 1.0 + tl.exp(-tl.abs(zi))
            z = z + (zi,)

        # log P(k) = shift - log(norm) + log of the coefficient.
        centre, shift = zero, zero
        if tl.min((length <= MODERATE).to(tl.int32), 0) == 0:
            below = zero
            for r in range(MOST):
                zr = _logit(bag_ptr, r, n, flip)
                rank = tl.zeros((LANES,), tl.int32)
                for q in tl.static_range(MOST):
                    rank += ((z[q] > zr) | ((z[q] == zr) & (q < r))).to(tl.int32)
                centre = tl.where(rank == tl.maximum(k, 1) - 1, zr, centre)
                below = tl.where(rank == k, zr, below)
                shift += tl.where(rank < k, tl.minimum(zr, 0.0), -tl.maximum(zr, 0.0))
            # An infinite logit is a known label; the centre is among the others.
            centre = tl.where(centre == float("inf"), below, centre)
            centre = tl.where(tl.abs(centre) == float("inf"), 0.0, centre)

        tail = ()
        for j in tl.static_range(K + 1):
            tail = tail + (tl.where(k == j, 1.0, zero),)
        if PARTS > 1:
            for o in range(MOST):
                x = _logit(bag_ptr, o, n, flip) - centre
                w = tl.exp(-tl.abs(x))
                other = part != o // OWN
                a = tl.where(other & (x > 0), w, 1.0)
                b = tl.where(other, tl.where(x > 0, 1.0, w), 0.0)
                new = ()
                for m in tl.static_range(K):
                    new = new + (a * tail[m] + b * tail[m + 1],)
                tail = new + (a * tail[K],)

        # rows[s][j] is the coefficient of s^j in the product of the first s factors of the lane.
        stay, rise, rows = (), (), ((zero + 1.0,),)
        for s in tl.static_range(OWN):
            if PARTS > 1:
                x = _logit(bag_ptr, part * OWN + s, n, flip) - centre
            else:
                x = z[s] - centre
            w = tl.exp(-tl.abs(x))
            a = tl.where(x > 0, w, 1.0)
            b = tl.where(x > 0, 1.0, w)
            row = (a * rows[s][0],)
            for j in tl.static_range(1, K + 1):
                if j <= s:
                    row = row + (a * rows[s][j] + b * rows[s][j - 1],)
                elif j == s + 1:
                    row = row + (b * rows[s][s],)
            stay, rise, rows = stay + (a,), rise + (b,), rows + (row,)

        total = zero
        for j in tl.static_range(K + 1):
            if j <= OWN:
                total += rows[OWN][j] * tail[j]
        total = tl.where(length == length, total, float("nan"))
        log_p = shift - tl.log(norm) + tl.log(total)
        tl.store(log_p_ptr + bag, log_p, mask=mine & (part == 0))

        share = 1.0 / total
        for s in tl.static_range(OWN - 1, -1, -1):
            value = rows[s][0] * tail[1]
            for j in tl.static_range(1, K):
                if j <= s:
                    value += rows[s][j] * tail[j + 1]
            value = value * rise[s] * share
            value = tl.where(value > 1.0, 1.0, value)  # by rounding
            i = part * OWN + s
            tl.store(phi_ptr + begin + i, tl.where(flip, 1.0 - value, value), mask=i < n)
            new = (tail[0],)
            for j in tl.static_range(1, K):
                new = new + (stay[s] * tail[j] + rise[s] * tail[j + 1],)
            tail = new + (stay[s] * tail[K],)

        # No label combination agrees with the count: the posterior is the prior.
        if tl.max((total == 0.0).to(tl.int32), 0) > 0:
            for r in range(MOST):
                zr = _logit(bag_ptr, r, n, flip)
                w = tl.exp(-tl.abs(zr))
                prior = tl.where((zr > 0) != flip, 1.0, w) / (1.0 + w)
                tl.store(phi_ptr + begin + r, prior, mask=(total == 0.0) & (r < n))


@triton.jit(do_not_specialize=["num_bags", "span"])
def small(
    z_ptr,
    counts_ptr,
    offsets_ptr,
    log_p_ptr,
    phi_ptr,
    num_bags,
    span,
    LEAST: tl.constexpr,
    MOST: tl.constexpr,
    OWN: tl.constexpr,
    LANES: tl.constexpr,
    SCAN: tl.constexpr,
    FEW: tl.constexpr,
):
    """Bags of ``LEAST`` to ``MOST`` instances among the ``span`` bags of this program.

    If none of the bags in a block has more than ``FEW`` instances, lanes process only that many.
    """
    BAGS: tl.constexpr = LANES * OWN // MOST
    first = tl.program_id(0).to(tl.int64) * span
    last = tl.minimum(first + span, num_bags)
    arrays = (z_ptr, counts_ptr, offsets_ptr, log_p_ptr, phi_ptr, num_bags)
    for part in range(first, last, SCAN):
        found, few = True, False
        if SCAN > BAGS or FEW > 0:  # look for any before looking closer
            bag = part + tl.arange(0, SCAN)
            begin = tl.load(offsets_ptr + bag, mask=bag < last, other=0)
            size = tl.load(offsets_ptr + bag + 1, mask=bag < last, other=0) - begin
            found = tl.max(((size >= LEAST) & (size <= MOST)).to(tl.int32), 0) > 0
            few = tl.max(size, 0) <= FEW
        if found:
            for at in range(part, tl.minimum(part + SCAN, last), BAGS):
                if FEW == 0:
                    _block(at, *arrays, LEAST, MOST, OWN, LANES)
                elif few:
                    _block(at, *arrays, LEAST, FEW, FEW, LANES)
                else:
                    _block(at, *arrays, LEAST, MOST, OWN, LANES)
