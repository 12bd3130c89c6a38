"""Tables from files and data frames, and messages that name file, row and column.

A CSV is read as text and columns are converted on demand, so that messages can show a value as it
was written, and a table can be written back unchanged. Rows in messages are counted from 1, without
the header and blank lines; the line of the file is added if it is not simply one more.
"""

import contextlib
import functools
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llpkit._arrays import Array, refuse
from llpkit._registry import did_you_mean
from llpkit._text import several
from llpkit._validation import option
from llpkit.errors import LLPError
from llpkit.files import atomic
from llpkit.tables.arrow import FEATHER_1, FILE, STREAM, read_arrow, without_views
from llpkit.tables.csv import lines_of, read_csv, row_name, write_csv
from llpkit.tables.excel import read_excel
from llpkit.tables.files import ARROW, EXCEL, FORMATS, JSON, PARQUET, content, ending, read_parquet
from llpkit.tables.frames import arrow_of, is_frame
from llpkit.tables.json_lines import read_json
from llpkit.tables.parsing import MISSING, PLAIN_NUMBERS, Parsed, formatted, is_formatted, parse

_FAILED = r"^#(DIV/0!|VALUE!|REF!|NAME\?|NUM!|NULL!|SPILL!|CALC!|BLOCKED!|CONNECT!|FIELD!)$"
"""Spreadsheet errors, in cells and in CSV files saved from spreadsheets."""
_DATE = r"^\d{4}-\d\d-\d\d([ T]\d\d:.*)?$"


class NotText(LLPError):
    """A column of a type that cannot be read as text, such as lists of words."""


class Table:
    """A file or a data frame: one row per instance, or one row per bag.

    A value is missing if it is empty or reads NA, N/A, #N/A, NaN, None, null or a question mark, in
    upper or lower case. In a column of bag names or image paths only an empty value and a
    spreadsheet's #N/A are missing.

    Use :meth:`read` or :meth:`of`; ``path`` names the table in errors, ``data`` is a
    ``pyarrow.Table``, ``delimiter`` is the separator of a CSV. If that is not a comma, a column of
    numbers such as 30,5 is numeric.
    """

    def __init__(self, path: Path, data: Any, delimiter: str | None = None) -> None:
        self.path = path
        self.delimiter = delimiter
        self.is_file = True
        """Whether it was read from a file, not from a data frame."""
        self.index: list[Any] = []
        """Names of the index of a pandas frame, which is not read."""
        self.decimal_commas: dict[str, str] = {}
        """A value, as written, of each column that was read with decimal commas."""
        self.names: list[str] = data.column_names
        self.data = without_views(data)
        self._position = {name: i for i, name in enumerate(self.names)}
        self._parsed: dict[tuple[str, bool], Parsed] = {}
        twice = [name for name, times in Counter(self.names).items() if times > 1]
        if twice:
            raise LLPError(f"{path}: two columns are called {twice[0]!r}; rename one")
        if not len(data) or not self.names:
            raise LLPError(f"{path} has no rows below its header; give one row per instance")

    @classmethod
    def of(cls, source: Any, name: str = "the data frame") -> "Table":
        """A table from a data frame (pandas, polars, pyarrow, Hugging Face) or from a file.

        Errors call a data frame ``name``, and a file by its path.
        """
        if not is_frame(source):
            return cls.read(source)
        table = cls(Path(name), arrow_of(source))
        table.is_file = False
        names = getattr(getattr(source, "index", None), "names", ())
        table.index = [name for name in names if name is not None]
        return table

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Table":
        """Read a file by its name or its first bytes; if neither is known, as CSV.

        The formats are CSV, Parquet, Feather (Arrow IPC), JSON lines and Excel. A CSV or JSON file
        may be compressed.
        """
        if not isinstance(path, str | os.PathLike):
            raise LLPError(
                f"table is of type {type(path).__name__}; give the path of a file, or a data frame "
                "of pandas, polars or pyarrow"
            )
        file = Path(os.path.expanduser(path))
        if os.path.isdir(file):
            raise LLPError(f"{file} is a folder; give a file: {FORMATS}")
        try:
            data = content(file)
        except FileNotFoundError as error:
            raise LLPError(f"{file} does not exist; check the path of the table") from error
        except LLPError:
            raise
        except (OSError, ValueError) as error:
            raise LLPError(f"{file} cannot be read: {error}") from error
        end = ending(file)
        if data.startswith(b"PAR1") or end in PARQUET:
            return cls(file, read_parquet(file, data))
        if data.startswith((FILE, STREAM, FEATHER_1)) or end in ARROW:
            return cls(file, read_arrow(file, data))
        if end in EXCEL:
            return cls(file, read_excel(file, data))
        if end in JSON:
            return cls(file, read_json(file, data))
        return cls(file, *read_csv(file, data))

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return (
            f"Table({self.path}, {several(len(self), 'row')}, {several(len(self.names), 'column')})"
        )

    def cell(self, row: int, column: str) -> str:
        """How messages name a cell."""
        if not self.is_file:
            return f"{self.path}: row {row + 1} (counted from 1), column {column!r}"
        if ending(self.path) in EXCEL:
            name = f"row {row + 1} (header not counted, row {row + 2} of the sheet)"
        else:
            name = row_name(row, self._lines)
        return f"{self.path}: {name}, column {column!r}"

    @functools.cached_property
    def _lines(self) -> list[int]:
        """The line of the file on which each row begins; empty if it is not a CSV."""
        if self.delimiter is not None:
            with contextlib.suppress(OSError, ValueError):  # the file may no longer exist
                return lines_of(content(self.path), self.delimiter)
        return []

    def _chunks(self, name: str) -> Any:
        """The column as it is."""
        if not isinstance(name, str) or name not in self._position:
            known = f"it is the index: pass frame.reset_index() ({name!r} is then a column)"
            if name not in self.index:
                known = did_you_mean(name, self.names)
            raise LLPError(f"{self.path} has no column {name!r}; {known}")
        return self.data.column(self._position[name])  # by name, pyarrow searches all columns

    def _column(self, name: str) -> Any:
        """The column as one pyarrow array, categories replaced by their values."""
        import pyarrow as pa

        column = self._chunks(name)
        if pa.types.is_dictionary(column.type):
            try:
                column = column.cast(column.type.value_type)
            except pa.ArrowException as error:
                raise self._not_text(name, column) from error
        if pa.types.is_string(column.type):
            column = column.cast(pa.large_string())  # a combined array may exceed 2 GB
        return column.combine_chunks()

    def text(self, name: str, missing: Sequence[str] = ("", "#n/a")) -> Any:
        """The column as text, trimmed, null where missing: a pyarrow array."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self._column(name)
        try:
            if pa.types.is_floating(column.type):
                column = pc.if_else(pc.is_nan(column), None, column)
                # Ids are floats if one is missing: 123456789012, not 1.23456789012e+11.
                with contextlib.suppress(pa.ArrowInvalid):
                    column = column.cast(pa.int64())
            column = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
        except (pa.ArrowException, ValueError) as error:
            raise self._not_text(name, column) from error
        gone = pc.is_in(pc.utf8_lower(column), value_set=pa.array(missing, pa.large_string()))
        column = pc.if_else(gone, None, column)
        failed = pc.index(pc.match_substring_regex(column, _FAILED).fill_null(False), True).as_py()
        if failed >= 0:
            raise LLPError(
                f"{self.cell(failed, name)} = {column[failed].as_py()!r} is a spreadsheet "
                "error; correct its formula, or leave the cell empty"
            )
        return column

    def _not_text(self, name: str, column: Any) -> NotText:
        what = f"column {name!r} holds {column.type}"
        return NotText(f"{self.path}: {what}; give text or numbers")

    def words(self, name: str) -> Any:
        """The column as text, null where the value is missing in any of the usual spellings."""
        return self.text(name, MISSING)

    def numbers(
        self,
        name: str,
        remedy: str = "correct it or leave it empty",
        decimal_commas: bool = False,
        missing: str | None = None,
    ) -> Array:
        """The column as float64 ``(R,)``, NaN where missing; any other text is an error.

        Commas are decimal if that is known or follows from the values. ``missing`` is a regular
        expression for strings that stand for a missing value here.
        """
        values, bad, _ = self.parse(name, decimal_commas)
        if bad is not None and missing is not None:
            values, bad = self._parse_without(name, missing)
        if bad is not None:
            remedy = PLAIN_NUMBERS if is_formatted(bad.written) else remedy
            raise LLPError(
                f"{self.cell(bad.row, name)} = {bad.written!r} is not a number; {remedy}"
            )
        return values

    def parse(self, name: str, decimal_commas: bool = False) -> Parsed:
        """The column as float64, and the values in it that are not numbers."""
        self._chunks(name)  # there must be such a column
        key = name, decimal_commas
        if key not in self._parsed:  # fitting features parses a column several times
            likely = self.delimiter in (";", "\t")
            found = parse(self._column(name), lambda: self.words(name), decimal_commas, likely)
            if found.decimal_comma is not None:
                self.decimal_commas[name] = found.decimal_comma
            self._parsed[key] = found
        return self._parsed[key]

    def _parse_without(self, name: str, missing: str) -> tuple[Array, Any]:
        """The column as float64 and the first bad value; strings that match are missing."""
        import pyarrow.compute as pc

        text = self.words(name)
        gone = pc.match_substring_regex(text, missing).fill_null(False)
        text = pc.if_else(gone, None, text)
        return parse(text, lambda: text, False, self.delimiter in (";", "\t"))[:2]

    def is_vector(self, name: str) -> bool:
        """Whether a column holds lists of numbers, such as embeddings."""
        import pyarrow as pa

        kind, types = self._chunks(name).type, pa.types
        lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
        if not any(test(kind) for test in lists):
            return False
        numbers = (types.is_integer, types.is_floating, types.is_boolean)
        return any(test(kind.value_type) for test in numbers)

    def is_category(self, name: str) -> bool:
        """Whether a column was declared a category, whatever its values: an Arrow dictionary."""
        import pyarrow as pa

        return bool(pa.types.is_dictionary(self._chunks(name).type))

    def is_typed(self, name: str) -> bool:
        """Whether a column has a numeric type, unlike numbers in text."""
        import pyarrow as pa

        kind = self._chunks(name).type
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))

    def is_date(self, name: str) -> bool:
        """Whether a column holds dates or times by its type, or texts such as 2026-01-31."""
        import pyarrow as pa
        import pyarrow.compute as pc

        kind, types = self._chunks(name).type, pa.types
        if types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind):
            return True
        texts = types.is_string(kind) or types.is_large_string(kind)
        return texts and bool(pc.all(pc.match_substring_regex(self.words(name), _DATE)).as_py())

    def vectors(self, name: str, width: int | None = None) -> NDArray[np.float32]:
        """A column of lists of numbers as float32 ``(R, D)``, NaN in rows without a list.

        All lists must have the same length: ``width`` or, without it, that of the first.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self._chunks(name)  # in one piece, it might be too long for its offsets
        lengths = pc.list_value_length(column).fill_null(-1).to_numpy()
        there = lengths >= 0
        expected = "training had" if width is not None else f"row {int(there.argmax()) + 1} has"
        if width is None:
            width = int(lengths[there.argmax()]) if there.any() else 0
        remedy = f"give lists of equal length, or leave the column out: {option('drop', name)}"
        wrong = there & (lengths != width)
        if wrong.any():
            row = int(wrong.argmax())
            raise LLPError(
                f"{self.cell(row, name)} has {several(int(lengths[row]), 'number')} but {expected} "
                f"{width:,}; {remedy}"
            )
        values = pc.list_flatten(column).cast(pa.float32(), safe=False)
        values = values.to_numpy().reshape(int(there.sum()), width)
        bad = ~np.isfinite(values).all(1)
        if bad.any():
            row = int(np.flatnonzero(there)[bad.argmax()])
            raise LLPError(
                f"{self.cell(row, name)} has an entry that is not a finite number; correct it, or "
                f"leave the column out: {option('drop', name)}"
            )
        out = np.full((len(self), width), np.nan, np.float32)
        out[there] = values
        return out

    def has_decimals(self, name: str) -> bool:
        """Whether a column of numbers holds floats, or text with a decimal point or comma."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self._column(name)
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            return bool(pa.types.is_floating(column.type) or pa.types.is_decimal(column.type))
        return bool(pc.any(pc.match_substring_regex(self.words(name), "[.,]")).as_py())

    def formatted(self, name: str) -> Array:
        """Which rows hold a number with commas, spaces or signs, bool ``(R,)``."""
        return formatted(self.words(name))

    def groups(self, name: str, alone: Array | None = None) -> tuple[Array, list[str]]:
        """The bag number of every row, and the ids of the bags in order of first appearance.

        The rows in ``alone``, a mask ``(R,)``, may have no bag, and are then bags of one.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        text = self.text(name)
        if alone is not None and text.null_count:
            own = [f"row {row + 1}" if one else None for row, one in enumerate(alone)]
            text = pc.coalesce(text, pa.array(own, pa.large_string()))
        if text.null_count:
            refuse(
                text.is_null().to_numpy(zero_copy_only=False),
                lambda row: f"{self.cell(row, name)} is empty; give the row its bag or drop it",
                "rows",
            )
        # The dictionary is in order of first appearance.
        encoded = text.dictionary_encode()
        return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()

    def distinct(self, name: str) -> list[str]:
        """The different values of a column, without missing ones: numbers by size, else words."""
        found = self.words(name).drop_null().unique().to_pylist()
        if all(re.fullmatch(r"[+-]?\d{1,18}", value) for value in found):
            return sorted(found, key=int)
        return sorted(found)

    def labels(self, name: str, class_names: Sequence[str], partly: bool = False) -> Array:
        """True labels, int64 ``(R,)``: class names, or the numbers ``0 … K - 1``.

        If they are only ``partly`` known, a missing one is -1.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        codes = {str(k): k for k in range(len(class_names))}
        if len(class_names) == 2:
            codes |= {"false": 0, "true": 1}
        # Class names take precedence over numbers: classes may be called 1 and 2.
        codes |= {label.strip(): k for k, label in enumerate(class_names)}
        text = self.words(name) if partly else self.text(name)
        found = pc.index_in(text, value_set=pa.array(list(codes), pa.large_string()))
        bad = found.is_null()
        if partly:
            bad = pc.and_(bad, text.is_valid())
        if pc.any(bad).as_py():
            row = pc.index(bad, True).as_py()
            gone = pc.and_(bad, self.words(name).is_null())
            if gone[row].as_py():
                # Single rows cannot be left out: the counts are those of whole bags.
                raise LLPError(
                    f"{self.cell(row, name)} has no label "
                    f"({several(pc.sum(gone).as_py(), 'such row')} in all), but evaluation needs "
                    "the label of every row; fill them in, leave out the whole bags of such rows, "
                    f"or give no {option('label')}"
                )
            names = ["NAME"] * len(class_names)  # only the user knows the order of the counts
            raise LLPError(
                f"{self.cell(row, name)} = {text[row].as_py()!r} is not a class; give "
                f"{', '.join(class_names)} or 0 to {len(class_names) - 1}, or name the "
                f"classes in their order: {option('class_names', names)}"
            )
        # Missing labels, where they are allowed, take the last entry.
        values = np.array([*codes.values(), -1], np.int64)
        labels: Array = values[found.fill_null(len(codes)).to_numpy()]
        return labels

    def write(self, path: str | os.PathLike[str], columns: Mapping[str, Array]) -> None:
        """Write the table with new columns on the right: Parquet or CSV, by the file's name."""
        import pyarrow as pa

        data, file = self.data, Path(os.path.expanduser(path))
        for name, values in columns.items():
            if name in data.column_names:
                raise LLPError(f"{self.path} has a column {name!r} already; rename it")
            data = data.append_column(name, pa.array(values))
        try:
            with atomic(file) as temporary:
                if file.suffix.lower() in PARQUET:
                    import pyarrow.parquet as pq

                    pq.write_table(data, temporary)
                else:
                    write_csv(data, temporary)
        except pa.ArrowException as error:
            raise LLPError(f"{file} cannot be written: {error}") from error
