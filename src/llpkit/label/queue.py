"""Which bag each person counts next."""

import time
from collections.abc import Sequence

import numpy as np

from llpkit.label import bagging, learning
from llpkit.label.learner import BackgroundLearner
from llpkit.label.store import Store

ORDERS = ("information", "random")
_SHARED = 5  # with several people, one bag in this many has already been counted by somebody else
_HELD = 300.0  # seconds during which a bag on somebody's page is offered to nobody else

Counted = dict[int, set[str]]
"""The people who counted each bag."""


class Queue:
    """Offers bags to people; a bag that one person has on their page is not offered to another.

    Args:
        store: The bags and their answers.
        learner: Its beliefs decide which counts are worth most.
        size: The largest size of a bag made by score.
        by_score: Whether bags are made one at a time, of items with similar scores.
        order: ``"information"`` or ``"random"``.
        seed: Seed of the random orders.
    """

    def __init__(
        self,
        store: Store,
        learner: BackgroundLearner,
        *,
        size: int,
        by_score: bool,
        order: str,
        seed: int,
    ) -> None:
        self._store, self._learner = store, learner
        self._size, self._by_score, self._order, self._seed = size, by_score, order, seed
        self._offered: dict[int, tuple[str, float]] = {}

    def next(self, person: str) -> int | None:
        """The number of the bag to count next; ``None`` if there is none left."""
        counted: Counted = {}
        for answer in self._store.answers():
            counted.setdefault(answer.bag, set()).add(answer.person)
        now = time.monotonic()
        held = {bag for bag, (_, since) in self._offered.items() if now - since < _HELD}
        bag = self._on_page(person, counted)
        if bag is None:
            bag = self._shared(person, counted, held)
        if bag is None:
            free = [b for b in self._store.bags() if b not in counted and b not in held]
            bag = self._choose(free)
        if bag is not None:
            self.offer(bag, person)
        return bag

    def offer(self, bag: int, person: str) -> None:
        """Note that a bag is on a person's page."""
        self._offered[bag] = (person, time.monotonic())

    def release(self, bag: int) -> None:
        """Note that a bag was counted, and is no longer on anybody's page."""
        self._offered.pop(bag, None)

    def _on_page(self, person: str, counted: Counted) -> int | None:
        """The bag that the person was offered before and has not counted, such as on a reload."""
        own = [b for b, (who, _) in self._offered.items() if who == person]
        uncounted = [b for b in own if person not in counted.get(b, ())]
        return max(uncounted, key=lambda b: self._offered[b][1], default=None)

    def _shared(self, person: str, counted: Counted, held: set[int]) -> int | None:
        """From time to time, a bag that others have counted, to see whether people agree."""
        own = sum(person in people for people in counted.values())
        if own % _SHARED != _SHARED - 1:
            return None
        others = [b for b, people in counted.items() if person not in people and b not in held]
        return min(others, key=lambda b: (len(counted[b]), b), default=None)

    def _choose(self, free: Sequence[int]) -> int | None:
        if not free:
            return self._new_by_score() if self._by_score else None
        bags = self._store.bags()
        beliefs = self._learner.beliefs
        if beliefs is None or self._order == "random":
            # A permutation of all bags, not of the free ones: the same order in every session.
            order: list[int] = np.random.default_rng(self._seed).permutation(list(bags)).tolist()
            remaining = set(free)
            return next(bag for bag in order if bag in remaining)
        gains = learning.information(beliefs.draws, [bags[bag] for bag in free])
        return free[int(gains.argmax())]

    def _new_by_score(self) -> int | None:
        """A new bag of items that are in no bag yet, with similar scores once there is a model."""
        free = self._store.items_in_no_bag()
        if not free:
            return None
        number = len(self._store.bags()) + 1
        random = np.random.default_rng([self._seed, number])
        beliefs = self._learner.beliefs
        if beliefs is None:
            items = random.permutation(free)[: self._size].tolist()
        else:
            # Bags of items with similar scores differ most, so their counts are most informative.
            pieces = bagging.by_order(beliefs.logits[free], self._size)
            candidates = [[free[i] for i in piece] for piece in pieces]
            if self._order == "random":
                gains = random.random(len(candidates))
            else:
                gains = learning.information(beliefs.draws, candidates)
            items = candidates[int(gains.argmax())]
        return self._store.add_bag(bagging.numbered_name(number), items)
