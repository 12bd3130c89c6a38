"""Words for messages."""


def several(number: int, noun: str) -> str:
    """A number with its noun.

    >>> several(1, "row"), several(1913, "bag")
    ('1 row', '1,913 bags')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
