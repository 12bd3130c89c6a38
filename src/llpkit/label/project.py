"""A counting project: which bag comes next, what was answered, what has been learned."""

import functools
import shlex
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit
from torch import Tensor

from llpkit._validation import one_of, whole
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.label import bagging, learning
from llpkit.label.counts import Known, Part, bags_of, combine, without_labels
from llpkit.label.features import Features
from llpkit.label.items import Items
from llpkit.label.learning import Beliefs
from llpkit.label.store import Store, checked_person

TABLE = "counts.csv"
_ALL = "images.csv"  # all of them, counted or not
ORDERS = ("information", "random")
_EVERY = 4  # answers between two trainings
_SHARED = 5  # with several people, one bag in so many is one that somebody else has counted
_HELD = 300.0  # seconds for which a bag that is on somebody's page is offered to nobody else
_UNLIKELY = 0.05
_SHOWN = 12


class Contradiction(LLPError):
    """A label that the count of its bag rules out."""

    def __init__(self, message: str, bag: int) -> None:
        super().__init__(message)
        self.bag = bag


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


class Project:
    """Everything behind the counting page; safe to call from several threads.

    Args:
        items: What is counted.
        store: Where answers are kept.
        way: How bags are made, one of :data:`llpkit.label.bagging.WAYS`; ignored if the store has
            bags already.
        size: The largest size of a bag; by default :func:`llpkit.label.bagging.usual_size`.
        order: ``"information"`` asks for the bag whose count is expected to teach the models most;
            ``"random"`` does not look at the models.
        positive: What is counted, such as ``"cats"``.
        pool: Where models are trained; ``None`` trains none.
        seed: Of random bags, the random order, and training.
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
        self.items, self.store, self.pool, self.folder = items, store, pool, folder
        number = len(items.names)
        size = bagging.usual_size(number) if size is None else size
        self.size = whole("--size", size, 1, number)
        self.order = one_of("--order", order, ORDERS)
        self.seed, self.positive = seed, positive
        way = one_of("--bags", way, bagging.WAYS)
        # A project that goes on keeps its bags, whatever is asked for now.
        self.way = store.setting("bags", way) or way
        store.set_items(items.names)
        numbered = store.items()
        if numbered != items.names:  # some were added in between
            place = {name: i for i, name in enumerate(items.names)}
            items.arrange([place[name] for name in numbered])
        # All items of a new project, else those that were added since; by score, bags come later.
        free = [] if self.way == "score" else self._in_no_bag()
        self._features: Tensor | None = None
        self._test: Tensor | None = None
        if pool is not None or (free and self.way == "alike"):
            inputs = items.inputs()
            self._to_features = Features(inputs, seed)
            self._features = self._to_features(inputs)
        if free:
            known = None if self._features is None else self._features.numpy()
            taken = store.bag_names().values()
            store.add_bags(
                bagging.make(
                    self.way, free, self.size, seed, items.groups, items.times, known, taken
                )
            )
        self.beliefs: Beliefs | None = None
        self.history: list[dict[str, float]] = []
        self.learned: str | None = None
        """Whether the models have learned anything, in words."""
        self.trainings = 0
        self.error: str | None = None
        self.extra: dict[str, Any] = {}
        """Further entries of the state, such as those of a demonstration."""
        self.is_training = False
        self._tried: set[tuple[object, ...]] = set()  # the facts of the last training
        self._offered: dict[int, tuple[str, float]] = {}
        self._lock = threading.RLock()
        with self._lock:
            self._learn_if_due()

    def add_test(self, inputs: Tensor) -> None:
        """Predict further items that nobody counts, for a demonstration."""
        self._test = self._to_features(inputs)

    # Bags

    def next_bag(self, person: str) -> int | None:
        """The number of the bag to count next; ``None`` if there is none left."""
        person = checked_person(person)
        with self._lock:
            answers = self.store.answers()
            counted: dict[int, set[str]] = {}
            for answer in answers:
                counted.setdefault(answer.bag, set()).add(answer.person)
            now = time.monotonic()
            bag = self._on_page(person, counted)
            if bag is None:
                held = {b for b, (_, since) in self._offered.items() if now - since < _HELD}
                bag = self._shared(person, counted, held)
                if bag is None:
                    free = [b for b in self.store.bags() if b not in counted and b not in held]
                    bag = self._choose(free)
            if bag is not None:
                self._offered[bag] = (person, now)
            return bag

    def uncounted(self) -> int:
        """How many bags nobody has counted yet."""
        return len(self.store.bags().keys() - {answer.bag for answer in self.store.answers()})

    def _on_page(self, person: str, counted: dict[int, set[str]]) -> int | None:
        """The bag that the person was offered before, and has not counted: for a reload."""
        own = [b for b, (who, _) in self._offered.items() if who == person]
        open_ = [b for b in own if person not in counted.get(b, ())]
        return max(open_, key=lambda b: self._offered[b][1], default=None)

    def _shared(self, person: str, counted: dict[int, set[str]], held: set[int]) -> int | None:
        """From time to time a bag that others have counted, to see whether people agree."""
        own = sum(person in people for people in counted.values())
        if own % _SHARED != _SHARED - 1:
            return None
        alone = [b for b, people in counted.items() if person not in people and b not in held]
        return min(alone, key=lambda b: (len(counted[b]), b), default=None)

    def _choose(self, free: Sequence[int]) -> int | None:
        if self.way == "score" and not free:
            return self._new_by_score()
        if not free:
            return None
        if self.beliefs is None or self.order == "random":
            # The same order in every session: a permutation of all bags, not of the free ones.
            every = list(self.store.bags())
            order = np.random.default_rng(self.seed).permutation(len(every))
            place = {every[j]: i for i, j in enumerate(order)}
            return min(free, key=place.__getitem__)
        items = self.store.bags()
        worth = learning.information(self.beliefs.draws, [items[bag] for bag in free])
        return free[int(worth.argmax())]

    def _new_by_score(self) -> int | None:
        """A new bag of items that are in no bag yet: neighbours in score, once there is a model."""
        free = self._in_no_bag()
        if not free:
            return None
        first = len(self.store.bags()) + 1
        if self.beliefs is None:
            order = np.random.default_rng([self.seed, first]).permutation(free)
            made = {f"bag {first:04d}": [int(i) for i in order[: self.size]]}
        else:
            every = bagging.by_score(self.beliefs.logits, free, self.size, first)
            worth = learning.information(self.beliefs.draws, list(every.values()))
            if self.order == "random":
                worth = np.random.default_rng([self.seed, first]).random(len(worth))
            made = {f"bag {first:04d}": list(every.values())[int(worth.argmax())]}
        [(name, items)] = made.items()
        return self.store.add_bag(name, items)

    def describe(self, bag: int, person: str) -> dict[str, Any]:
        """A bag for the page of one person: its items, their own count, what is believed.

        What others counted is not shown: it would sway the person, and two counts of a bag could
        no longer be compared.
        """
        with self._lock:
            bags = self.store.bags()
            if bag not in bags:
                raise LLPError(f"there is no bag {bag}; ask for the next one")
            members = bags[bag]
            labels = self.store.labels()
            answers = [a for a in self.store.answers() if a.bag == bag]
            own = next((a for a in answers if a.person == person), None)
            before = after = None
            if self.beliefs is not None:
                before = expit(self.beliefs.logits[members])
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
                        "before": None if before is None else round(float(before[i]), 4),
                        "after": None if after is None else round(after[item], 4),
                    }
                    for i, item in enumerate(members)
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

    def _after(self, bag: int, known: Known, labels: dict[int, int]) -> dict[int, float]:
        """The probability of every item of a counted bag, given the count and the labels."""
        assert self.beliefs is not None
        parts = self._parts({bag: known}, labels)
        mine = [part for part in parts if part.source == bag]
        members = set(self.store.bags()[bag])
        found = {item: float(value) for item, value in labels.items() if item in members}
        if mine:
            bags = bags_of(mine, len(self.items.names))
            phi = learning.after_count(self.beliefs, bags)
            found |= dict(zip(bags.rows.tolist(), phi.tolist(), strict=True))
        return found

    # Answers

    def answer(self, bag: int, person: str, low: int, high: int, seconds: float) -> None:
        """Keep an answer, on disk before this returns, and train when enough have come.

        The count includes the labelled items of the bag; one that their labels rule out is refused.
        """
        with self._lock:
            self._check_labels(bag, low, high)
            self.store.answer(bag, person, low, high, seconds)
            self._offered.pop(bag, None)
            self._learn_if_due()

    def undo(self, person: str) -> dict[str, Any]:
        """Take back a person's last count or label; says which, for the page."""
        with self._lock:
            undone = self.store.undo(person)
            if undone is None:
                return {"undone": None}
            self._learn_if_due()
            found: dict[str, Any] = {"undone": undone.kind, "low": undone.low, "high": undone.high}
            if undone.kind == "count":
                self._offered[undone.which] = (person, time.monotonic())  # it is on their page now
                return found | {"bag": self.describe(undone.which, person)}
            return found | {"item": self._item(undone.which, self.store.labels())}

    def label(self, item: int, person: str, value: int | None) -> None:
        """Keep the label of a single item, unless the count of its bag rules it out."""
        person = checked_person(person)
        with self._lock:
            self._check_count(item, person, value)
            self.store.set_label(item, person, value)
            self._learn_if_due()

    def _room(self, bag: int, labels: dict[int, int]) -> tuple[int, int]:
        """The lowest and the highest count of a bag that the labels of its items allow."""
        items = self.store.bags().get(bag, [])
        given = [labels[item] for item in items if item in labels]
        return sum(given), len(items) - given.count(0)

    def _check_labels(self, bag: int, low: int, high: int) -> None:
        least, most = self._room(bag, self.store.labels())
        size = len(self.store.bags().get(bag, []))
        if not 0 <= low <= high <= size or (low <= most and high >= least):
            return  # the store refuses counts that no bag of this size can have
        raise LLPError(
            f"not saved: by the labels of its items, this bag has {_span(least, most)} of {size}; "
            "the count includes labelled items. Change the count or the labels"
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
        # What others counted is not shown, see describe().
        own = next((a for a in answers if a.person == person), None)
        count = "" if own is None else f", {_span(own.low, own.high)} of {len(bags[bag])},"
        raise Contradiction(
            f"label not saved: the count of {self.store.bag_names()[bag]}{count} leaves no room "
            "for it. Count the bag again, then label the item",
            bag,
        )

    # Learning

    def _parts(self, known: dict[int, Known], labels: dict[int, int]) -> list[Part]:
        names = self.store.bag_names()
        return without_labels(self.store.bags(), names, known, labels, self.items.names)

    def bags(self) -> Bags | None:
        """All that is known, as bags to learn from; ``None`` if nothing was answered yet."""
        parts = self._parts(combine(self.store.answers()), self.store.labels())
        return bags_of(parts, len(self.items.names)) if parts else None

    def _facts(self) -> set[tuple[object, ...]]:
        """What is known now; compared with an earlier time, it tells how much has changed."""
        counts = {("count", a.bag, a.person, a.low, a.high) for a in self.store.answers()}
        return counts | {("label", *each) for each in self.store.labels().items()}

    def _least(self) -> int:
        """Counts and labels before the first training: few, if there are few bags."""
        return min(learning.LEAST, max(learning.FOLDS, self._number()))

    def _number(self) -> int:
        """How many bags there are, or will be."""
        return -(-len(self.items) // self.size) if self.way == "score" else len(self.store.bags())

    def _all_counted(self) -> bool:
        return self.uncounted() == 0 and (self.way != "score" or not self._in_no_bag())

    def _in_no_bag(self) -> list[int]:
        taken = {item for own in self.store.bags().values() for item in own}
        return [item for item in range(len(self.items)) if item not in taken]

    def _learn_if_due(self) -> None:
        if self.pool is None or self._features is None or self.is_training:
            return
        facts = self._facts()
        # A corrected count is one old fact less and one new fact more.
        changed = max(len(facts - self._tried), len(self._tried - facts))
        # With nothing left to count, no later answer would bring the last ones in.
        if changed < (1 if self._all_counted() else _EVERY):
            return
        known, labels = combine(self.store.answers()), self.store.labels()
        parts = self._parts(known, labels)
        if len(parts) < self._least():
            return
        bags = bags_of(parts, len(self.items.names))
        self._tried, self.is_training = facts, True
        future = self.pool.submit(learning.train, self._features, bags, self.seed, self._test)
        future.add_done_callback(functools.partial(self._trained, len(known), len(labels)))

    def _trained(self, counts: int, labels: int, future: Future[Beliefs]) -> None:
        with self._lock:
            self.is_training = False
            if future.cancelled():
                return
            failure = future.exception()
            if failure is not None:
                self.error = str(failure)
                return
            found = future.result()
            self.beliefs, self.error = found, None
            self.trainings += 1
            # Counts that were corrected or undone replace what was learned from the wrong ones.
            answers = counts + labels
            self.history = [each for each in self.history if each["answers"] < answers]
            self.history.append(
                {
                    "answers": answers,
                    "log_likelihood": round(found.gain.log_likelihood, 4),
                    "baseline": round(found.gain.baseline, 4),
                }
            )
            self.learned = learning.learned(found.gain, counts, labels)
            self._learn_if_due()  # answers that came in the meantime

    def wait(self) -> None:
        """Block until no models are being trained."""
        while self.is_training:
            time.sleep(0.01)

    def state(self) -> dict[str, Any]:
        """Progress and learning, for the page."""
        with self._lock:
            answers, labels = self.store.answers(), self.store.labels()
            known = combine(answers)
            several = [each for each in known.values() if each.people > 1]
            opinions = [each for each in self.store.opinions().values() if len(each) > 1]
            people = Counter(a.person for a in answers)
            seconds: Counter[str] = Counter()
            for a in answers:
                seconds[a.person] += a.seconds  # type: ignore[assignment]
            found: dict[str, Any] = {
                "counted": len(known),
                "bags": None if self.way == "score" else len(self.store.bags()),
                "number": self._number(),
                "items": len(self.items.names),
                "labels": len(labels),
                "people": [
                    {"name": name, "bags": n, "seconds": round(seconds[name], 1)}
                    for name, n in people.most_common()
                ],
                "compared": len(several),
                "agreed": sum(each.agreed for each in several),
                "labels_compared": len(opinions),
                "labels_agreed": sum(len(set(each)) == 1 for each in opinions),
                "least": self._least(),
                "training": self.is_training,
                "error": self.error,
                "history": self.history,
                "learned": self.learned,
                "trainings": self.trainings,
                "commands": self.commands(),
            }
            if self.beliefs is not None:
                found |= self._learned(known, labels)
            return found | self.extra

    def _learned(self, known: dict[int, Known], labels: dict[int, int]) -> dict[str, Any]:
        assert self.beliefs is not None
        parts = [part for part in self._parts(known, labels) if part.source is not None]
        found: dict[str, Any] = {}
        if parts:
            bags = bags_of(parts, len(self.items.names))
            found["calibration"] = learning.calibration(self.beliefs, bags)
            chance = learning.surprise(self.beliefs, bags)
            # About this share of all bags is below the limit by chance alone, miscounted or not;
            # the most unlikely are shown.
            unlikely = [i for i in np.argsort(chance) if chance[i] < _UNLIKELY][: _SHOWN // 2]
            expected = np.add.reduceat(
                expit(self.beliefs.logits[bags.rows.numpy()]), bags.offsets[:-1].numpy()
            )
            found["unlikely"] = [
                {
                    "bag": parts[i].source,
                    "name": parts[i].name,
                    "low": known[parts[i].source or 0].low,
                    "high": known[parts[i].source or 0].high,
                    "expected": round(float(expected[i]), 1),
                    "chance": float(f"{chance[i]:.2g}"),
                }
                for i in unlikely
            ]
        p = expit(self.beliefs.logits)
        order = np.argsort(np.abs(p - 0.5), kind="stable")
        unsure = [int(i) for i in order if int(i) not in labels][:_SHOWN]
        found["unsure"] = [
            {**self._item(i, labels), "before": round(float(p[i]), 4)} for i in unsure
        ]
        return found

    # Export

    def export(self, path: Path) -> None:
        """Write the table that ``llpkit fit`` reads.

        One row per item of every counted bag; a labelled item is a bag of one.
        """
        parts = self._parts(combine(self.store.answers()), self.store.labels())
        if not parts:
            raise LLPError("nothing was counted yet; count a bag first")
        chosen = [item for part in parts for item in part.items]
        bag, low, high = self._columns()
        columns: dict[str, list[object]] = {
            bag: [part.name for part in parts for _ in part.items],
            low: [part.low for part in parts for _ in part.items],
            high: [part.high for part in parts for _ in part.items],
        }
        self.items.export(path, chosen, columns)

    def _columns(self) -> list[str]:
        """The names of the columns that the export adds, unlike those of a table of the user."""
        found = ["bag", "count_low", "count_high"]
        while any(name in self.items.columns for name in found):
            found = [f"counted_{name}" for name in found]
        return found

    def write(self) -> None:
        """Write the tables that :meth:`commands` name to the folder of the project."""
        assert self.folder is not None
        self.export(self.folder / TABLE)
        if self.items.path is None:
            self.items.export(self.folder / _ALL, range(len(self.items)), {})

    def commands(self) -> list[str]:
        """What to type to train on the exported counts and to predict all items."""
        if self.folder is None:
            return []
        everything = self.items.path or self.folder / _ALL
        bag, low, high = self._columns()
        run, number = self.folder / "run", 1
        while run.exists():
            run, number = self.folder / f"run-{number + 1}", number + 1
        known = self.bags()
        enough = known is not None and len(known) >= learning.LEAST
        fit = ["fit", self.folder / TABLE, "--bag", bag, "--count-low", low, "--count-high", high]
        fit += [*self.items.fit_options(), *(("--held-out", "0.2") if enough else ())]
        return [
            shlex.join(["llpkit", *map(str, words)])
            for words in (
                [*fit, "--out", run],
                ["predict", run, everything, "--out", self.folder / "predicted.csv"],
            )
        ]
