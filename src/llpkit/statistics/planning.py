"""Planning before counting: how many bags, of which size, and which ones."""

from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, ndtr

from llpkit._arrays import Array
from llpkit._validation import number, whole
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.statistics._text import text_table
from llpkit.statistics.assumptions import Model, as_model
from llpkit.statistics.information import bag_information, label_information

SIZES = (1, 2, 4, 8, 16, 32, 64)
_ROWS = 1_000_000
"""About how many rows the engine solves per bag size: every bag once per possible count."""
_MOST = 10**9
"""More bags than anyone will count."""


class Information:
    """The information of bags about a model, and the standard errors that follow.

    Args:
        per_bag: The mean information of a bag, ``(P, P)``.
        size: The mean number of instances of a bag.
        model: The model.
    """

    def __init__(self, per_bag: Array, size: float, model: Model) -> None:
        self.per_bag, self.size, self.model = per_bag, size, model
        labels = label_information(model.design, model.weights) / len(model.design)
        scale = np.sqrt(np.maximum(np.diag(labels), np.finfo(float).tiny))
        values, axes = np.linalg.eigh(labels / np.outer(scale, scale))
        # Collinear columns: no row varies in these directions, and the weights in them are zero.
        real = values > 1e-10 * values.max(initial=0.0)
        # The covariance after one label; `whiten` makes its inverse, the information, the identity.
        self._best = (axes[:, real] / values[real] @ axes[:, real].T) / np.outer(scale, scale)
        whiten = axes[:, real] / np.sqrt(values[real]) / scale[:, None]
        # Per direction, the information of a count in units of the information of a label.
        labels_per_count, directions = np.linalg.eigh(whiten.T @ per_bag @ whiten)
        known = labels_per_count > 1e-9
        self._known = whiten @ directions[:, known] / np.sqrt(labels_per_count[known])  # (P, …)
        self._unknown = whiten @ directions[:, ~known]

    def covariance(self, bags: float) -> Array:
        """The covariance of the estimated weights after counting this many bags, ``(P, P)``.

        It is infinite for weights that such bags do not determine. With collinear columns, such as
        one per category, the minimum-norm weights are meant.
        """
        number("bags", bags, above=0)
        covariance: Array = self._known @ self._known.T / bags
        lost = np.isinf(self._variances(np.eye(len(covariance))))
        covariance[lost, :] = covariance[:, lost] = 0.0
        covariance[lost, lost] = np.inf
        return covariance

    def _variances(self, x: Array) -> Array:
        """The variances of the logits of rows ``(N, P)`` after one bag, ``(N,)``."""
        # Both are standard errors after one label: of the part of the logit that counts do not
        # determine, and of the whole logit.
        lost = np.abs(x @ self._unknown).max(1, initial=0.0)
        most = np.sqrt(np.einsum("np,pq,nq->n", x, self._best, x).clip(min=0))
        return np.where(lost > 1e-6 * most, np.inf, np.square(x @ self._known).sum(1))

    def standard_errors(self, bags: float) -> Array:
        """The standard errors of the weights, ``(P,)``, the intercept last."""
        errors: Array = np.sqrt(np.diag(self.covariance(bags)))
        return errors

    @property
    def efficiency(self) -> float:
        """Information per instance relative to labels: the mean ratio of the slopes' variances."""
        # One label against as many bags as hold one instance.
        ratio = np.diag(self._best) / np.maximum(np.diag(self.covariance(1 / self.size)), 1e-300)
        slopes = np.ptp(self.model.design, axis=0) > 0  # not the intercept, nor constant columns
        return float(ratio[slopes].mean() if slopes.any() else ratio.mean())

    @property
    def labels_per_bag(self) -> float:
        """How many labelled instances one count is worth."""
        return self.size * self.efficiency

    def accuracy(self, bags: float) -> float:
        r"""The expected accuracy of the classifier learned from this many bags.

        The sign of a logit :math:`z` that is estimated with standard error :math:`\tau` is wrong
        with probability :math:`\Phi(-|z| / \tau)`, which costs :math:`|2 p - 1|`.
        """
        x, z = self.model.design, self.model.design @ self.model.weights
        tau = np.sqrt(self._variances(x) / number("bags", bags, above=0))
        p = expit(np.abs(z))  # of the more probable class
        return float((p - (2 * p - 1) * ndtr(-np.abs(z) / np.maximum(tau, 1e-300))).mean())

    def bags_for_standard_error(self, error: float, column: str | None = None) -> int | None:
        """The fewest bags for this standard error of a column's weight, or of the worst weight.

        ``None`` if no number of such bags determines the weight.
        """
        number("error", error, above=0)
        names = self.model.names
        if column is not None and column not in names:
            raise LLPError(f"there is no column {column!r}; the columns are {', '.join(names)}")
        one = self.standard_errors(1)[:-1]
        worst = one.max() if column is None else one[names.index(column)]
        return None if np.isinf(worst) else max(1, int(np.ceil((worst / error) ** 2)))

    def bags_for_accuracy(self, accuracy: float) -> int | None:
        """The fewest bags for this expected accuracy.

        ``None`` if no number of bags reaches it: it is above :attr:`Plan.best_accuracy`, the
        accuracy of the true model, or such bags do not determine the model.
        """
        number("accuracy", accuracy, above=0, below=1)
        if self.accuracy(_MOST) < accuracy:
            return None
        return 1 + bisect_left(range(1, _MOST), accuracy, key=self.accuracy)


@dataclass(frozen=True, repr=False)
class Plan:
    """The information of random bags, by size; prints as a table."""

    model: Model
    sizes: dict[int, Information]

    def __getitem__(self, size: int) -> Information:
        if size not in self.sizes:
            raise LLPError(f"size {size} was not planned; give sizes=[…, {size}]")
        return self.sizes[size]

    def __repr__(self) -> str:
        facts = [
            ("Columns", f"{len(self.model.names):,}"),
            ("Best accuracy", f"{self.best_accuracy:.1%}"),
        ]
        rows = [
            [f"{size:,}", f"{one.labels_per_bag:.2f}", f"{one.efficiency:.1%}"]
            for size, one in self.sizes.items()
        ]
        heads = ["bag size", "labels a count is worth", "information of labels"]
        return text_table("Plan", facts, heads, rows)

    @property
    def best_accuracy(self) -> float:
        """The accuracy of the true model."""
        p = expit(np.abs(self.model.design @ self.model.weights))
        return float(p.mean())


def plan(
    X: Any, sizes: Sequence[int] = SIZES, *, model: Any = None, seed: int = 0, **guess: Any
) -> Plan:
    """How informative counts of random bags would be, before they are counted.

    Args:
        X: Features ``(N, D)`` of instances like those to be counted.
        sizes: Bag sizes to compare.
        model: A :class:`Model`, or a fitted estimator; by default, :func:`assume` makes one.
        seed: Seed for the bags, which are drawn from the rows of ``X``.
        **guess: ``rate``, ``accuracy`` and ``feature_names`` of :func:`assume`, without a model.

    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> found = plan(X, sizes=[1, 8], rate=0.4, accuracy=0.8)
    >>> round(found[1].efficiency, 1), found[8].efficiency < 0.4
    (1.0, True)
    >>> found[8].bags_for_standard_error(0.2) > found[1].bags_for_standard_error(0.2) / 8
    True
    """
    if not isinstance(sizes, Sequence | np.ndarray) or not len(sizes):
        raise LLPError(f"sizes = {sizes!r}; give a list of bag sizes, such as [1, 8, 64]")
    chosen = as_model(model, X, guess)
    random = np.random.default_rng(seed)
    rows = len(chosen.design)
    planned = {}
    for size in sizes:
        if whole("sizes", size, 1) == 1:  # bags of one need no sampling
            labels = label_information(chosen.design, chosen.weights) / rows
            planned[size] = Information(labels, 1, chosen)
            continue
        bags = int(np.clip(_ROWS // (size * min(size + 1, 40)), 50, 4000))
        # Without replacement within a bag, if there are enough rows.
        if size <= rows:
            drawn = np.concatenate([_choice(random, rows, size) for _ in range(bags)])
        else:
            drawn = random.integers(rows, size=bags * size)
        per_bag = bag_information(
            chosen.design[drawn], chosen.weights, np.arange(0, bags * size + 1, size)
        )
        planned[size] = Information(per_bag.mean(0), size, chosen)
    return Plan(chosen, planned)


def compare(
    X: Any, ways: Mapping[str, Any], *, model: Any = None, **guess: Any
) -> dict[str, tuple[Information, int]]:
    """Compare ways to form bags: for each, the information of a bag and the number of bags.

    Args:
        X: Features ``(N, D)``.
        ways: For each way, the bag id of every row, ``(N,)``.
        model: As for :func:`plan`.
        **guess: ``rate``, ``accuracy`` and ``feature_names`` of :func:`assume`, without a model.

    >>> X = np.random.default_rng(0).normal(size=(800, 1))
    >>> alike = np.argsort(np.argsort(X[:, 0])) // 8  # neighbours in the same bag
    >>> found = compare(X, {"random": np.arange(800) // 8, "alike": alike}, accuracy=0.8)
    >>> found["alike"][0].efficiency > 2 * found["random"][0].efficiency
    True
    """
    chosen = as_model(model, X, guess)
    compared = {}
    for name, groups in ways.items():
        bags = _grouped(groups, len(chosen.design), name)
        design = chosen.design[bags.rows.numpy()]
        per_bag = bag_information(design, chosen.weights, bags.offsets.numpy())
        size = bags.num_instances / len(bags)
        compared[name] = Information(per_bag.mean(0), size, chosen), len(bags)
    return compared


def next_bags(
    X: Any,
    groups: Any,
    counted: Sequence[Hashable] = (),
    *,
    number_of_bags: int = 10,
    model: Any = None,
    **guess: Any,
) -> list[tuple[Hashable, float]]:
    r"""Which bags to count next: those that most increase :math:`\log \det` of the information.

    Args:
        X: Features ``(N, D)``.
        groups: The bag id of every row, ``(N,)``.
        counted: Ids of the bags that have a count.
        number_of_bags: How many to choose, one after the other.
        model: As for :func:`plan`; ideally a model that was fitted to the counted bags.
        **guess: ``rate``, ``accuracy`` and ``feature_names`` of :func:`assume`, without a model.

    Returns:
        Ids, each with its gain in :math:`\log \det`, in nats.

    >>> X = np.array([[0.0], [0.1], [0.0], [0.2], [3.0], [3.5]])
    >>> next_bags(X, [0, 0, 1, 1, 2, 2], counted=[0], number_of_bags=1, accuracy=0.8)[0][0]
    2
    """
    chosen = as_model(model, X, guess)
    bags = _grouped(groups, len(chosen.design), "groups")
    every = bag_information(chosen.design[bags.rows.numpy()], chosen.weights, bags.offsets.numpy())
    done = set(counted)
    unknown = done - set(bags.ids)
    if unknown:
        raise LLPError(f"counted has {next(iter(unknown))!r}, which is not in groups")
    candidates = [b for b, name in enumerate(bags.ids) if name not in done]
    width = every.shape[1]
    total = every[[b for b, name in enumerate(bags.ids) if name in done]].sum(0)
    # A little more, so that the determinant is positive before the first bag.
    total = total + 1e-3 * np.trace(every.mean(0)) / width * np.eye(width)
    ranking = []
    for _ in range(min(whole("number_of_bags", number_of_bags, 1), len(candidates))):
        before = np.linalg.slogdet(total)[1]
        gains = np.linalg.slogdet(total + every[candidates])[1] - before
        best = candidates.pop(int(gains.argmax()))
        ranking.append((bags.ids[best], float(gains.max())))
        total = total + every[best]
    return ranking


def _grouped(groups: Any, rows: int, name: str) -> Bags:
    bags = Bags.from_labels(np.zeros(len(groups), int), groups)
    if bags.num_rows != rows:
        raise LLPError(f"{name} has {bags.num_rows} rows but X has {rows}; give one id per row")
    return bags


def _choice(random: np.random.Generator, rows: int, size: int) -> Array:
    if 20 * size < rows:  # collisions are rare, and drawing without replacement is slow
        return random.integers(rows, size=size)
    return random.choice(rows, size=size, replace=False)
