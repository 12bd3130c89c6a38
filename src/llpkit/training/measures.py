"""What is measured: after every epoch metrics of bags, at the end the gain over a constant rate."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from llpkit.bags import Bags
from llpkit.evaluation import (
    Gain,
    baseline_log_likelihood,
    compared,
    constant_rate,
    gain,
    mean_log_likelihood,
    measurable,
    proportion_error,
)
from llpkit.likelihood.budget import best_log_prob, cost, even_sample
from llpkit.probability import probability_of
from llpkit.ragged import instances_of
from llpkit.training.callbacks import Row
from llpkit.training.processes import Processes
from llpkit.training.shards import Shard

if TYPE_CHECKING:
    from llpkit.training.loop import Session

BUDGET = 2**22
"""Maximum number of states of the exact recursion for measuring the training bags per epoch: with
K classes, about a tenth of a second on one core. See :func:`llpkit.likelihood.budget.cost`."""
_COST_OF_A_PASS = 2**8
"""States of the recursion that cost about as much as one instance's forward pass, so that the final
measurement covers some 16,000 instances."""


class Measures:
    """Measures the training bags and the held-out bags of a run.

    Args:
        bags: The training bags of this process, on the training device.
        which: Training bags to measure: ``"auto"`` (within :data:`BUDGET`), ``"all"`` or ``"off"``.
        whole: The training bags of all processes.
        processes: All of them get the means over all their bags.
    """

    def __init__(
        self, bags: Bags, which: str, whole: Bags | None = None, processes: Processes | None = None
    ) -> None:
        self.bags, self.which = bags, which
        self.processes = processes or Processes()
        self._host = bags.to("cpu")
        self.rate = constant_rate(self._host if whole is None else whole)  # () or (K,)
        self._baselines: dict[tuple[str, int], tuple[Tensor, float, int]] = {}
        self._sample = self._sampled()

    def _sampled(self) -> tuple[Bags, Tensor] | None:
        """An even sample of the bags and the positions of its instances, or ``None`` for all."""
        host = self._host
        if self.which != "auto" or host.num_classes in (None, 2):
            return None  # two classes are always cheap
        chosen = even_sample(cost(host.evidence, host.sizes), BUDGET / self.processes.number)
        if len(chosen) == len(host):
            return None
        positions = instances_of(host.offsets, chosen)[0]
        return host[chosen].to(self.bags.device), positions.to(self.bags.device)

    def training(self, logits: Tensor, log_p: Tensor | None) -> Row:
        """Measure the training bags from logits in engine order.

        Args:
            logits: ``(N,)`` or ``(N, K)``.
            log_p: Exact log-likelihoods ``(B,)`` where the method has computed them.
        """
        if self.which == "off":
            return {}
        # The E-step of a method gives the likelihood of all bags for free.
        if log_p is not None or self._sample is None:
            return self.of(logits, self.bags, "", log_p)
        some, positions = self._sample
        row, number = self._of(logits[positions], some, "", None)
        row["proportion_error"] = proportion_error(probability_of(logits), self.bags)
        number["proportion_error"] = int(self._host.informative.sum())
        measured = int(self.processes.sum(torch.tensor(len(some), device=self.bags.device)))
        return self.processes.means(row, number) | {"measured_bags": measured}

    def of(self, logits: Tensor, bags: Bags, prefix: str, log_p: Tensor | None = None) -> Row:
        """Measure some bags; the names of the metrics start with ``prefix``."""
        return self.processes.means(*self._of(logits, bags, prefix, log_p))

    def _of(
        self, logits: Tensor, bags: Bags, prefix: str, log_p: Tensor | None
    ) -> tuple[dict[str, float], dict[str, int]]:
        """The metrics of this process's bags, and how many bags each is the mean of."""
        names = [f"{prefix}{k}" for k in ("log_likelihood", "baseline_log_likelihood")]
        names.append(f"{prefix}proportion_error")
        key = prefix, len(bags)  # all training bags, or the sample of them
        if key not in self._baselines:  # the same in every epoch
            able = measurable(bags)
            base = baseline_log_likelihood(bags, self.rate)[able.cpu()].mean()
            self._baselines[key] = able, float(base), int(able.sum())
        able, baseline, number = self._baselines[key]
        mean = mean_log_likelihood(logits, bags) if log_p is None else float(log_p[able].mean())
        values = mean, baseline, proportion_error(probability_of(logits), bags)
        numbers = number, number, int(bags.informative.sum())
        return dict(zip(names, values, strict=True)), dict(zip(names, numbers, strict=True))


def compare_with_baseline(session: "Session") -> dict[str, Any]:
    """The model's gain over a constant rate on held-out bags and on a sample of training bags."""
    training = held_out = None
    if session.recipe.measure != "off":
        training = _gain(session, session.shard, _sample(session))
    if session.held_out_shard is not None:
        everything = torch.arange(len(session.held_out_shard.whole))
        held_out = _gain(session, session.held_out_shard, everything)
    return compared(session.measures.rate, training, held_out)


def _sample(session: "Session") -> Tensor:
    """Numbers of the training bags that are cheap enough to measure."""
    bags, blocks = session.shard.whole, session.blocks
    candidates = torch.arange(len(bags)) if blocks is None else blocks.sample()
    costs = cost(bags.evidence, bags.sizes) + _COST_OF_A_PASS * bags.sizes
    return candidates[even_sample(costs[candidates], BUDGET)]


def _gain(session: "Session", shard: Shard, chosen: Tensor) -> Gain | None:
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
