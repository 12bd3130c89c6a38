"""User tables: reading files and data frames, the counts of bags, and columns as features."""

from llpkit.tables.counts import Columns, CountColumns, listed
from llpkit.tables.features import FeatureEncoder
from llpkit.tables.table import Table

__all__ = ["Columns", "CountColumns", "FeatureEncoder", "Table", "listed"]
