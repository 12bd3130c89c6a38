"""The default method or estimator, chosen by what is known before training, and why.

The rules come from measurements by ``benchmarks/which_method.py``, which
``docs/measurements/which-method.md`` shows. Run it again after changing a rule.
"""

import math
from dataclasses import dataclass

import torch

from llpkit._text import several
from llpkit.bags import Bags
from llpkit.losses import class_counts
from llpkit.recipe import Recipe

PICKED = "picked"
"""The key under which a model's details contain the choice and its reason."""
FEW_BAGS = 12
"""With fewer bags, cross-validation is too noisy to choose more than a linear model."""
MANY_ROWS = 200_000
"""From this many rows on, the time that an ensemble takes matters more than its gain."""
LONG = 2000
"""Training steps after which EM is ahead of the gradient on images."""
LARGE_BAGS = 32
"""Mean bag size from which the likelihood of counts carries little information per instance."""
MANY_COUNTS = 32
"""Number of counts, K - 1 per bag, from which the teacher's linear start is rarely wrong."""
SURPRISING = 3.0
"""Standard deviations beyond which counts vary more than those of random bags."""


@dataclass(frozen=True)
class Pick:
    """The name of a method or an estimator, and the reason for choosing it."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"

    def about(self) -> dict[str, str]:
        """The entry in the details of a model and in the record of a run."""
        return {PICKED: str(self)}


def pick_method(bags: Bags, recipe: Recipe, of_images: bool, many_processes: bool = False) -> Pick:
    """The method to train a network on these bags, in one process or several.

    >>> pick_method(Bags([0, 2, 4], [1, 2]), Recipe(), of_images=True).name
    'direct'
    """
    steps = recipe.epochs * math.ceil(bags.num_instances / recipe.batch_size)
    largest = int(bags.sizes.max()) if len(bags) else 0
    if of_images and steps >= LONG:
        reason = f"for long training on images ({steps:,} steps here), EM is best at any bag size"
        return Pick("mle", reason)
    if of_images and 2 * largest > recipe.batch_size:
        reason = f"EM batches single instances, while a step of {recipe.batch_size:,} cannot hold "
        reason += f"two bags of {largest:,}"
        if many_processes:
            return Pick("mle", reason)
        return Pick("teacher", f"{reason}; an averaged teacher starts from all counts at once")
    if of_images and not many_processes and bags.num_instances >= LARGE_BAGS * len(bags):
        counts = len(bags) * ((bags.num_classes or 2) - 1)
        if counts >= MANY_COUNTS:
            reason = f"bags are large, and their {counts:,} counts are enough for the linear model "
            return Pick("teacher", f"{reason}that an averaged teacher starts from")
        if look_random(bags):
            reason = (
                "bags are large and their counts look like those of random bags, so the square "
            )
            return Pick("dsq", f"{reason}loss can be estimated without bias")
    what = f"short training ({steps:,} steps)" if of_images else "rows of features"
    reason = f"for {what}, the gradient of the exact likelihood learns fastest"
    return Pick("direct", reason)


def pick_estimator(bags: Bags) -> Pick:
    """The estimator for a table of features in these bags.

    >>> pick_estimator(Bags([0, 2, 4], [1, 2])).name
    'logistic'
    """
    number, rows = several(len(bags), "bag"), several(bags.num_instances, "row")
    if len(bags) < FEW_BAGS:
        return Pick("logistic", f"{number} are too few for more than a linear model")
    if bags.num_instances >= MANY_ROWS:
        return Pick(
            "hist-gradient-boosting",
            f"boosting handles {rows} of features best, and an ensemble would take too long",
        )
    return Pick(
        "ensemble",
        f"for a table of {rows} in {number}, cross-validation within the training bags decides "
        "between a linear model, boosting and networks",
    )


def look_random(bags: Bags) -> bool:
    r"""Whether exact counts vary as if instances were assigned to bags at random.

    Pearson's test of homogeneity: with :math:`p` the overall rate,

    .. math:: X^2 = \sum_b \sum_k \frac{(y_{bk} - n_b p_k)^2}{n_b p_k}

    has about :math:`d = (B - 1)(K - 1)` degrees of freedom, so its mean is :math:`d` and its
    variance :math:`2 d`. Bags formed by place or time vary more.

    >>> look_random(Bags([0, 4, 8, 12], [2, 1, 2])), look_random(Bags([0, 20, 40], [0, 20]))
    (True, False)
    """
    if not bags.evidence.is_exact:
        return False
    n = bags.sizes.double()[:, None]
    y = class_counts(bags.counts, bags.sizes).double()  # (B, K)
    expected = n * y.sum(0) / n.sum()
    used = expected > 0
    square = torch.where(used, (y - expected).square() / expected, 0.0).sum()
    classes = int((y.sum(0) > 0).sum())
    freedom = (int((n > 0).sum()) - 1) * (classes - 1)
    return bool(square <= freedom + SURPRISING * math.sqrt(2 * max(freedom, 1)))
