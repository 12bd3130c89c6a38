"""The user's tables: read CSV and Parquet, find the counts of bags, turn columns into features."""

from llpkit.tables.counts import Columns, CountColumns, listed
from llpkit.tables.features import FeatureEncoder
from llpkit.tables.table import Table

__all__ = ["Columns", "CountColumns", "FeatureEncoder", "Table", "listed"]
