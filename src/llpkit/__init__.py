"""Learn classifiers of single instances from the counts of labels in bags."""

from llpkit import likelihood
from llpkit.bags import Bags, random_bags
from llpkit.errors import LLPError
from llpkit.likelihood import Evidence

__version__ = "0.1.0.dev0"

__all__ = ["Bags", "Evidence", "LLPError", "likelihood", "random_bags"]
