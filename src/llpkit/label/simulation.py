"""A simulated person who counts or labels without mistakes, and how well the models learn.

The person's pace is assumed, not measured: :data:`LOOK` seconds to look at an item, :data:`KEY`
seconds per keystroke. A count takes its digits and Enter; a label takes one key.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from llpkit.label import learning
from llpkit.label.counts import TrainingBag, bags_of
from llpkit.label.features import Features
from llpkit.label.items import ArrayItems
from llpkit.label.project import Project
from llpkit.label.store import Store

LOOK, KEY = 0.45, 0.3
DEMO_BAGS = 60
PERSON = "simulated"


class Moment(NamedTuple):
    """The state of the simulation after one training."""

    answers: int
    keystrokes: int
    minutes: float
    accuracy: float
    """On test items that nobody counted or labelled."""


def seconds_to_count(size: int, count: int) -> float:
    """The assumed time for one bag.

    >>> round(seconds_to_count(size=12, count=7), 2)
    6.0
    """
    return LOOK * size + KEY * keystrokes(count)


def keystrokes(count: int) -> int:
    """Digits and Enter."""
    return len(str(count)) + 1


def counting(
    project: Project,
    truth: Tensor,
    test_truth: Tensor,
    bags: int,
    on_answer: Callable[[int], None] | None = None,
) -> Iterator[Moment]:
    """Count bags of a project one after the other, and yield after every training.

    Args:
        project: With test items and a pool.
        truth: The labels of its items.
        test_truth: The labels of its test items.
        bags: How many to count.
        on_answer: Called with every counted bag.
    """
    learner = project.learner
    pressed, seconds, trained = 0, 0.0, 0
    for number in range(1, bags + 1):
        bag = project.next_bag(PERSON)
        if bag is None:
            return
        items = project.store.bags()[bag]
        count = int(truth[items].sum())
        seconds += seconds_to_count(len(items), count)
        pressed += keystrokes(count)
        project.answer(bag, PERSON, count, count, seconds_to_count(len(items), count))
        learner.wait()
        if on_answer is not None:
            on_answer(bag)
        if learner.beliefs is not None and len(learner.history) > trained:
            trained = len(learner.history)
            yield Moment(number, pressed, seconds / 60, accuracy_of(learner.beliefs, test_truth))


def labelling(
    inputs: Tensor,
    truth: Tensor,
    test: Tensor,
    test_truth: Tensor,
    steps: list[Moment],
    pool: Executor,
    *,
    same: str,
    seed: int = 0,
) -> Iterator[Moment]:
    """Label single items in random order, as many as the same work allows in each step.

    Args:
        inputs: Inputs of all items.
        truth: Their labels.
        test: Test inputs.
        test_truth: Their labels.
        steps: The steps of counting to compare with.
        pool: Where models are trained.
        same: ``"keystrokes"`` or ``"minutes"``, the measure of work.
        seed: Seed for the order and for training.
    """
    order = np.random.default_rng(seed).permutation(len(inputs)).tolist()
    to_features = Features(inputs, seed)
    features, tested = to_features(inputs), to_features(test)
    for step in steps:
        number = step.keystrokes if same == "keystrokes" else int(step.minutes * 60 / (LOOK + KEY))
        chosen = order[:number]
        if len(chosen) < learning.LEAST:
            continue
        parts = [TrainingBag(f"{i}", [i], int(truth[i]), int(truth[i]), None) for i in chosen]
        bags = bags_of(parts, len(inputs))
        beliefs = pool.submit(learning.train, features, bags, seed, tested).result()
        minutes = len(chosen) * (LOOK + KEY) / 60
        yield Moment(len(chosen), len(chosen), minutes, accuracy_of(beliefs, test_truth))


def accuracy_of(beliefs: learning.Beliefs, truth: Tensor) -> float:
    """The share of test items that the model of all bags classifies correctly."""
    assert beliefs.test is not None
    return float(((torch.from_numpy(beliefs.test) > 0).long() == truth).double().mean())


class Demo(NamedTuple):
    """Digits to count, odd or even, and test digits that nobody counts."""

    items: ArrayItems
    truth: Tensor
    test: Tensor
    test_truth: Tensor


def digits(seed: int = 0, number: int = 1200) -> Demo:
    """Scikit-learn's digits, divided at random."""
    from llpkit.datasets import load

    data = load("digits")
    assert isinstance(data.inputs, Tensor)
    assert data.truth is not None
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(data.inputs)))
    counted, test = order[:number], order[number:]
    items = ArrayItems(data.inputs[counted])
    return Demo(items, data.truth[counted], data.inputs[test], data.truth[test])


def run_demo(project: Project, demo: Demo, pool: Executor) -> None:
    """Count digits on the page, then label digits for the same time, and show both curves."""
    curves: dict[str, list[Moment]] = {"counts": [], "labels": []}
    last: dict[str, object] = {}

    def verdict() -> str:
        counts, labels = curves["counts"], curves["labels"]
        if not labels:
            return ""
        i = len(labels) - 1
        return (
            f" After {counts[i].minutes:.1f} minutes: {100 * counts[i].accuracy:.1f}% from "
            f"{counts[i].answers} counts, {100 * labels[i].accuracy:.1f}% from "
            f"{labels[i].answers} labels."
        )

    def show() -> None:
        project.extra["demo"] = {
            "curves": [
                {"name": name, "points": [[round(s.minutes, 2), s.accuracy] for s in steps]}
                for name, steps in curves.items()
                if steps
            ],
            "text": (
                f"A simulated person counts {DEMO_BAGS} bags of digits, then labels single digits "
                f"for as long ({LOOK} s per look, {KEY} s per key). Accuracy is measured on "
                f"{len(demo.test)} other digits.{verdict()}"
            ),
            **last,
        }

    def answered(bag: int) -> None:
        if project.learner.beliefs is not None:
            last["last"] = project.describe(bag, PERSON)
        show()

    show()
    for step in counting(project, demo.truth, demo.test_truth, DEMO_BAGS, answered):
        curves["counts"].append(step)
        show()
    inputs = project.items.inputs()
    steps = labelling(
        inputs, demo.truth, demo.test, demo.test_truth, curves["counts"], pool, same="minutes"
    )
    for step in steps:
        curves["labels"].append(step)
        show()


def fresh(demo: Demo, pool: Executor, *, size: int, order: str, way: str, seed: int) -> Project:
    """A project in memory for a simulation."""
    project = Project(
        demo.items, Store(":memory:"), way=way, size=size, order=order, pool=pool, seed=seed
    )
    project.add_test(demo.test)
    return project
