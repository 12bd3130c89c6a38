"""Errors for data frames whose columns hold text, which most classifiers do not accept."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from llpkit.errors import LLPError
from llpkit.tables.frames import as_pandas, is_frame


@contextmanager
def text_columns_named(X: Any, estimator: object) -> Iterator[None]:
    """If a classifier fails on a data frame, name the first text column in the error.

    Some classifiers take categories, so text is an error only if the classifier fails.
    """
    try:
        yield
    except LLPError:
        raise
    except ValueError as error:
        text = _first_text(X) if is_frame(X) else None
        if text is None:
            raise
        name, value = text
        raise LLPError(
            f"column {name!r} of X holds text ({value!r}), and {type(estimator).__name__} failed: "
            f"{error}; encode text as numbers first, with a pipeline of ColumnTransformer and "
            "OneHotEncoder, or with llpkit.tables.FeatureEncoder"
        ) from error


def _first_text(frame: Any) -> tuple[str, str] | None:
    """The first column with text other than numbers, and its first such value."""
    frame = as_pandas(frame)
    for i, name in enumerate(frame.columns):
        for value in frame.iloc[:, i].unique():
            if isinstance(value, str) and not _is_number(value):
                return str(name), value
    return None


def _is_number(text: str) -> bool:
    try:
        np.float64(text)
    except ValueError:
        return False
    return True
