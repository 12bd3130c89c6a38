"""Whether the likelihood of bags is tractable: exactly, or with an approximation."""

from llpkit.bags import Bags
from llpkit.errors import LLPError, TooManyStates
from llpkit.likelihood.checks import Approximation
from llpkit.likelihood.choice import resolve
from llpkit.likelihood.classes import MAX_STATES, check_budget


def check_tractable(approximation: Approximation, bags: Bags) -> Approximation:
    """The approximation to train with, ``None`` for exact, after resolving ``"auto"``.

    Bags whose likelihood is intractable with this option are refused.
    """
    classes = bags.num_classes
    chosen = resolve(approximation, bags.evidence, bags.sizes)
    if chosen is None:
        if classes is not None and classes > 2:
            try:
                check_budget(bags.evidence, bags.sizes, MAX_STATES, bags.evidence.is_exact)
            except TooManyStates as error:
                option = 'method_options={"approximation": "auto"}'
                raise error.choosing(option) from error
    elif classes is None:
        raise LLPError(
            f'approximation = "{chosen}" is for counts of K classes; binary counts are always '
            "exact: leave it out"
        )
    elif not bags.evidence.is_exact:
        raise LLPError(
            f'approximation = "{chosen}" takes exact counts, but these are ranges or noisy; '
            "leave it out"
        )
    return chosen
