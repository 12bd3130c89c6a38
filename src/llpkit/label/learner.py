"""Models trained in the background as answers arrive, and what they believe."""

import functools
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit
from torch import Tensor

from llpkit.bags import Bags
from llpkit.label import learning
from llpkit.label.counts import KnownCount, TrainingBag, bags_of
from llpkit.label.learning import Beliefs

_EVERY = 4  # changed answers between two trainings
_UNLIKELY = 0.05
_SHARE = 20  # at most one counted bag in this many is listed as a possible miscount
_MISCOUNTS = 6
_UNSURE = 12


class Snapshot(NamedTuple):
    """Everything known at one moment."""

    known: dict[int, KnownCount]
    """What the answers say about each counted bag."""
    labels: dict[int, int]
    parts: list[TrainingBag]
    """The counts and labels as bags to learn from."""
    facts: set[tuple[object, ...]]
    """The single answers, for comparison with an earlier moment."""
    complete: bool
    """Whether every item is in a counted bag."""


class BackgroundLearner:
    """Trains models in the background whenever enough has changed.

    Args:
        pool: Where models are trained; ``None`` trains none.
        features: Those of all items, ``(N, D)``; ``None`` without a pool.
        num_bags: How many bags there will be; if there are few, fewer counts start a training.
        seed: Seed for training.
        snapshot: Returns what is known now.
        lock: Held while the attributes change; a training ends in another thread.
    """

    def __init__(
        self,
        pool: Executor | None,
        features: Tensor | None,
        *,
        num_bags: int,
        seed: int,
        snapshot: Callable[[], Snapshot],
        lock: threading.RLock,
    ) -> None:
        self._pool, self._features, self._seed = pool, features, seed
        self._snapshot, self._lock = snapshot, lock
        self.least = min(learning.LEAST, max(learning.FOLDS, num_bags))
        """Counts and labels before the first training."""
        self.beliefs: Beliefs | None = None
        self.history: list[dict[str, float]] = []
        self.verdict: str | None = None
        """Whether the models have learned anything, in words."""
        self.trainings = 0
        self.error: str | None = None
        self.is_training = False
        self.test: Tensor | None = None
        """Features of items that nobody counts, for a demonstration."""
        self._facts: set[tuple[object, ...]] = set()  # of the last training

    def update(self) -> None:
        """Start a training if enough has changed since the last one."""
        if self._pool is None or self._features is None or self.is_training:
            return
        now = self._snapshot()
        # A corrected count removes one fact and adds another.
        changed = max(len(now.facts - self._facts), len(self._facts - now.facts))
        # Once everything is counted, no further answer would trigger learning from the last few.
        if changed < (1 if now.complete else _EVERY) or len(now.parts) < self.least:
            return
        self._facts, self.is_training = now.facts, True
        bags = bags_of(now.parts, len(self._features))
        future = self._pool.submit(learning.train, self._features, bags, self._seed, self.test)
        future.add_done_callback(functools.partial(self._trained, len(now.known), len(now.labels)))

    def _trained(self, counts: int, labels: int, future: Future[Beliefs]) -> None:
        with self._lock:
            self.is_training = False
            if future.cancelled():
                return
            failure = future.exception()
            if failure is not None:
                self.error = str(failure)
                return
            self.beliefs, self.error = future.result(), None
            gain = self.beliefs.gain
            self.trainings += 1
            answers = counts + labels
            # After an undo there are fewer answers, and the later entries no longer hold.
            self.history = [each for each in self.history if each["answers"] < answers]
            self.history.append(
                {
                    "answers": answers,
                    "log_likelihood": round(gain.log_likelihood, 4),
                    "baseline": round(gain.baseline, 4),
                }
            )
            self.verdict = learning.verdict(gain, counts, labels)
            self.update()  # with answers that arrived in the meantime

    def wait(self) -> None:
        """Block until no models are being trained."""
        while self.is_training:
            time.sleep(0.01)


def unlikely_counts(
    beliefs: Beliefs,
    parts: list[TrainingBag],
    bags: Bags,
    known: dict[int, KnownCount],
    checked: Collection[int] = (),
) -> list[dict[str, Any]]:
    """Possible miscounts among counted bags, the most unlikely first.

    Args:
        beliefs: Of the models.
        parts: The counted bags.
        bags: The same.
        known: Their counts.
        checked: Those that were counted more than once, which are not listed.
    """
    chance = learning.surprise(beliefs, bags)
    expected = np.add.reduceat(expit(beliefs.logits[bags.rows.numpy()]), bags.offsets[:-1].numpy())
    # The p-values of correct counts are too small if bags of items alike are chosen by information:
    # in the demonstration, one in twelve to one in six are below the limit. Hence the share.
    most = min(_MISCOUNTS, max(1, len(parts) // _SHARE))
    found = (i for i in np.argsort(chance) if chance[i] < _UNLIKELY)
    unlikely = [i for i in found if parts[i].source not in checked][:most]
    return [
        {
            "bag": bag,
            "name": parts[i].name,
            "low": known[bag].low,
            "high": known[bag].high,
            "expected": round(float(expected[i]), 1),
            "chance": float(f"{chance[i]:.2g}"),
        }
        for i in unlikely
        if (bag := parts[i].source) is not None
    ]


def unsure_items(beliefs: Beliefs, labels: dict[int, int]) -> dict[int, float]:
    """The items without a label that the models are least sure of, and their probabilities."""
    p = expit(beliefs.logits)
    order = np.argsort(np.abs(p - 0.5), kind="stable").tolist()
    unlabelled = [item for item in order if item not in labels][:_UNSURE]
    return {item: round(float(p[item]), 4) for item in unlabelled}
