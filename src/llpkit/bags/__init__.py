"""Bags: instances on one flat axis, the extent of each bag, and what is known about its counts."""

from llpkit.bags.bags import Bag, Bags
from llpkit.bags.random import random_bags

__all__ = ["Bag", "Bags", "random_bags"]
