"""Counting in the browser, with models that learn as people count."""

from llpkit.label.bagging import WAYS
from llpkit.label.items import ArrayItems, ImageItems, Items, RowItems
from llpkit.label.project import Project
from llpkit.label.queue import ORDERS
from llpkit.label.store import Store

__all__ = ["ORDERS", "WAYS", "ArrayItems", "ImageItems", "Items", "Project", "RowItems", "Store"]
