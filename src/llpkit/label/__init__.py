"""Counting in the browser, and models that learn while one counts."""

from llpkit.label.bagging import WAYS
from llpkit.label.items import ArrayItems, ImageItems, Items, RowItems
from llpkit.label.project import Project
from llpkit.label.queue import ORDERS
from llpkit.label.store import Store

__all__ = ["ORDERS", "WAYS", "ArrayItems", "ImageItems", "Items", "Project", "RowItems", "Store"]
