"""Errors for data frames whose columns hold text, which most classifiers do not take."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from llpkit.errors import LLPError
from llpkit.tables.frames import as_pandas, is_frame


@contextmanager
def text_columns_named(X: Any, estimator: object) -> Iterator[None]:
    """Let the error of a classifier that cannot use a frame name its first column of text.

    Classifiers that take categories raise none, so text is looked for only after an error.
    """
    try:
        yield
    except LLPError:
        raise
    except ValueError as error:
        found = _text(X) if is_frame(X) else None
        if found is None:
            raise
        name, value = found
        raise LLPError(
            f"column {name!r} of X holds text ({value!r}), and {type(estimator).__name__} failed: "
            f"{error}; encode text as numbers first, with a pipeline of ColumnTransformer and "
            "OneHotEncoder, or with llpkit.tables.FeatureEncoder"
        ) from error


def _text(frame: Any) -> tuple[str, str] | None:
    """The first column that holds text which is no number, and its first such value."""
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
