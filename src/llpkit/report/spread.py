"""Means with their standard deviation or interval, and how tables show them."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, stdev


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of ``number`` values; a single one has no deviation.

    >>> f"{Spread(95.31, 0.52):.1f}"
    '95.3 ± 0.5'
    """

    mean: float
    sd: float | None = None
    number: int = 1

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """Mean and standard deviation of at least one value."""
        numbers = list(values)
        return cls(fmean(numbers), stdev(numbers) if len(numbers) > 1 else None, len(numbers))

    def __format__(self, spec: str) -> str:
        around = "" if self.sd is None else f" ± {self.sd:{spec}}"
        return true_minus(f"{self.mean:{spec}}{around}")


@dataclass(frozen=True)
class Interval:
    """A mean and the ends of its interval, if it has one.

    >>> f"{Interval(1.0, -0.5, 2.5):+.1f}"
    '+1.0 (−0.5 to +2.5)'
    """

    mean: float
    low: float | None = None
    high: float | None = None

    def __format__(self, spec: str) -> str:
        return " ".join(filter(None, self.parts(spec)))

    def parts(self, spec: str) -> tuple[str, str]:
        """The mean, and the ends in brackets if there are any."""
        # The format option "z" turns a rounded -0.0 into 0.0.
        zero = "z" if spec.endswith("f") else ""
        signs, digits = (spec[:1], spec[1:]) if spec.startswith("+") else ("", spec)
        mean, low, high = (
            "never" if x is None else true_minus(f"{x:{signs}{zero}{digits}}")
            for x in (self.mean, self.low, self.high)
        )
        return mean, "" if self.low is None else f"({low} to {high})"


def true_minus(text: str) -> str:
    """With the minus sign in place of the hyphen."""
    return text.replace("-", "−")
