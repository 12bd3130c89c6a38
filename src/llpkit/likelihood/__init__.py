"""The exact likelihood of label counts in bags, with posteriors.

Six functions on flat logits and offsets: :func:`log_prob`, :func:`posterior`,
:func:`log_prob_and_posterior`, :func:`pmf`, :func:`sample` and :func:`mode`; and :class:`Evidence`
for counts that are not known exactly. The modules below are private: bags of unequal size,
stability, precision, devices and derivatives are their business.
"""

from llpkit.evidence import Evidence
from llpkit.likelihood._api import (
    CountDistribution,
    log_prob,
    log_prob_and_posterior,
    mode,
    pmf,
    posterior,
    sample,
)

__all__ = [
    "CountDistribution",
    "Evidence",
    "log_prob",
    "log_prob_and_posterior",
    "mode",
    "pmf",
    "posterior",
    "sample",
]
