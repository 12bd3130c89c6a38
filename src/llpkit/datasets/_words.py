"""Words for messages: the nearest known name, numbers with their noun."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A remedy for an unknown name: the nearest known one, or all of them.

    >>> did_you_mean("citar10", ["cifar10", "digits"])
    "did you mean 'cifar10'?"
    >>> did_you_mean("faces", ["cifar10", "digits"])
    'known are cifar10, digits'
    """
    names = list(known)
    folded = {each.casefold(): each for each in reversed(names)}
    near = difflib.get_close_matches(str(name).casefold(), folded, n=1, cutoff=0.6)
    if near:
        return f"did you mean {folded[near[0]]!r}?"
    return f"known are {', '.join(names)}" if names else "none is known"


def several(number: int, noun: str) -> str:
    """A number with its noun.

    >>> several(1, "row"), several(1913, "bag")
    ('1 row', '1,913 bags')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
