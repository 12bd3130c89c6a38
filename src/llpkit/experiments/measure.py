"""Metrics of a run on its test fold, which are never used for selection."""

import math
from typing import Any

import torch
from torch import Tensor

from llpkit import evaluation
from llpkit.bags import Bags
from llpkit.likelihood.budget import cost, even_sample
from llpkit.ragged import instances_of
from llpkit.training import Callback, Feed
from llpkit.training.callbacks import instance_measures
from llpkit.training.measures import BUDGET

EXAMPLES = 12
"""The most test bags whose predictions a record keeps, and the most instances of each."""
_EASY = range(4, 9)


class TestFoldMeasures(Callback):
    """Measures the test fold after every epoch, or only after the last."""

    def __init__(
        self, inputs: Any, truth: Any, bags: Bags, training: Bags, every_epoch: bool
    ) -> None:
        self.inputs, self.truth, self.bags = inputs, truth[bags.rows], bags
        # With many classes the likelihood of all bags would take longer than an epoch.
        chosen = even_sample(cost(bags.evidence, bags.sizes), BUDGET)
        self.some, self.at = bags[chosen], instances_of(bags.offsets, chosen)[0]
        rate = evaluation.constant_rate(training)
        self.baseline = float(evaluation.baseline_log_likelihood(self.some, rate).mean())
        self.every_epoch = every_epoch
        self.feed: Feed | None = None
        self.logits: Tensor | None = None

    def on_epoch(self, session: Any, row: dict[str, Any]) -> None:
        """Add the metrics to the row of the epoch."""
        if not self.every_epoch and row["epoch"] < session.epochs:
            return
        z = self._look(session)
        row |= instance_measures(z, self.truth)
        measured = evaluation.bag_log_likelihood(z[self.at], self.some)
        row["test_log_likelihood"] = float(measured.mean())
        row["test_baseline_log_likelihood"] = self.baseline

    def on_end(self, session: Any) -> None:
        """Predict once more if a resumed run had no epoch left."""
        if self.logits is None:
            self._look(session)

    def _look(self, session: Any) -> Tensor:
        # Made once: the test inputs stay on the training device for all epochs.
        if self.feed is None:
            self.feed = Feed(self.inputs[self.bags.rows], session.task.device)
        self.logits = session.logits(self.feed).double().cpu()
        return self.logits

    def examples(self) -> list[dict[str, Any]]:
        """Predictions of a few test bags, preferably with mixed labels and of a convenient size.

        Empty for several classes: pages show the probability of one class.
        """
        bags, y = self.bags, self.bags.counts
        if y.dim() > 1:
            return []
        mixed = (y > 0) & (y < bags.sizes)
        easy = mixed & (bags.sizes >= _EASY.start) & (bags.sizes < _EASY.stop)
        # 2: mixed and of convenient size, 1: mixed, 0: the rest; a stable sort keeps their order.
        order = torch.argsort(easy.long() + mixed.long(), descending=True, stable=True)
        return [self._example(at) for at in order[:EXAMPLES].tolist()]

    def _example(self, at: int) -> dict[str, Any]:
        assert self.logits is not None
        bags, start = self.bags, int(self.bags.offsets[at])
        size = int(bags.sizes[at])
        part = slice(start, start + min(size, EXAMPLES))
        return {
            "bag": str(bags.ids[at]),
            "count": int(bags.counts[at]),
            "size": size,
            "rows": bags.rows[part].tolist(),
            "probability": [round(p, 5) for p in self.logits[part].sigmoid().tolist()],
            "truth": self.truth[part].tolist(),
        }


def at_epoch(row: dict[str, Any]) -> dict[str, Any]:
    """The metrics of an epoch under the names of a record."""
    names = [name for name in row if name.startswith(("test_", "held_out_"))]
    return {name.removeprefix("test_"): _plain(name, row[name]) for name in ("epoch", *names)}


def columns(history: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The history, one list per metric."""
    names = dict.fromkeys(name for row in history for name in row)
    return {name: [_plain(name, row.get(name)) for row in history] for name in names}


def _plain(name: str, value: Any) -> Any:
    """A finite number or ``None``: accuracies in full, the rest to seven digits."""
    if value is None or isinstance(value, int):
        return value
    if not math.isfinite(value):
        return None
    return value if name.endswith("accuracy") else float(f"{value:.7g}")
