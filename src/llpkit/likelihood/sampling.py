"""Label combinations of binary bags: exact posterior samples, and the most probable one."""

import torch
from torch import Tensor

from llpkit.likelihood.binary import Tilted, evaluate, tilt, tilted_log_weight, without_known
from llpkit.likelihood.pieces import Pieces
from llpkit.ragged import bag_index, descending, ranges, segment_sum, to_offsets


def sample(
    z: Tensor, offsets: Tensor, pieces: Pieces, generator: torch.Generator | None, copies: int
) -> Tensor:
    r"""Labels ``(copies, N)`` drawn from ``P(h | evidence)`` exactly.

    Rejection sampling: independent labels are drawn in the tilted measure and accepted with
    probability :math:`w_t(k) / w_t(c)` for their count ``k``. About one try in
    :math:`\sqrt{2\pi\sigma^2}` is accepted; rejected bags are drawn again.
    """
    labels = (z > 0).to(torch.int64).repeat(copies, 1)  # correct for known labels
    inner, inner_offsets, inner_pieces = without_known(z, offsets, pieces)
    drawn = _sample_free(inner, inner_offsets, inner_pieces, generator, copies)
    labels[:, z.isfinite()] = drawn
    return labels


def _sample_free(
    z: Tensor, offsets: Tensor, pieces: Pieces, generator: torch.Generator | None, copies: int
) -> Tensor:
    num_bags, sizes = len(offsets) - 1, offsets.diff()
    piece = torch.arange(num_bags, device=z.device).repeat(copies)
    if not pieces.one_each:
        piece = _choose_piece(z, offsets, pieces, generator, copies)
    tilted, by_piece = _tilt_pieces(z, offsets, pieces)

    bag = pieces.bag[piece]  # (copies * B,)
    out_offsets = to_offsets(sizes[bag])
    labels = torch.zeros(int(out_offsets[-1]), dtype=torch.int64, device=z.device)
    waiting = torch.arange(len(piece), device=z.device)  # bags still without accepted labels
    while len(waiting):
        of, lengths = piece[waiting], sizes[bag[waiting]]
        p = tilted.p[ranges(tilted.offsets[of], lengths)]
        draw = torch.rand(len(p), dtype=p.dtype, device=p.device, generator=generator) < p
        k = segment_sum(draw.to(p.dtype), to_offsets(lengths)).to(torch.int64)
        chance = tilted_log_weight(tilted, by_piece, of, k).exp()
        keep = torch.rand(len(k), dtype=p.dtype, device=p.device, generator=generator) < chance
        target = ranges(out_offsets[waiting], lengths)
        kept = torch.repeat_interleave(keep, lengths)
        labels[target[kept]] = draw[kept].to(torch.int64)
        waiting = waiting[~keep]
    return labels.reshape(copies, len(z))


def _tilt_pieces(z: Tensor, offsets: Tensor, pieces: Pieces) -> tuple[Tilted, Pieces]:
    """Every piece with its own copy of its bag's instances."""
    if pieces.one_each:
        return tilt(z, offsets, pieces), pieces
    sizes = offsets.diff()[pieces.bag]
    own = pieces.take(torch.arange(len(sizes), device=z.device))
    return tilt(z[ranges(offsets[pieces.bag], sizes)], to_offsets(sizes), own), own


def _choose_piece(
    z: Tensor, offsets: Tensor, pieces: Pieces, generator: torch.Generator | None, copies: int
) -> Tensor:
    """A piece for every copy of every bag, drawn by probability (Gumbel-max trick)."""
    sizes = offsets.diff()[pieces.bag]
    own = pieces.take(torch.arange(len(sizes), device=z.device))
    own = own._replace(bag=torch.arange(len(sizes), device=z.device), one_each=True)
    log_piece, _, _ = evaluate(z[ranges(offsets[pieces.bag], sizes)], to_offsets(sizes), own)
    starts = to_offsets(torch.bincount(pieces.bag, minlength=len(offsets) - 1))
    # Relative to the bag's best piece: added to a huge number, the noise would be rounded away.
    log_piece = log_piece - torch.segment_reduce(log_piece, "max", offsets=starts)[pieces.bag]
    uniform = torch.rand((copies, len(sizes)), dtype=z.dtype, device=z.device, generator=generator)
    score = log_piece - (-uniform.log()).log()  # (copies, P)
    best = [torch.segment_reduce(row, "max", offsets=starts)[pieces.bag] == row for row in score]
    return torch.cat([row.nonzero()[:, 0] for row in best])


def mode(z: Tensor, offsets: Tensor, pieces: Pieces) -> Tensor:
    """The most probable labels ``(N,)``: the largest logits are positive, up to the best count."""
    inner, inner_offsets, inner_pieces = without_known(z, offsets, pieces)
    labels = (z > 0).to(torch.int64)
    labels[z.isfinite()] = _mode_free(inner, inner_offsets, inner_pieces)
    return labels


def _mode_free(z: Tensor, offsets: Tensor, pieces: Pieces) -> Tensor:
    sizes = offsets.diff()[pieces.bag]
    own = pieces.take(torch.arange(len(sizes), device=z.device))
    order = descending(z, offsets)
    rows = ranges(offsets[pieces.bag], sizes)
    piece_offsets = to_offsets(sizes)
    piece = bag_index(piece_offsets)
    rank = ranges(torch.zeros_like(sizes), sizes)  # within the piece
    ordered = z[order][rows]  # per piece, largest first

    # Within a piece the gain of one more positive decreases, so count the steps that still gain.
    low, high = own.low.clamp(min=0), torch.minimum(own.high, sizes)
    gain = ordered + own.take(piece).slope(rank)
    steps = (rank >= low[piece]) & (rank < high[piece]) & (gain > 0)
    count = low + segment_sum(steps.to(z.dtype), piece_offsets).to(torch.int64)
    positive = rank < count[piece]
    score = segment_sum(torch.where(positive, ordered, 0.0), piece_offsets) + own.log_weight(count)
    score = torch.where(low <= high, score, -torch.inf)

    starts = to_offsets(torch.bincount(pieces.bag, minlength=len(offsets) - 1))
    best = torch.segment_reduce(score, "max", offsets=starts, initial=-torch.inf)
    winner = (score == best[pieces.bag]).nonzero()[:, 0]
    first = winner[torch.searchsorted(pieces.bag[winner], torch.arange(len(best), device=z.device))]
    of_winner = rank < torch.repeat_interleave(count, sizes)
    labels = torch.zeros(len(z), dtype=torch.int64, device=z.device)
    labels[order] = of_winner[ranges(piece_offsets[first], offsets.diff())].to(torch.int64)
    return labels
