"""How a fuzzed area counts its cases, and what it holds against the library.

A case ends in an answer that an independent check confirms or, where the input is wrong by a rule
of the fuzzer's own, in an ``LLPError``. Everything else is a ``Failure``: another exception, a
wrong answer, an answer to wrong input, a refusal of right input.
"""

import traceback
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from llpkit import LLPError

T = TypeVar("T")


class Failure(AssertionError):
    """A case that ended wrongly; the message holds what reproduces it."""


class Score:
    """Cases that ended well: answers that were confirmed, and refusals that were due."""

    def __init__(self) -> None:
        self.confirmed = 0
        self.refused = 0

    def confirm(self, number: int = 1) -> None:
        self.confirmed += number

    def refuse(self, number: int = 1) -> None:
        self.refused += number

    @property
    def cases(self) -> int:
        return self.confirmed + self.refused


def fail(what: str, /, **info: Any) -> NoReturn:
    """Raise with everything needed to see the case again."""
    lines = [what, *(f"  {name} = {value!r}" for name, value in info.items())]
    raise Failure("\n".join(lines))


def attempt(call: Callable[[], T], /, **info: Any) -> tuple[T | None, LLPError | None]:
    """The answer or the refusal; any other exception is a failure."""
    try:
        return call(), None
    except LLPError as error:
        return None, error
    except Failure:
        raise
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{where.filename.rpartition('site-packages/')[2]}:{where.lineno}"
        ours = [f for f in traceback.extract_tb(error.__traceback__) if "llpkit" in f.filename]
        if ours:
            place += f", called from llpkit{ours[-1].filename.rpartition('llpkit')[2]}"
            place += f":{ours[-1].lineno}"
        fail(f"{type(error).__name__} in place of an LLPError ({place}): {error}", **info)


def answer(call: Callable[[], T], /, **info: Any) -> T:
    """The answer to valid input, which must not be refused."""
    found, refusal = attempt(call, **info)
    if refusal is not None:
        fail(f"valid input was refused: {refusal}", **info)
    return found  # type: ignore[return-value]


def must_refuse(call: Callable[[], Any], score: Score, /, **info: Any) -> None:
    """Invalid input must end in an LLPError."""
    found, refusal = attempt(call, **info)
    if refusal is None:
        fail("invalid input was answered", answer=found, **info)
    score.refuse()
