"""The public functions: they check arguments, choose a solver and attach derivatives."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from llpkit._arrays import checked_generator
from llpkit._validation import one_of, whole
from llpkit.errors import LLPError
from llpkit.evidence import Evidence
from llpkit.likelihood import binary, classes
from llpkit.likelihood.checks import (
    BACKENDS,
    Approximation,
    Backend,
    check_approximation,
    check_logits,
    check_numbers,
    check_offsets,
)
from llpkit.likelihood.choice import resolve
from llpkit.likelihood.classes import MAX_STATES
from llpkit.likelihood.dispatch import Solver, approximate_solver, checked, exact_solver, solve
from llpkit.probability import per_class


class CountDistribution(NamedTuple):
    """The distribution of the count of every bag, flat.

    Bag ``b`` has the entries ``offsets[b]:offsets[b + 1]``.
    """

    probability: Tensor
    """``(S,)``; sums to one over each bag."""
    counts: Tensor
    """``(S,)``: ``0 … n``; with K classes ``(S, K)``, all count vectors that sum to ``n``."""
    offsets: Tensor
    """int64 ``(B + 1,)``."""


def log_prob(
    logits: Tensor,
    counts: Any,
    offsets: Any,
    *,
    approximation: Approximation = None,
    backend: Backend = "auto",
    max_states: int = MAX_STATES,
    validate: bool = True,
) -> Tensor:
    r"""Exact log-probability of what is known about every bag's count.

    .. math::

        \log P(y_b) = \log \sum_{h \,:\, \sum_i h_i = y_b} \prod_i
        \sigma(z_i)^{h_i} (1 - \sigma(z_i))^{1 - h_i}

    The cost is linear in the number of instances, whatever the bag sizes. Differentiable twice; the
    gradient is ``posterior - sigmoid(logits)``.

    Args:
        logits: ``(N,)``, the instances of a bag contiguous; or ``(N, K)`` softmax logits of K
            classes. An infinite logit is a known label. With K classes only the differences within
            a row matter, and a mask such as ``-1e9`` works like ``-inf``; a bag of three or more
            classes is an error if its log-likelihood is below ``-1e10``.
        counts: Positives of every bag ``(B,)``, or ``(B, K)``; or an :class:`Evidence`.
            For counts given as floats see :meth:`Evidence.exact`.
        offsets: ``(B + 1,)``; bag ``b`` has the instances ``offsets[b]:offsets[b + 1]``.
        approximation: ``None`` is exact. For K classes in large bags: ``"saddlepoint"`` is nearly
            exact and cheap for bags of any size; ``"sinkhorn"`` is an upper bound; ``"auto"`` is
            exact where that is cheap, else ``"saddlepoint"`` (see :func:`choose_approximation`).
            Their gradient follows the identity above, posterior minus prior; for ``"saddlepoint"``
            it is close to the derivative of the returned value, not equal to it.
        backend: ``"auto"`` uses a compiled backend if there is one: ``"numba"`` for CPU tensors,
            ``"triton"`` for exact counts of binary labels on a CUDA device; else ``"torch"``. Or
            name one.
        max_states: For K classes: the largest recursion allowed for one bag, in states.
        validate: Check the values. Without it an impossible bag gives ``-inf``, and the Triton
            backend, given tensors on the device, does not synchronise.

    Returns:
        ``(B,)`` in the dtype of the logits. Computed in float64, except that the Triton backend
        computes float32 logits in their own precision, with an error below 2e-5.

    >>> import torch
    >>> z = torch.tensor([0.0, 0.0, 1.0, -1.0, 2.0])
    >>> log_prob(z, counts=[1, 2], offsets=[0, 2, 5]).exp()
    tensor([0.5000, 0.5579])
    """
    return _solve(logits, counts, offsets, approximation, backend, max_states, validate)[0]


def posterior(
    logits: Tensor,
    counts: Any,
    offsets: Any,
    *,
    approximation: Approximation = None,
    backend: Backend = "auto",
    max_states: int = MAX_STATES,
    validate: bool = True,
) -> Tensor:
    r"""Probability that each instance is positive, given what is known about its bag's count.

    .. math:: \varphi_i = P(h_i = 1 \mid y_b), \qquad \sum_{i \in b} \varphi_i = y_b

    The E-step of the paper. Arguments as for :func:`log_prob`; differentiable once.

    Returns:
        ``(N,)``, or ``(N, K)`` with rows that sum to one.

    >>> import torch
    >>> posterior(torch.tensor([0.0, 2.0]), counts=[1], offsets=[0, 2])
    tensor([0.1192, 0.8808])
    """
    return _solve(logits, counts, offsets, approximation, backend, max_states, validate)[1]


def log_prob_and_posterior(
    logits: Tensor,
    counts: Any,
    offsets: Any,
    *,
    approximation: Approximation = None,
    backend: Backend = "auto",
    max_states: int = MAX_STATES,
    validate: bool = True,
) -> tuple[Tensor, Tensor]:
    """:func:`log_prob` and :func:`posterior` from one pass.

    >>> import torch
    >>> log_p, phi = log_prob_and_posterior(torch.zeros(4), counts=[1], offsets=[0, 4])
    >>> log_p.exp(), phi
    (tensor([0.2500]), tensor([0.2500, 0.2500, 0.2500, 0.2500]))
    """
    return _solve(logits, counts, offsets, approximation, backend, max_states, validate)


def pmf(
    logits: Tensor, offsets: Any, *, max_states: int = MAX_STATES, validate: bool = True
) -> CountDistribution:
    """The whole distribution of every bag's count.

    Absolute error about 1e-15; for the logarithm of a tail probability use :func:`log_prob`.
    Not differentiable.

    >>> import torch
    >>> pmf(torch.zeros(5), offsets=[0, 2, 5]).probability
    tensor([0.2500, 0.5000, 0.2500, 0.1250, 0.3750, 0.3750, 0.1250])
    """
    logits = check_logits(logits).detach()
    ends = check_offsets(offsets, len(logits), logits.device, validate)
    if validate:
        check_numbers(logits)
    z = logits.to(torch.float64)
    if z.dim() == 1:
        probability, counts, out = binary.pmf(z, ends)
    else:
        anything = Evidence.unknown(len(ends) - 1, z.shape[1]).to(z.device)
        classes.check_budget(anything, ends.diff(), max_states, approximable=False)
        probability, counts, out = classes.pmf(classes.log_prior(z), ends)
    return CountDistribution(probability.to(logits.dtype), counts, out)


def sample(
    logits: Tensor,
    counts: Any,
    offsets: Any,
    generator: torch.Generator | int | None = None,
    *,
    num_samples: int | None = None,
    max_states: int = MAX_STATES,
) -> Tensor:
    """Label combinations drawn exactly from the posterior given what is known about the counts.

    Randomness comes from ``generator``, a generator or a seed, or from torch's global state. An
    impossible bag has no labels to draw, so all values are always checked.

    Returns:
        int64 labels ``(N,)`` (0 or 1, or the class), or ``(num_samples, N)``. The counts of every
        draw agree with the evidence.

    >>> import torch
    >>> sample(torch.zeros(6), [2], [0, 6], generator=0, num_samples=5).sum(1)
    tensor([2, 2, 2, 2, 2])
    """
    draws = 1 if num_samples is None else whole("num_samples", num_samples)
    source = _generator(generator, check_logits(logits).device)
    arguments = checked(logits, counts, offsets, validate=True)
    z, solver = exact_solver(*arguments, "torch", max_states, validate=True)
    solver.refuse_impossible(z.detach())
    labels = solver.sample(z.detach(), source, draws)
    return labels[0] if num_samples is None else labels


def mode(logits: Tensor, counts: Any, offsets: Any, *, max_states: int = MAX_STATES) -> Tensor:
    """The most probable label combination given what is known about the counts, int64 ``(N,)``.

    An impossible bag has none, so all values are always checked.

    >>> import torch
    >>> mode(torch.tensor([0.3, -1.0, 2.0]), counts=[2], offsets=[0, 3])
    tensor([1, 0, 1])
    """
    arguments = checked(logits, counts, offsets, validate=True)
    z, solver = exact_solver(*arguments, "torch", max_states, validate=True)
    solver.refuse_impossible(z.detach())
    return solver.mode(z.detach())


def _generator(generator: Any, device: torch.device) -> torch.Generator | None:
    """A generator on this device, created from a seed if one is given."""
    if generator is None:
        return None
    source = checked_generator(generator, device)
    if source.device.type != device.type:
        raise LLPError(
            f"generator is on {source.device} but logits is on {device}; make one there with "
            "torch.Generator(device), or pass a seed"
        )
    return source


def _solve(
    logits: Tensor,
    counts: Any,
    offsets: Any,
    approximation: Approximation,
    backend: Backend,
    max_states: int,
    validate: bool,
) -> tuple[Tensor, Tensor]:
    check_approximation(approximation)
    one_of("backend", backend, BACKENDS)
    solver: Solver
    logits, ends, evidence = checked(logits, counts, offsets, validate)
    chosen = resolve(approximation, evidence, ends.diff(), max_states)
    # The saddlepoint formulas are exact for two classes, and the binary kernels are faster.
    two = chosen == "saddlepoint" and logits.dim() == 2 and logits.shape[1] == 2
    if chosen is None or (two and evidence.is_exact):
        z, solver = exact_solver(logits, ends, evidence, backend, max_states, validate)
    else:
        z, solver = approximate_solver(logits, ends, evidence, chosen, backend, validate)
    if validate:
        solver.refuse_impossible(z.detach())
    log_p, phi = solve(z, solver)
    if z.dim() < logits.dim():  # two classes, solved as binary
        phi = per_class(phi)
    return log_p.to(logits.dtype), phi.to(logits.dtype)
