"""The option ``approximation`` of methods: the likelihood of many classes may be intractable."""

from torch import Tensor

from llpkit.bags import Bags
from llpkit.errors import LLPError, TooManyStates
from llpkit.likelihood import log_prob_and_posterior
from llpkit.likelihood.checks import Approximation, check_approximation
from llpkit.likelihood.choice import resolve
from llpkit.likelihood.classes import MAX_STATES, check_budget
from llpkit.methods.base import Method


class WithApproximation(Method):
    """A method with the option ``approximation``, which it resolves for the training bags."""

    bags: Bags
    """The bags of the E-step; set in :meth:`prepare`."""

    def __init__(self, approximation: Approximation = "auto") -> None:
        check_approximation(approximation)
        self.approximation = approximation

    def choose_approximation(self, bags: Bags) -> None:
        self.chosen_approximation = check_tractable(self.approximation, bags)

    def _e_step(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The log-likelihood of every bag ``(B,)`` and the posterior of every instance."""
        evidence, offsets, chosen = self.bags.evidence, self.bags.offsets, self.chosen_approximation
        return log_prob_and_posterior(
            logits, evidence, offsets, approximation=chosen, validate=False
        )


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
