"""The one family of errors that llpkit raises for what a user passed in, and its warnings."""


class LLPError(ValueError):
    """Bad input. The message names the value, its place and the remedy."""


class TooManyStates(LLPError):
    """The exact likelihood of a bag of many classes is out of reach.

    Args:
        what: Which bag, and how many states it needs.
        rest: What is wrong with that, and the remedy.
        approximable: Whether the approximation is a remedy: it takes exact counts alone.
    """

    def __init__(self, what: str, rest: str, approximable: bool) -> None:
        super().__init__(what, rest, approximable)
        self.what, self.approximable = what, approximable

    def __str__(self) -> str:
        return f"{self.args[0]} {self.args[1]}"

    def choosing(self, option: str) -> "TooManyStates":
        """The same for a user who asks for the approximation with ``option``."""
        remedy = f"approximate it with {option}"
        if not self.approximable:
            remedy = "there is no approximation for counts that are not exact; make bags smaller"
        rest = f"for its exact likelihood, which are too many; {remedy}"
        return TooManyStates(self.what, rest, self.approximable)


class Diverged(LLPError):
    """Training ended because the loss or the likelihood is no longer a finite number."""


class ApproximationWarning(UserWarning):
    """Measures of bags are approximate, since the exact likelihood is out of reach."""


class BaselineWarning(UserWarning):
    """A model does not clearly explain its bags better than one constant rate for all instances."""
