"""The fitted model's bag likelihood compared with that of a constant rate for all instances."""

from typing import Any

import torch

from llpkit.evaluation import Gain, compared, gain, measurable
from llpkit.likelihood.budget import best_log_prob, cost, even_sample
from llpkit.training.loop import Session
from llpkit.training.measures import BUDGET
from llpkit.training.shards import Shard

_COST_OF_A_PASS = 2**8
"""States of the recursion that cost about as much as one instance's forward pass, so that the final
measurement covers some 16,000 instances."""


def compare_with_baseline(session: Session) -> dict[str, Any]:
    """The model's gain over a constant rate on held-out bags and on a sample of training bags."""
    training = held_out = None
    if session.recipe.measure != "off":
        training = _gain(session, session.shard, _sample(session))
    if session.held_out_shard is not None:
        everything = torch.arange(len(session.held_out_shard.whole))
        held_out = _gain(session, session.held_out_shard, everything)
    return compared(session.measures.rate, training, held_out)


def _sample(session: Session) -> torch.Tensor:
    """Numbers of the training bags that are cheap enough to measure."""
    bags, blocks = session.shard.whole, session.blocks
    candidates = torch.arange(len(bags)) if blocks is None else blocks.sample()
    costs = cost(bags.evidence, bags.sizes) + _COST_OF_A_PASS * bags.sizes
    return candidates[even_sample(costs[candidates], BUDGET)]


def _gain(session: Session, shard: Shard, chosen: torch.Tensor) -> Gain | None:
    """The gain on some bags of all processes; each computes the log-likelihoods of its own."""
    bags, device = shard.whole[chosen], session.task.device
    if not bool(measurable(bags).any()):
        return None
    mine = torch.isin(chosen, shard.numbers)
    log_p = torch.zeros(0, dtype=torch.float64)
    # With FSDP all processes take part in every forward pass, even without bags of their own.
    if bool(mine.any()) or session.processes.fsdp:
        own = bags[mine].to(device)
        logits = session.bag_logits(own)
        if len(own):
            log_p = best_log_prob(logits, own.evidence, own.offsets)
    log_p = log_p.to(device, torch.float64)
    log_p = session.processes.gather_rows(log_p, torch.where(mine)[0], len(chosen))
    return gain(log_p, bags, session.measures.rate)
