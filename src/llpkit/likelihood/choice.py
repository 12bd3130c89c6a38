"""The meaning of ``approximation="auto"``: exact where that is cheap enough."""

from torch import Tensor

from llpkit.evidence import Evidence
from llpkit.likelihood.checks import Approximation
from llpkit.likelihood.classes import MAX_STATES, count_states

EXACT_COST = 2**30
"""Moves of the exact recursion, over all bags, up to which ``"auto"`` is exact: compiled, about a
second on one core."""


def choose_approximation(
    evidence: Evidence, sizes: Tensor, max_states: int = MAX_STATES
) -> Approximation:
    """What ``approximation="auto"`` does with these bags: ``None`` (exact) or ``"saddlepoint"``.

    Exact if every bag has at most ``max_states`` states and all bags together at most
    :data:`EXACT_COST` moves. Counts that are not exact always take the exact likelihood.

    Args:
        evidence: What is known about the counts of ``B`` bags.
        sizes: The bag sizes, int64 ``(B,)``.
        max_states: The largest recursion allowed for one bag, in states.

    >>> import torch
    >>> sizes = torch.tensor([40, 40])
    >>> choose_approximation(Evidence.exact([[4] * 10] * 2), sizes)
    'saddlepoint'
    >>> choose_approximation(Evidence.exact([[20, 15, 5]] * 2), sizes) is None
    True
    """
    if evidence.num_classes in (None, 2) or not evidence.is_exact:
        return None
    states = count_states(evidence, sizes)
    cheap = (states.sum() * evidence.low.shape[1] <= EXACT_COST) & (states <= max_states).all()
    return None if bool(cheap) else "saddlepoint"


def resolve(
    approximation: Approximation, evidence: Evidence, sizes: Tensor, max_states: int = MAX_STATES
) -> Approximation:
    """The approximation itself, or what ``"auto"`` chooses."""
    if approximation != "auto":
        return approximation
    return choose_approximation(evidence, sizes, max_states)


def choice_note(chosen: Approximation) -> str:
    """The note for the user if ``"auto"`` chose an approximation."""
    return (
        f'training uses approximation="{chosen}", because the exact likelihood of these bags would '
        "be slow or intractable"
    )
