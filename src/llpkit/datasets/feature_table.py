"""A table of features, one row per instance."""

from collections.abc import Sequence
from typing import Any

from llpkit._validation import option
from llpkit.datasets.base import DataSet
from llpkit.datasets.registry import register
from llpkit.errors import LLPError
from llpkit.tables import Columns, CountColumns, FeatureEncoder, Table, listed
from llpkit.tables.selection import left_out, same_in_bags, usable


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
    if features is None:
        taken = {bag, label, *count_columns.names, *left_out(data, drop)}
        rest = [name for name in data.names if name not in taken]
        chosen, notes = usable(data, rest, wanted={*numbers, *categories})
        notes += [_of_the_bag(name) for name in chosen if same_in_bags(data, name, bags)]
    else:
        if drop:
            raise LLPError(
                f"{option('drop')} = {listed(drop)}, but {option('features')} names the columns to "
                "learn from; give one of the two"
            )
        chosen, notes = listed(features), []
        _check_features(chosen, bag, count_columns, label)
    encoder = FeatureEncoder.fit(data, chosen, numeric=numbers, categorical=categories)
    notes += encoder.notes(data) + count_notes
    names = count_columns.class_names_in(data)
    return DataSet("feature-table", encoder.apply(data), bags, truth, names, tuple(notes), encoder)


def _of_the_bag(name: str) -> str:
    return (
        f"column {name!r} is the same in all rows of every bag: it describes the bag, not the "
        f"instance; to leave it out, give {option('drop', name)}"
    )


def _check_features(
    chosen: Sequence[str], bag: str, counts: CountColumns, label: str | None
) -> None:
    """Refuse columns that hold counts, labels or bag names."""
    kinds: dict[str | None, str] = dict.fromkeys(counts.names, "the counts")
    kinds |= {counts.known_label: "the labels", label: "the labels", bag: "the bags"}
    for name in chosen:
        if name in kinds:
            raise LLPError(
                f"column {name!r} holds {kinds[name]}, which the rows of another table do not "
                f"have; leave it out of {option('features')}"
            )
