"""The exact likelihood of label counts in bags, with posteriors.

Six functions on flat logits and offsets: :func:`log_prob`, :func:`posterior`,
:func:`log_prob_and_posterior`, :func:`pmf`, :func:`sample` and :func:`mode`. Counts that are not
known exactly are an :class:`~llpkit.Evidence`.

In the order of a call: ``api`` has the functions, ``checks`` validates their arguments, and
``dispatch`` chooses the backend and attaches derivatives. ``binary`` and ``classes`` are the exact
likelihood in torch (``pieces`` is the form in which ``binary`` takes evidence); ``approximations``
(a bound) and ``saddlepoint`` replace ``classes`` where it is intractable; ``choice`` decides when.
``sampling`` draws labels, and ``kernels`` has the compiled backends. ``budget`` is for evaluation:
the cost of a bag's likelihood, and the best value within a budget.
"""

from llpkit.evidence import Evidence
from llpkit.likelihood.api import (
    CountDistribution,
    log_prob,
    log_prob_and_posterior,
    mode,
    pmf,
    posterior,
    sample,
)
from llpkit.likelihood.choice import choose_approximation

__all__ = [
    "CountDistribution",
    "Evidence",
    "choose_approximation",
    "log_prob",
    "log_prob_and_posterior",
    "mode",
    "pmf",
    "posterior",
    "sample",
]
