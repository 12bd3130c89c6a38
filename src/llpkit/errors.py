"""The one family of errors that llpkit raises for what a user passed in."""


class LLPError(ValueError):
    """Bad input. The message names the value, where it stands and the remedy.

    Options of the loaders and of the configuration stand in backticks, with a value or without:
    the command line puts its own in their place.
    """
