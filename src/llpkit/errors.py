"""The errors that llpkit raises for bad input, and its warnings."""


class LLPError(ValueError):
    """Bad input. The message names the value, its place and the remedy."""


class TooManyStates(LLPError):
    """The exact likelihood of a bag of many classes is intractable.

    Args:
        what: The bag and the number of states it needs.
        rest: The limit and the remedy.
        approximable: Whether the approximation is a remedy: it takes exact counts only.
    """

    def __init__(self, what: str, rest: str, approximable: bool) -> None:
        super().__init__(what, rest, approximable)
        self.what, self.approximable = what, approximable

    def __str__(self) -> str:
        return f"{self.args[0]} {self.args[1]}"

    def choosing(self, option: str) -> "TooManyStates":
        """The same error with ``option`` as the way to ask for the approximation."""
        remedy = f"approximate it with {option}"
        if not self.approximable:
            remedy = "there is no approximation for counts that are not exact; make bags smaller"
        rest = f"for its exact likelihood, which is too many; {remedy}"
        return TooManyStates(self.what, rest, self.approximable)


class Diverged(LLPError):
    """Training stopped because the loss or the likelihood is no longer finite."""


class LostProcess(LLPError):
    """Another process of a training run ended, so the run stopped."""


class ApproximationWarning(UserWarning):
    """Metrics of bags are approximate, because the exact likelihood is intractable."""


class BaselineWarning(UserWarning):
    """A model does not explain its bags clearly better than a constant rate for all instances."""


class IdentifiabilityWarning(UserWarning):
    """The counts do not determine the answer; see ``llpkit.statistics``."""


class UnseenValueWarning(UserWarning):
    """A table for prediction has values that the training table never had."""
