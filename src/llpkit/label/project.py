"""A counting project: what was answered, and what the page shows of it."""

import threading
from collections import Counter
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from scipy.special import expit
from torch import Tensor

from llpkit._text import span
from llpkit._validation import one_of, option, whole
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.label import bagging, export, learning
from llpkit.label.counts import KnownCount, TrainingBag, bags_of, combine, without_labels
from llpkit.label.features import Features
from llpkit.label.items import Items
from llpkit.label.learner import BackgroundLearner, Snapshot, unlikely_counts, unsure_items
from llpkit.label.queue import ORDERS, Queue
from llpkit.label.store import Store, checked_person


class Contradiction(LLPError):
    """A label that the count of its bag rules out."""

    def __init__(self, message: str, bag: int) -> None:
        super().__init__(message)
        self.bag = bag


class Project:
    """Everything behind the counting page; safe to call from several threads.

    Args:
        items: What is counted.
        store: Where answers are kept.
        way: How bags are made, one of :data:`llpkit.label.bagging.WAYS`; ignored if the store has
            bags already.
        size: The largest size of a bag; by default :func:`llpkit.label.bagging.usual_size`, but the
            user's own bags are kept whole.
        order: ``"information"`` offers the bag whose count is expected to teach the models most;
            ``"random"`` ignores the models.
        positive: What is counted, such as ``"cats"``.
        pool: Where models are trained; ``None`` trains none.
        seed: Seed for random bags, the random order, and training.
        folder: Where counts are exported to; ``None`` for a demonstration.
    """

    def __init__(
        self,
        items: Items,
        store: Store,
        *,
        way: str = "random",
        size: int | None = None,
        order: str = "information",
        positive: str = "positive",
        pool: Executor | None = None,
        seed: int = 0,
        folder: Path | None = None,
    ) -> None:
        self.items, self.store, self.folder, self.positive = items, store, folder, positive
        keep = size is None and items.has_bags
        size = bagging.usual_size(len(items)) if size is None else size
        size = whole(option("size"), size, 1, len(items))
        one_of(option("order"), order, ORDERS)
        one_of(option("way"), way, bagging.WAYS)
        # A project that is continued keeps its way of making bags.
        self.way = store.setting("bags", way) or way
        store.set_items(items.names)
        numbered = store.items()
        if numbered != items.names:  # new items came between old ones
            index_of = {name: i for i, name in enumerate(items.names)}
            items.arrange([index_of[name] for name in numbered])
        # All items of a new project, or those added since; by score, bags are made one at a time.
        free = [] if self.way == "score" else store.items_in_no_bag()
        features: Tensor | None = None
        if pool is not None or (free and self.way == "alike"):
            inputs = items.inputs()
            self._to_features = Features(inputs, seed)
            features = self._to_features(inputs)
        self.notes: list[str] = []
        """Remarks for the user on bags that were divided or are large."""
        if free:
            rows = None if features is None else features.numpy()
            names = store.bag_names().values()
            most = len(items) if keep and self.way == "folder" else size
            made = bagging.make(self.way, free, most, seed, items.groups, items.times, rows, names)
            store.add_bags(made)
            if items.has_bags and self.way == "folder":
                assert items.groups is not None
                self.notes = bagging.remarks([items.groups[i] for i in free], most)
        by_score = self.way == "score"
        self.num_bags = -(-len(items) // size) if by_score else len(store.bags())
        """How many bags there are, or will be."""
        self.extra: dict[str, Any] = {}
        """Further entries of the state, for a demonstration."""
        self._lock = threading.RLock()
        self.learner = BackgroundLearner(
            pool,
            features,
            num_bags=self.num_bags,
            seed=seed,
            snapshot=self._snapshot,
            lock=self._lock,
        )
        self._queue = Queue(
            store, self.learner, size=size, by_score=by_score, order=order, seed=seed
        )
        with self._lock:
            self.learner.update()

    def add_test(self, inputs: Tensor) -> None:
        """Predict further items that nobody counts, for a demonstration."""
        self.learner.test = self._to_features(inputs)

    # Bags

    def next_bag(self, person: str) -> int | None:
        """The number of the bag to count next; ``None`` if there is none left."""
        person = checked_person(person)
        with self._lock:
            return self._queue.next(person)

    def uncounted(self) -> int:
        """How many bags nobody has counted yet."""
        return len(self.store.bags().keys() - {answer.bag for answer in self.store.answers()})

    def describe(self, bag: int, person: str) -> dict[str, Any]:
        """A bag as the page shows it to one person: its items, their own count, and the beliefs.

        The counts of others are not shown: they would sway the person, and comparing two counts of
        a bag would be pointless.
        """
        with self._lock:
            bags = self.store.bags()
            if bag not in bags:
                raise LLPError(f"there is no bag {bag}; ask for the next one")
            members = bags[bag]
            labels = self.store.labels()
            answers = [a for a in self.store.answers() if a.bag == bag]
            own = next((a for a in answers if a.person == person), None)
            before: dict[int, float] = {}
            after: dict[int, float] = {}
            if self.learner.beliefs is not None:
                logits = self.learner.beliefs.logits[members]
                before = dict(zip(members, expit(logits).tolist(), strict=True))
                if own is not None:
                    after = self._after(bag, combine(answers)[bag], labels)
            return {
                "bag": bag,
                "name": self.store.bag_names()[bag],
                "low": None if own is None else own.low,
                "high": None if own is None else own.high,
                "items": [
                    {
                        **self._item(item, labels),
                        "before": round(before[item], 4) if before else None,
                        "after": round(after[item], 4) if after else None,
                    }
                    for item in members
                ],
            }

    def _item(self, item: int, labels: dict[int, int]) -> dict[str, Any]:
        return {
            "id": item,
            "name": self.items.names[item],
            "caption": self.items.caption(item),
            "picture": self.items.has_pictures,
            "label": labels.get(item),
        }

    def _after(self, bag: int, known: KnownCount, labels: dict[int, int]) -> dict[int, float]:
        """The probability of every item of a counted bag, given the count and the labels."""
        assert self.learner.beliefs is not None
        members = set(self.store.bags()[bag])
        probability = {item: float(labels[item]) for item in members & labels.keys()}
        rest = [part for part in self._parts({bag: known}, labels) if part.source == bag]
        if rest:
            bags = bags_of(rest, len(self.items))
            phi = learning.after_count(self.learner.beliefs, bags)
            probability |= dict(zip(bags.rows.tolist(), phi.tolist(), strict=True))
        return probability

    # Answers

    def answer(self, bag: int, person: str, low: int, high: int, seconds: float) -> None:
        """Store an answer, on disk before this returns, and train when there are enough new ones.

        The count includes the labelled items of the bag; an answer that contradicts their labels is
        refused.
        """
        with self._lock:
            self._check_labels(bag, low, high)
            self.store.answer(bag, person, low, high, seconds)
            self._queue.release(bag)
            self.learner.update()

    def undo(self, person: str) -> dict[str, Any]:
        """Take back a person's last count or label, and describe it for the page."""
        with self._lock:
            undone = self.store.undo(person)
            if undone is None:
                return {"undone": None}
            self.learner.update()
            action = {"undone": undone.kind, "low": undone.low, "high": undone.high}
            if undone.kind == "count":
                self._queue.offer(undone.which, person)  # it is on their page now
                return {**action, "bag": self.describe(undone.which, person)}
            return {**action, "item": self._item(undone.which, self.store.labels())}

    def label(self, item: int, person: str, value: int | None) -> None:
        """Store the label of a single item, unless the count of its bag rules it out."""
        person = checked_person(person)
        with self._lock:
            self._check_count(item, person, value)
            self.store.set_label(item, person, value)
            self.learner.update()

    def _room(self, bag: int, labels: dict[int, int]) -> tuple[int, int]:
        """The lowest and the highest count of a bag that the labels of its items allow."""
        items = self.store.bags().get(bag, [])
        own = [labels[item] for item in items if item in labels]
        return sum(own), len(items) - own.count(0)

    def _check_labels(self, bag: int, low: int, high: int) -> None:
        least, most = self._room(bag, self.store.labels())
        size = len(self.store.bags().get(bag, []))
        if not 0 <= low <= high <= size or (low <= most and high >= least):
            return  # the store refuses counts that no bag of this size can have
        raise LLPError(
            f"not saved: with these labels, the count of the bag is {span(least, most)} of {size} "
            "(it includes labelled items). Change the count or the labels"
        )

    def _check_count(self, item: int, person: str, value: int | None) -> None:
        bags = self.store.bags()
        bag = next((bag for bag, items in bags.items() if item in items), None)
        answers = [a for a in self.store.answers() if a.bag == bag]
        if value not in (0, 1) or bag is None or not answers:
            return
        known = combine(answers)[bag]
        least, most = self._room(bag, self.store.labels() | {item: value})
        if known.low <= most and known.high >= least:
            return
        # The counts of others are not shown; see describe().
        own = next((a for a in answers if a.person == person), None)
        count = "" if own is None else f", {span(own.low, own.high)} of {len(bags[bag])},"
        raise Contradiction(
            f"label not saved: the count of {self.store.bag_names()[bag]}{count} leaves no room "
            "for it. Count the bag again, then label the item",
            bag,
        )

    # What is known

    def _parts(self, known: dict[int, KnownCount], labels: dict[int, int]) -> list[TrainingBag]:
        names = self.store.bag_names()
        return without_labels(self.store.bags(), names, known, labels, self.items.names)

    def _snapshot(self) -> Snapshot:
        answers, labels = self.store.answers(), self.store.labels()
        known = combine(answers)
        facts: set[tuple[object, ...]] = {(a.bag, a.person, a.low, a.high) for a in answers}
        facts.update(labels.items())
        complete = not self.uncounted() and not self.store.items_in_no_bag()
        return Snapshot(known, labels, self._parts(known, labels), facts, complete)

    def bags(self) -> Bags | None:
        """All that is known, as bags to learn from; ``None`` if nothing was answered yet."""
        parts = self._snapshot().parts
        return bags_of(parts, len(self.items)) if parts else None

    def state(self) -> dict[str, Any]:
        """Progress and learning, for the page."""
        with self._lock:
            answers, learner, now = self.store.answers(), self.learner, self._snapshot()
            shared = [each for each in now.known.values() if each.people > 1]
            opinions = [each for each in self.store.opinions().values() if len(each) > 1]
            seconds: dict[str, float] = {}
            for a in answers:
                seconds[a.person] = seconds.get(a.person, 0.0) + a.seconds
            state: dict[str, Any] = {
                "counted": len(now.known),
                "bags": None if self.way == "score" else self.num_bags,
                "number": self.num_bags,
                "labels": len(now.labels),
                "people": [
                    {"name": name, "bags": number, "seconds": round(seconds[name], 1)}
                    for name, number in Counter(a.person for a in answers).most_common()
                ],
                "compared": len(shared),
                "agreed": sum(each.agreed for each in shared),
                "labels_compared": len(opinions),
                "labels_agreed": sum(len(set(each)) == 1 for each in opinions),
                "least": learner.least,
                "training": learner.is_training,
                "error": learner.error,
                "history": learner.history,
                "verdict": learner.verdict,
                "trainings": learner.trainings,
                "commands": self.commands(),
            }
            if learner.beliefs is not None:
                counted = [part for part in now.parts if part.source is not None]
                if counted:
                    bags = bags_of(counted, len(self.items))
                    state["calibration"] = learning.calibration(learner.beliefs, bags)
                    checked = self.store.recounted()
                    state["unlikely"] = unlikely_counts(
                        learner.beliefs, counted, bags, now.known, checked
                    )
                state["unsure"] = [
                    {**self._item(item, now.labels), "before": p}
                    for item, p in unsure_items(learner.beliefs, now.labels).items()
                ]
            return state | self.extra

    # Export

    def export(self, path: Path) -> None:
        """Write the table that ``llpkit fit`` reads; a labelled item is a bag of one."""
        export.write_counts(path, self.items, self._snapshot().parts)

    def write(self) -> None:
        """Write the tables that :meth:`commands` name to the folder of the project."""
        assert self.folder is not None
        export.write_tables(self.folder, self.items, self._snapshot().parts)

    def commands(self) -> list[str]:
        """What to type to train on the exported counts and to predict all items."""
        if self.folder is None:
            return []
        return export.commands(self.folder, self.items, self._snapshot().parts)
