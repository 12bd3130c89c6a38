"""Learn classifiers of single instances from the counts of labels in bags."""

from typing import TYPE_CHECKING, Any

from llpkit import likelihood
from llpkit.bags import Bags, random_bags
from llpkit.errors import LLPError
from llpkit.likelihood import Evidence

if TYPE_CHECKING:
    from llpkit.training import Fitted, fit, load

__version__ = "0.1.0.dev0"

__all__ = ["Bags", "Evidence", "Fitted", "LLPError", "fit", "likelihood", "load", "random_bags"]


def __getattr__(name: str) -> Any:
    # Training brings Lightning Fabric along, so it is imported when it is first used.
    if name in ("Fitted", "fit", "load"):
        from llpkit import training

        return getattr(training, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
