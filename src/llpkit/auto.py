"""The default method: which one, by what is known before training, and why.

The rules were chosen by the measurements of ``benchmarks/which_method.py``, which
``docs/which-method.md`` shows. Whoever changes a rule runs it again.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from llpkit._words import several
from llpkit.bags import Bags
from llpkit.recipe import Recipe

PICKED = "picked"
"""The key of the choice and its reason in the details of a model."""
FEW_BAGS = 12
"""With fewer bags, folds of them say nothing, and a linear model is all that can be fitted."""
MANY_ROWS = 200_000
"""From here on the time of several estimators matters more than what they gain together."""
LONG = 2000
"""Steps of training after which EM is ahead of the gradient on images."""


@dataclass(frozen=True)
class Pick:
    """A method or an estimator by name, its options, and the reason in words."""

    name: str
    reason: str
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"

    def about(self) -> dict[str, str]:
        """For the details of a model and the record of a run."""
        return {PICKED: str(self)}


def pick_method(bags: Bags, recipe: Recipe, of_images: bool) -> Pick:
    """The method that trains a network on these bags.

    >>> pick_method(Bags([0, 2, 4], [1, 2]), Recipe(), of_images=True).name
    'direct'
    """
    steps = recipe.epochs * math.ceil(bags.num_instances / recipe.batch_size)
    if of_images and steps >= LONG:
        return Pick(
            "mle",
            f"in long training on images, {steps:,} steps here, EM overfits least at any bag size",
        )
    largest = int(bags.sizes.max()) if len(bags) else 0
    if of_images and 2 * largest > recipe.batch_size:
        return Pick(
            "mle",
            f"bags of up to {largest:,} leave no room for several in a step of "
            f"{recipe.batch_size:,}, and EM takes single instances",
        )
    what = "short training" if of_images else "rows of features"
    return Pick("direct", f"for {what}, the gradient of the exact likelihood learns fastest")


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
            f"boosting takes {rows} of features best, and several estimators would take long",
        )
    return Pick(
        "ensemble",
        f"for a table of {rows} in {number}, held-out bags tell whether a linear model, boosting "
        "or a network suits it",
    )
