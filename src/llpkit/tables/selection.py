"""Which columns of a table can be features, and whether they are numbers or categories."""

import re
from collections.abc import Container, Mapping

import numpy as np

from llpkit._registry import did_you_mean
from llpkit._text import several
from llpkit._validation import option
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.tables.columns import MAX_LEVELS
from llpkit.tables.counts import Columns, listed
from llpkit.tables.parsing import PLAIN_NUMBERS
from llpkit.tables.table import NotText, Table

_IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
_FEW_BAGS = 5
"""With fewer bags of two rows or more, a column may be constant within each bag by chance."""


def is_numeric(table: Table, name: str) -> bool:
    """Whether the values of a column are numbers.

    If most of them are, the others are treated as typos and rejected: otherwise a single one
    would silently turn a column of numbers into hundreds of categories. A categorical of a data
    frame is a category, whatever its values.
    """
    if table.is_category(name):
        return False
    values, bad, _ = table.parse(name)
    if bad is None:
        return True
    numbers = int((~np.isnan(values)).sum())
    if _has_formatted(table, name):
        row = int(table.formatted(name).argmax())
        raise LLPError(
            f"{table.cell(row, name)} = {table.words(name)[row].as_py()!r} is not a plain "
            f"number; {PLAIN_NUMBERS}, or keep the column a category: {option('categorical', name)}"
        )
    if numbers > bad.total or table.is_typed(name):
        raise LLPError(
            f"{table.cell(bad.row, name)} = {bad.written!r} is not a number, but "
            f"{several(numbers, 'value')} of that column are; correct it, leave it empty, or keep "
            f"it a category: {option('categorical', name)}"
        )
    return False


def _has_formatted(table: Table, name: str) -> bool:
    """Whether most values of a column are numbers and some of these have commas or signs."""
    values, bad, _ = table.parse(name)
    written = int(table.formatted(name).sum())
    others = 0 if bad is None else bad.total
    return bool(written > 0 and (~np.isnan(values)).sum() + written > others - written)


def choose_features(
    table: Table,
    features: Columns = None,
    drop: Columns = None,
    *,
    taken: Mapping[str, str],
    wanted: Container[str] = (),
    bags: Bags | None = None,
    droppable: bool = True,
) -> tuple[list[str], list[str]]:
    """The columns to learn from, and notes on those left out and on those that describe bags.

    Args:
        table: The table.
        features: The columns by name; by default all others that can be used. Columns of numbers
            with typos can: fitting the encoder raises an error that explains them.
        drop: Columns to leave out instead.
        taken: Columns that are no features, and what they hold.
        wanted: Columns to keep even if they seem unusable.
        bags: The bags of the rows, if they are known.
        droppable: Whether the caller has an option ``drop``, for notes to name.
    """
    chosen, notes = listed(features), list[str]()
    if features is not None:
        if drop:
            raise LLPError(
                f"{option('drop')} = {listed(drop)}, but {option('features')} names the columns to "
                "learn from; give one of the two"
            )
        for name in chosen:
            if name in taken:
                raise LLPError(
                    f"column {name!r} holds {taken[name]}, which is nothing to learn from; leave "
                    f"it out of {option('features')}"
                )
        return chosen, notes
    out = {*taken, *_left_out(table, drop)}
    for name in table.names:
        reason = None if name in out or name in wanted else _useless(table, name)
        if reason is not None:
            notes.append(f"column {name!r} is left out: {reason}")
        elif name not in out:
            chosen.append(name)
    if bags is not None:
        for name in (name for name in chosen if _same_in_bags(table, name, bags)):
            remedy = "drop it if it is a bag id or a count"
            if droppable:
                remedy = f"to leave it out, give {option('drop', name)}"
            notes.append(
                f"column {name!r} is the same in all rows of every bag: it describes the bag, not "
                f"the instance; {remedy}"
            )
    return chosen, notes


def _left_out(table: Table, drop: Columns) -> set[str]:
    """The columns that the user leaves out, all of which the table must have."""
    for name in listed(drop):
        if name not in table.names:
            raise LLPError(
                f"{table.path} has no column {name!r} to leave out; "
                f"{did_you_mean(name, table.names)}"
            )
    return set(listed(drop))


def _same_in_bags(table: Table, name: str, bags: Bags) -> bool:
    """Whether a column differs between bags but never within one, given enough bags."""
    if table.is_vector(name):
        return False
    values, bad, _ = table.parse(name)
    if bad is not None:
        encoded = table.words(name).dictionary_encode().indices.fill_null(-1)
        values = encoded.to_numpy(zero_copy_only=False)
    values = np.nan_to_num(values, nan=np.inf)[bags.rows.numpy()]  # missing values are equal
    # For every instance, the value of the first one in its bag.
    first = values[bags.offsets[:-1].numpy()][bags.bag_index.numpy()]
    enough = int((bags.sizes > 1).sum()) >= _FEW_BAGS
    return enough and bool((values == first).all() and (values != values[0]).any())


def _useless(table: Table, name: str) -> str | None:
    import pyarrow.compute as pc

    if not name.strip():
        return "it has no name"
    if re.fullmatch(r"__index_level_\d+__", name):
        return "it is the index of a data frame"
    if table.is_vector(name):
        return None
    try:
        values, bad, _ = table.parse(name)
    except NotText as error:
        return str(error)
    if np.isnan(values).all() and bad is None:
        return "it has no values"
    numbers = bad is None or (~np.isnan(values)).sum() > bad.total or _has_formatted(table, name)
    if (numbers or table.is_typed(name)) and not table.is_category(name):
        return None
    if table.is_date(name):
        # As categories, all later dates would be alike.
        return (
            "it holds dates or times; turn them into numbers, such as the year, the month or the "
            "days since a start"
        )
    words = table.words(name)
    distinct = pc.count_distinct(words).as_py()
    if distinct > MAX_LEVELS and str(words[0].as_py()).lower().endswith(_IMAGES):
        return "it names images; llpkit fit --image learns from those"
    if distinct > max(MAX_LEVELS, len(table) // 2):
        rows = several(len(table), "row")
        return f"{distinct:,} different values in {rows} are too many for a category"
    return None
