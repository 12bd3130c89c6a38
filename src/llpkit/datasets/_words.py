"""Words for messages: the nearest known name, numbers with their noun."""

from llpkit._registry import did_you_mean as did_you_mean


def several(number: int, noun: str) -> str:
    """A number with its noun.

    >>> several(1, "row"), several(1913, "bag")
    ('1 row', '1,913 bags')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
