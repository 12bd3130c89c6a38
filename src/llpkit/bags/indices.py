"""Arrays of positions from users: offsets of bags, rows of a table, a selection of bags."""

from typing import Any

import numpy as np

from llpkit._arrays import Array, check_rising, numbers, refuse, whole_array
from llpkit._validation import whole
from llpkit.errors import LLPError


def checked_offsets(offsets: Any) -> Array:
    """Offsets of one bag or more, int64 ``(B + 1,)``."""
    ends = whole_array(offsets, "offsets")
    if ends.ndim != 1 or len(ends) < 2:
        raise LLPError(f"offsets has shape {ends.shape}; give B + 1 numbers for B > 0 bags")
    check_rising(ends)
    return ends


def checked_rows(rows: Any, num_instances: int, num_rows: Any) -> tuple[Array, int]:
    """The row numbers and the length of their table."""
    if rows is None:
        try:
            rows = np.arange(num_instances)
        except (MemoryError, ValueError) as error:
            raise LLPError(f"offsets end at {num_instances}: too many to fit in memory") from error
    table = whole_array(rows, "rows")  # (N,)
    if table.shape != (num_instances,):
        raise LLPError(f"rows has shape {table.shape} but offsets end at {num_instances}")
    needed = int(table.max(initial=-1)) + 1
    length = needed if num_rows is None else whole("num_rows", num_rows, 0)
    refuse(
        (table < 0) | (table >= length),
        lambda i: f"rows[{i}] = {table[i]} but the table has {length} rows, numbered from 0",
        "rows",
    )
    # Ascending rows cannot repeat; only others need the costly check.
    if (table[1:] <= table[:-1]).any():
        repeated = np.ones(num_instances, dtype=bool)
        repeated[np.unique(table, return_index=True)[1]] = False
        refuse(
            repeated,
            lambda i: f"rows[{i}] = {table[i]} is a duplicate; a row can be in one bag only",
            "rows",
        )
    return table, length


def positions(index: Any, num_bags: int) -> Array:
    """A slice, a list, an array or a mask as distinct bag numbers."""
    array = np.arange(num_bags)[index] if isinstance(index, slice) else numbers(index, "index")
    if array.dtype == bool and array.shape != (num_bags,):
        raise LLPError(f"the mask has shape {array.shape} but there are {num_bags} bags")
    bags = np.flatnonzero(array) if array.dtype == bool else whole_array(array, "index")
    if bags.ndim != 1 or len(bags) == 0:
        raise LLPError(f"index has shape {bags.shape}; select at least one bag, along one axis")
    refuse(
        (bags < -num_bags) | (bags >= num_bags),
        lambda i: f"index[{i}] = {bags[i]} but there are {num_bags} bags, numbered from 0",
        "entries",
    )
    bags = bags % num_bags  # negative numbers count from the end
    refuse(np.bincount(bags) > 1, lambda b: f"bag {b} is selected twice; a row is in one bag only")
    return bags
