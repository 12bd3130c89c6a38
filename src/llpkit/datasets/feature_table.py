"""A table of features, one row per instance."""

from typing import Any

from llpkit.datasets.base import DataSet
from llpkit.datasets.registry import register
from llpkit.tables import Columns, CountColumns, FeatureEncoder, Table, listed
from llpkit.tables.selection import choose_features


@register("feature-table", summary="your own table: a bag column, counts, numbers and categories")
def feature_table(
    *,
    table: Any,
    bag: str,
    count_columns: CountColumns,
    features: Columns = None,
    drop: Columns = None,
    numeric: Columns = None,
    categorical: Columns = None,
    label: str | None = None,
) -> DataSet:
    """A table of features: a bag column, counts, numbers and categories.

    Args:
        table: The file (CSV, Parquet, Feather, JSON lines or Excel), or a data frame.
        bag: The column of bag names.
        count_columns: The columns of counts; :func:`~llpkit.datasets.load` takes their options.
        features: The columns to learn from; by default all others that can be used.
        drop: Columns to leave out instead.
        numeric: Features that must be numbers.
        categorical: Features that are categories even if they look like numbers.
        label: The column of true labels, for evaluation only.
    """
    data = Table.of(table)
    bags, truth, count_notes = count_columns.read_with_labels(data, bag, label)
    numbers, categories = listed(numeric), listed(categorical)
    taken = dict.fromkeys(count_columns.names, "the counts") | {bag: "the bag ids"}
    taken |= {n: "labels" for n in (label, count_columns.known_label) if n is not None}
    chosen, notes = choose_features(
        data, features, drop, taken=taken, wanted={*numbers, *categories}, bags=bags
    )
    encoder = FeatureEncoder.fit(data, chosen, numeric=numbers, categorical=categories)
    notes += encoder.notes(data) + count_notes
    names = count_columns.class_names_in(data)
    return DataSet("feature-table", encoder.apply(data), bags, truth, names, tuple(notes), encoder)
