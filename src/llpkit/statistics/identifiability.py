"""Can the counts answer the question at all? Checks of features and bags before training."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from llpkit._arrays import Array
from llpkit.bags import Bags
from llpkit.bags.random import random_sample
from llpkit.errors import IdentifiabilityWarning
from llpkit.evaluation import constant_rate
from llpkit.ragged import instances_of
from llpkit.statistics.counts import dispersion, explained
from llpkit.statistics.directions import Directions, directions, numeric
from llpkit.statistics.modes import contradicting_modes
from llpkit.statistics.rows import take_rows

_WRITTEN_OUT = 200_000
"""Maximum number of instances to expand multiplicities to: the check must not outlast the fit."""
_NAMED = 3
"""Maximum number of columns, and of directions, that a message names."""
_ALIKE = 0.2
"""Counts that vary by less than this share of chance variation were not drawn at random."""


_feature_names: ContextVar[Sequence[str]] = ContextVar("_feature_names", default=())


class Problem(NamedTuple):
    """Something that the data cannot determine.

    ``kind`` is one of ``"counts"``, ``"one class"``, ``"same proportions"``, ``"within bags"``,
    ``"bag columns"`` and ``"direction"``.
    """

    kind: str
    text: str
    remedy: str
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.text}; {self.remedy}"


@dataclass(frozen=True)
class Identifiability:
    """What the data can and cannot determine."""

    problems: tuple[Problem, ...]
    efficiency: Array
    """Information of the counts relative to labels, from 0 to 1, one per direction, ascending."""
    explained: float
    """The share of the variance of the counts that the evidence explains; 1 if all are exact."""
    alike: float
    """Variance of the counts relative to chance: 0 if all bags have the same proportion."""
    bag_columns: tuple[str, ...]
    """Columns that are the same in all rows of every bag."""

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems


def identifiability(
    X: Any, bags: Bags, *, feature_names: Sequence[str] | None = None, seed: int = 0
) -> Identifiability:
    """Look for what the counts of bags cannot determine, whatever the model.

    The cost is linear in the rows, except for fits of small linear models to a sample when all bags
    have about the same proportion of positives.

    Args:
        X: Features ``(R, D)``, in the order of the table, or ``None`` to check the counts alone.
            Columns that are not numeric are ignored; missing values are replaced by the mean.
        bags: The bags over these rows.
        feature_names: Names of the columns; ``x0``, ``x1``, … by default.
        seed: Seed for the sample and the random starts.

    >>> x = np.random.default_rng(0).normal(size=(400, 1))
    >>> half = Bags(offsets=range(0, 401, 4), counts=[2] * 100)
    >>> [problem.kind for problem in identifiability(x, half).problems]
    ['same proportions']
    """
    bags = bags.to("cpu")
    table, names = numeric(X, feature_names)
    rho = explained(bags)  # (B,)
    problems = _of_counts(bags, rho)
    alike = dispersion(bags, rho)
    efficiency: Array = np.empty(0)
    bag_columns: tuple[str, ...] = ()
    if not problems:
        x = None if table is None else table[bags.rows.numpy()]
        problems += _of_proportions(x, bags, alike, seed)
        if x is not None and x.shape[1]:
            of_features = directions(x, names, bags, rho)
            problems += _of_features(of_features, len(bags))
            efficiency, bag_columns = of_features.efficiency, of_features.bag_columns
    known = float((rho * bags.sizes.numpy()).sum() / max(1, bags.num_instances))
    return Identifiability(tuple(problems), efficiency, known, alike, bag_columns)


@contextmanager
def features_named(names: Sequence[str]) -> Iterator[None]:
    """Let warnings of fits in this block use these names, of columns that a fit gets as an array.

    A parameter would have to pass through scikit-learn's ``fit(X, y)``.
    """
    token = _feature_names.set(names)
    try:
        yield
    finally:
        _feature_names.reset(token)


def warn_unidentified(
    X: Any, bags: Bags, multiplicity: Any = None, *, stacklevel: int = 3
) -> tuple[Problem, ...]:
    """Issue an :class:`~llpkit.errors.IdentifiabilityWarning` for every problem of the data.

    By default the warning points at the caller's caller. See :func:`problems_of`.
    """
    problems = problems_of(X, bags, multiplicity)
    for problem in problems:
        warnings.warn(str(problem), IdentifiabilityWarning, stacklevel=stacklevel)
    return problems


def problems_of(X: Any, bags: Bags, multiplicity: Any = None) -> tuple[Problem, ...]:
    """The problems of data whose rows may have a ``multiplicity`` ``(R,)``.

    Rows are repeated that often; if this gives too many, a sample of bags is checked.
    """
    if multiplicity is not None:
        times = np.asarray(multiplicity, np.int64)[bags.rows.numpy()]
        sizes = np.diff(np.append(0, np.cumsum(times))[bags.offsets.numpy()])
        chosen = random_sample(sizes, _WRITTEN_OUT, np.random.default_rng(0), least=0)
        if not len(chosen):
            return ()
        inner = instances_of(bags.offsets, torch.from_numpy(chosen))[0].numpy()
        rows = np.repeat(bags.rows.numpy()[inner], times[inner])
        ends = np.append(0, np.cumsum(sizes[chosen]))
        X = take_rows(X, rows)
        bags = Bags(ends, bags.evidence[chosen])
    if bool((bags.sizes == 1).all()) and bags.evidence.is_exact:
        return ()  # labelled instances
    names = _feature_names.get()
    known = len(names) > 0 and np.shape(X)[1:] == (len(names),)
    return identifiability(X, bags, feature_names=names if known else None).problems


def _of_counts(bags: Bags, rho: Array) -> list[Problem]:
    sizes = bags.sizes.numpy()
    if not len(sizes) or float((rho * sizes).sum()) < 0.01 * max(1, sizes.sum()):
        return [
            Problem(
                "counts",
                "the counts carry almost no information: they are unknown, or their noise is far "
                "larger than the bags",
                "give more precise counts, or labels for some rows",
            )
        ]
    rate = constant_rate(bags)
    top = float(torch.maximum(rate, 1 - rate).max() if rate.dim() == 0 else rate.max())
    if top == 1:
        return [
            Problem(
                "one class",
                "all instances of all bags are of one class, so nothing can be learned about how "
                "the classes differ",
                "add bags that contain the other class",
            )
        ]
    return []


def _of_proportions(x: Array | None, bags: Bags, alike: float, seed: int) -> list[Problem]:
    """Equal proportions, if models that contradict each other explain the counts equally well."""
    if alike >= _ALIKE:
        return []
    # If the classes cannot simply be exchanged, skewed features may still distinguish them.
    if not _symmetric(bags) and (x is None or not contradicting_modes(x, bags, seed)):
        return []
    return [
        Problem(
            "same proportions",
            "all bags have about the same proportion of each class, so the counts cannot separate "
            "the classes: the opposite labels explain them just as well, and the seed decides",
            "add bags with different proportions, or labels for a few rows (Bags.with_labels, "
            "--known-label)",
        )
    ]


def _symmetric(bags: Bags) -> bool:
    """Whether two classes have equal counts in every bag, so that any model may exchange them."""
    if not bags.evidence.is_exact:
        return False
    y = bags.counts
    if bags.num_classes is None:
        return bool((2 * y == bags.sizes).all())
    same = (y[:, :, None] == y[:, None, :]).all(0)  # (K, K)
    return bool(same.fill_diagonal_(False).any())


def _of_features(found: Directions, num_bags: int) -> list[Problem]:
    if found.only_bags:
        return [
            Problem(
                "within bags",
                "every column is the same in all rows of a bag, so nothing can show which of its "
                "rows are positive",
                "add columns that differ between the rows of a bag",
                found.bag_columns[:_NAMED],
            )
        ]
    if found.spanning:
        return [
            Problem(
                "bag columns",
                f"{len(found.bag_columns)} columns are the same in all rows of a bag and "
                f"distinguish the {num_bags} bags, so they can explain every count by themselves",
                "leave out columns that identify the bag",
                found.bag_columns[:_NAMED],
            )
        ]
    return [_of_direction(columns) for columns in found.weak[:_NAMED]]


def _of_direction(columns: tuple[str, ...]) -> Problem:
    what = "the mean of column" if len(columns) == 1 else "a combination of columns"
    more = " and others" if len(columns) > _NAMED else ""
    listed = ", ".join(map(repr, columns[:_NAMED])) + more
    return Problem(
        "direction",
        f"{what} {listed} is the same in all bags, so the counts cannot show whether it makes an "
        "instance more or less likely to be positive",
        "add bags that differ in it, or labels for a few rows (Bags.with_labels, --known-label)",
        columns[:_NAMED],
    )
