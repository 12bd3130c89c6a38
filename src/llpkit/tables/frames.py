"""Data frames of other packages as pyarrow tables: pandas, polars, pyarrow, Hugging Face."""

import sys
from typing import Any

from llpkit.errors import LLPError
from llpkit.tables.parsing import half_character


def is_frame(value: Any) -> bool:
    """Whether a value is a data frame: columns with names.

    Any object with named columns that exports Arrow data counts, such as a polars frame or a DuckDB
    relation.
    """
    if _is(value, "pandas", "DataFrame") or _is(value, "datasets", "Dataset"):
        return True
    if _is(value, "polars", "LazyFrame"):  # asking for its columns would already warn
        raise LLPError("a polars LazyFrame has no rows yet; pass frame.collect()")
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
            return _of_pandas(frame)
        if _is(frame, "datasets", "Dataset"):
            return frame.with_format("arrow")[:]
        if _is(frame, "polars", "DataFrame"):
            return frame.to_arrow()  # the stream has string views, which few functions take
        return pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        if isinstance(error, LLPError):
            raise
        reasons = " ".join(map(str, error.args))
        raise LLPError(
            f"the data frame cannot be read: {reasons}; give each column one type"
        ) from error


def _of_pandas(frame: Any) -> Any:
    """A pandas frame, column by column, so that an error names its column."""
    import pyarrow as pa

    names = [str(name) for name in frame.columns]
    arrays = []
    for i, name in enumerate(names):
        if half_character(name) is not None:
            raise LLPError(
                f"the data frame cannot be read: the column name {name!r} has an unpaired "
                "surrogate; correct it, or remove it"
            )
        column = _plain(frame.iloc[:, i])
        try:
            arrays.append(pa.array(column, from_pandas=True))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            for row, value in enumerate(column.tolist(), 1):
                if (half := half_character(value)) is not None:
                    raise LLPError(
                        f"the data frame: row {row} (counted from 1), column {name!r}: {half!r} "
                        "has an unpaired surrogate; correct it, or remove it"
                    ) from error
            raise LLPError(
                f"the data frame cannot be read: column {name!r}: {error}; give it one type, such "
                f"as text: frame[{name!r}].astype(str)"
            ) from error
    return pa.Table.from_arrays(arrays, names=names)


def _plain(column: Any) -> Any:
    """A pandas column of a type that Arrow has: not sparse, and categories that can be cast."""
    kind = type(column.dtype).__name__
    if kind == "SparseDtype":
        return column.sparse.to_dense()
    if kind == "CategoricalDtype":
        categories = type(column.cat.categories.dtype).__name__
        if categories in ("IntervalDtype", "PeriodDtype"):  # as pandas.cut makes them
            return column.cat.rename_categories(str)
    if kind == "IntervalDtype":
        return column.astype(str)
    return column


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
    """Whether a value is an instance of a class of a package, without importing the package."""
    kind = getattr(sys.modules.get(package), name, None)
    return isinstance(kind, type) and isinstance(value, kind)
