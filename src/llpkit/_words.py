"""Words for messages."""

from collections.abc import Sequence
from typing import Any


def several(number: int, noun: str) -> str:
    """A number with its noun.

    >>> several(1, "row"), several(1913, "bag")
    ('1 row', '1,913 bags')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def a_few(values: Sequence[Any], most: int = 5) -> str:
    """The first of some values, and how many more there are.

    >>> a_few(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    more = f" and {len(values) - most:,} more" if len(values) > most else ""
    return ", ".join(map(repr, values[:most])) + more
