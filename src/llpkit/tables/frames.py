"""Data frames of other packages as pyarrow tables: pandas, polars, pyarrow, Hugging Face."""

import sys
from typing import Any

from llpkit.errors import LLPError
from llpkit.tables.parsing import half_character


def is_frame(value: Any) -> bool:
    """Whether a value is a data frame: columns with names.

    Any object counts that has named columns and exports Arrow data, such as a polars frame or a
    DuckDB relation.
    """
    if _is(value, "pandas", "DataFrame") or _is(value, "datasets", "Dataset"):
        return True
    named = hasattr(value, "columns") or hasattr(value, "column_names")
    return named and hasattr(value, "__arrow_c_stream__")


def arrow_of(frame: Any) -> Any:
    """A data frame as a pyarrow table, without the index of a pandas frame."""
    import pyarrow as pa

    try:
        if isinstance(frame, pa.Table):
            return frame
        if isinstance(frame, pa.RecordBatch):
            return pa.Table.from_batches([frame])
        if _is(frame, "pandas", "DataFrame"):
            return pa.Table.from_pandas(frame, preserve_index=False)
        if _is(frame, "datasets", "Dataset"):
            return frame.with_format("arrow")[:]
        if _is(frame, "polars", "DataFrame"):
            return frame.to_arrow()  # the stream has string views, which few functions take
        return pa.table(frame)
    except UnicodeError as error:
        raise LLPError(
            f"the data frame cannot be read: {_half_character(frame)} is half a character; correct "
            "it, or remove it"
        ) from error
    except (pa.ArrowException, TypeError, ValueError) as error:
        reasons = " ".join(map(str, error.args))
        raise LLPError(
            f"the data frame cannot be read: {reasons}; give each column one type"
        ) from error


def _half_character(frame: Any) -> str:
    """Where a pandas frame has half a character: a name, a value or a category."""
    for column, name in enumerate(frame.columns):
        if half_character(name) is not None:
            return f"the column name {name!r}"
        values = frame.iloc[:, column].tolist()
        for row, value in enumerate(values, 1):
            if (half := half_character(value)) is not None:
                return f"row {row} (counted from 1), column {name!r}: {half!r}"
    return "a value"


def as_pandas(frame: Any) -> Any:
    """Any data frame as one of pandas; a pandas frame unchanged."""
    if _is(frame, "pandas", "DataFrame"):
        return frame
    try:
        return arrow_of(frame).to_pandas()
    except ImportError as error:
        raise LLPError(
            f"a {type(frame).__name__} of {type(frame).__module__.partition('.')[0]} is converted "
            "by pandas here, which is not installed; pip install pandas, or pass an array"
        ) from error


def _is(value: Any, package: str, name: str) -> bool:
    """Whether a value is of a class of a package, which is imported if there is such a value."""
    kind = getattr(sys.modules.get(package), name, None)
    return isinstance(kind, type) and isinstance(value, kind)
