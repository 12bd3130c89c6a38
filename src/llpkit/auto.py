"""The default method: which one, by what is known before training, and why.

The rules were chosen by the measurements of ``benchmarks/which_method.py``, which
``docs/which-method.md`` shows. Whoever changes a rule runs it again.
"""

from dataclasses import dataclass, field
from typing import Any

from llpkit._words import several
from llpkit.bags import Bags
from llpkit.likelihood.budget import tractability
from llpkit.recipe import Recipe

PICKED = "picked"
"""The key of the choice and its reason in the details of a model."""
FEW_BAGS = 12
"""With fewer bags, folds of them say nothing, and a linear model is all that can be fitted."""
MANY_ROWS = 200_000
"""From here on the time of several estimators matters more than what they gain together."""


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


def pick_method(bags: Bags, recipe: Recipe) -> Pick:
    """The method that trains a network on these bags.

    >>> pick_method(Bags([0, 2, 4], [1, 2]), Recipe()).name
    'direct'
    """
    options = {} if exact(bags) else {"approximation": "sinkhorn"}
    return Pick("direct", "provisional", options)


def pick_estimator(bags: Bags) -> Pick:
    """The estimator for a table of features in these bags.

    >>> pick_estimator(Bags([0, 2, 4], [1, 2])).name
    'logistic'
    """
    options = {} if exact(bags) else {"approximation": "sinkhorn"}
    number, rows = several(len(bags), "bag"), several(bags.num_instances, "row")
    if len(bags) < FEW_BAGS:
        return Pick("logistic", f"{number} are too few for more than a linear model", options)
    if bags.num_instances >= MANY_ROWS:
        return Pick(
            "hist-gradient-boosting",
            f"boosting takes {rows} of features best, and several estimators would take long",
            options,
        )
    return Pick(
        "ensemble",
        f"for a table of {rows} in {number}, held-out bags tell whether a linear model, boosting "
        "or a network suits it",
        options,
    )


def exact(bags: Bags) -> bool:
    """Whether the exact likelihood of all bags is within the budget, or no approximation helps."""
    return not bool(tractability(bags.evidence, bags.sizes).bound.any())
