"""Metrics after every epoch: likelihoods of bags and of a constant rate, proportion errors."""

import torch
from torch import Tensor

from llpkit.bags import Bags
from llpkit.evaluation import (
    baseline_log_likelihood,
    constant_rate,
    mean_log_likelihood,
    measurable,
    proportion_error,
)
from llpkit.likelihood.budget import cost, even_sample
from llpkit.probability import probability_of
from llpkit.ragged import instances_of
from llpkit.training.callbacks import Row
from llpkit.training.processes import Processes

BUDGET = 2**22
"""Maximum number of states of the exact recursion for measuring the training bags per epoch: with
K classes, about a tenth of a second on one core. See :func:`llpkit.likelihood.budget.cost`."""


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
