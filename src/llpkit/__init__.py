"""Train per-item classifiers when only the counts of labels in groups are known."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llpkit import likelihood
    from llpkit._loading import load
    from llpkit.bags import Bags, random_bags
    from llpkit.errors import LLPError
    from llpkit.evidence import Evidence
    from llpkit.training import Fitted
    from llpkit.training.fitting import fit

__version__ = "0.1.0"

__all__ = ["Bags", "Evidence", "Fitted", "LLPError", "fit", "likelihood", "load", "random_bags"]

_HOME = {
    "Bags": "bags",
    "Evidence": "evidence",
    "Fitted": "training",
    "LLPError": "errors",
    "fit": "training",
    "load": "_loading",
    "random_bags": "bags",
}


def __getattr__(name: str) -> Any:
    # Names are imported on first use: the command line shows its help before torch is loaded, and
    # the engine works without the packages that training needs.
    if name == "likelihood":
        return importlib.import_module("llpkit.likelihood")
    if name in _HOME:
        return getattr(importlib.import_module(f"llpkit.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
