"""Dispatch: a solver for the kind of counts and the backend, and its derivatives."""

import math
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from llpkit.errors import LLPError
from llpkit.evidence import Evidence
from llpkit.likelihood import approximations, binary, classes, saddlepoint, sampling
from llpkit.likelihood.backends import use_numba, use_triton, use_triton_saddlepoint
from llpkit.likelihood.checks import (
    absurd_bag,
    all_finite,
    check_evidence,
    check_logits,
    check_numbers,
    check_offsets,
    check_possible,
    impossible_bag,
)
from llpkit.likelihood.pieces import Pieces, cut
from llpkit.ragged import bag_index, instances_of, segment_sum


class Solver(Protocol):
    """Holds the bags and their evidence, and evaluates any logits."""

    offsets: Tensor
    takes_nan: bool = False
    """Whether ``evaluate`` handles NaN logits itself, by returning NaN for their bags."""

    def evaluate(
        self, z: Tensor, direction: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Log-probability, posterior, and the posterior's derivative along a direction."""
        ...

    def pull_back(self, grad: Tensor, z: Tensor, phi: Tensor) -> Tensor:
        """Gradient in the logits: each bag's gradient times posterior minus prior."""
        scale = grad[bag_index(self.offsets, len(z))]
        return (scale if z.dim() == 1 else scale[:, None]) * (phi - self.prior(z))

    def prior(self, z: Tensor) -> Tensor:
        """Label probabilities before the counts are known."""
        ...

    def refuse_impossible(self, z: Tensor) -> None:
        """Raise for a bag that no label combination can explain."""
        ...


class ExactSolver(Solver, Protocol):
    """A solver that can also draw label combinations."""

    def sample(self, z: Tensor, generator: torch.Generator | None, copies: int) -> Tensor:
        """Labels drawn from the posterior, ``(copies, N)``."""
        ...

    def mode(self, z: Tensor) -> Tensor:
        """The most probable labels, ``(N,)``."""
        ...


def exact_solver(
    logits: Tensor, ends: Tensor, evidence: Evidence, backend: str, max_states: int, validate: bool
) -> tuple[Tensor, ExactSolver]:
    """The logits in the solver's form, and the solver, for checked arguments."""
    if use_triton(backend, logits, evidence):
        half = logits.dtype in (torch.float16, torch.bfloat16)
        return logits.float() if half else logits, BinarySolver(ends, evidence, "triton")
    kernel = "numba" if use_numba(backend, logits.device) else "torch"
    z = logits.to(torch.float64)
    if z.dim() == 1:
        return z, BinarySolver(ends, evidence, kernel)
    # Two classes are solved as binary, unless an unchecked row may allow neither class, or both.
    sound = validate or bool(z.isfinite().all())
    if z.shape[1] == 2 and sound:
        return _log_odds(z), BinarySolver(ends, classes.as_binary(evidence, ends), kernel)
    classes.check_budget(evidence, ends.diff(), max_states, evidence.is_exact)
    return z, ClassSolver(ends, evidence, kernel == "numba")


def _log_odds(z: Tensor) -> Tensor:
    """Log-odds of the second of two classes; finite logits never become a known label."""
    odds = z[:, 1] - z[:, 0]  # may overflow to infinity, which would mean a known label
    return torch.where(z.isfinite().all(1), odds.clamp(-1e306, 1e306), odds)


def approximate_solver(
    logits: Tensor, ends: Tensor, evidence: Evidence, name: str, backend: str, validate: bool
) -> tuple[Tensor, "ApproximateSolver"]:
    """Like :func:`exact_solver`, for an approximation by name and checked arguments."""
    if logits.dim() == 1:
        raise LLPError(f'approximation = "{name}" is for K classes; binary counts are always exact')
    if not evidence.is_exact:
        raise LLPError(f'approximation = "{name}" takes exact counts; leave it out here')
    kernel = "torch"
    if name == "saddlepoint":
        if use_triton_saddlepoint(backend, logits):
            return logits.float(), ApproximateSolver(ends, evidence, name, "triton", validate)
        kernel = "numba" if use_numba(backend, logits.device) else "torch"
    return logits.to(torch.float64), ApproximateSolver(ends, evidence, name, kernel, validate)


def checked(
    logits: Any, counts: Any, offsets: Any, validate: bool
) -> tuple[Tensor, Tensor, Evidence]:
    """Logits, offsets and evidence that fit each other."""
    logits = check_logits(logits)
    ends = check_offsets(offsets, len(logits), logits.device, validate)
    evidence = check_evidence(counts, logits, ends, validate)
    if validate:
        check_numbers(logits.detach())
    return logits, ends, evidence


class BinarySolver(ExactSolver):
    """Binary labels: the tilted Fourier sum in torch, or a compiled backend."""

    def __init__(self, offsets: Tensor, evidence: Evidence, kernel: str) -> None:
        self.offsets = offsets
        self.evidence = evidence
        self.kernel = kernel
        self.takes_nan = kernel == "triton"

    @cached_property
    def pieces(self) -> Pieces:
        """The evidence in the form that all backends but Triton take."""
        return cut(self.evidence)

    def evaluate(
        self, z: Tensor, direction: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        if direction is None and self.kernel == "triton":
            from llpkit.likelihood.kernels import triton_binary

            return (*triton_binary.evaluate(z, self.offsets, self.evidence.counts), None)
        if direction is None and self.kernel == "numba":
            from llpkit.likelihood.kernels import numba_binary

            return (*numba_binary.evaluate(z, self.offsets, self.pieces), None)
        return binary.evaluate(z, self.offsets, self.pieces, direction)

    def pull_back(self, grad: Tensor, z: Tensor, phi: Tensor) -> Tensor:
        if self.kernel == "triton" and not torch.is_grad_enabled():
            from llpkit.likelihood.kernels import triton_binary

            return triton_binary.pull_back(grad, z, phi, self.offsets)
        return super().pull_back(grad, z, phi)  # can itself be differentiated

    def prior(self, z: Tensor) -> Tensor:
        return z.sigmoid()

    def refuse_impossible(self, z: Tensor) -> None:
        check_possible(z, self.offsets, self.pieces)

    def sample(self, z: Tensor, generator: torch.Generator | None, copies: int) -> Tensor:
        return sampling.sample(z, self.offsets, self.pieces, generator, copies)

    def mode(self, z: Tensor) -> Tensor:
        return sampling.mode(z, self.offsets, self.pieces)


class ClassSolver(ExactSolver):
    """K classes: the exact recursion."""

    def __init__(self, offsets: Tensor, evidence: Evidence, compiled: bool) -> None:
        self.offsets = offsets
        self.evidence = evidence
        self.compiled = compiled

    def evaluate(
        self, z: Tensor, direction: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        log_p = classes.log_prior(z)
        if not self.compiled or direction is not None:
            return classes.evaluate(log_p, self.offsets, self.evidence, direction)
        from llpkit.likelihood.kernels import numba_classes, numba_evidence

        if self.evidence.is_exact:
            log_prob, phi = numba_classes.evaluate(log_p, self.offsets, self.evidence.counts)
        else:
            log_prob, phi = numba_evidence.evaluate(log_p, self.offsets, self.evidence)
        # The kernel marks bags with NaN if its linear-space recursion cannot be trusted.
        unsolved = log_prob.isnan().nonzero()[:, 0]  # bag numbers
        if len(unsolved):
            rows, inner = instances_of(self.offsets, unsolved)
            part = classes.evaluate(log_p[rows], inner, self.evidence[unsolved])
            log_prob[unsolved], phi[rows] = part[0], part[1]
        return log_prob, phi, None

    def prior(self, z: Tensor) -> Tensor:
        return classes.log_prior(z).exp()

    def refuse_impossible(self, z: Tensor) -> None:
        if bool(self.prior(z).gt(0).all()) and len(self.evidence.table) == 0:
            return  # if every class is possible everywhere, so are all counts
        log_p, _, _ = self.evaluate(z)
        _refuse_absurd(log_p)

    def sample(self, z: Tensor, generator: torch.Generator | None, copies: int) -> Tensor:
        log_p = classes.log_prior(z)
        return classes.draw(log_p, self.offsets, self.evidence, generator, copies)

    def mode(self, z: Tensor) -> Tensor:
        log_p = classes.log_prior(z)
        return classes.draw(log_p, self.offsets, self.evidence, None, None)[0]


class ApproximateSolver(Solver):
    """K classes and exact counts: an approximation by name."""

    def __init__(
        self, offsets: Tensor, evidence: Evidence, name: str, kernel: str, strict: bool
    ) -> None:
        self.offsets = offsets
        self.counts = evidence.counts
        self.kernel = kernel
        self.takes_nan = kernel == "triton"
        self.function = {
            "saddlepoint": saddlepoint.saddlepoint,
            "sinkhorn": approximations.sinkhorn,
        }[name]
        self.strict = strict

    def evaluate(
        self, z: Tensor, direction: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        product = None
        if self.kernel != "torch" and direction is None:
            log_prob, phi = self._compiled(z)
        else:
            log_prob, phi, product = self.function(
                classes.log_prior(z.double()),
                self.counts,
                self.offsets,
                direction,
                strict=self.strict,
            )
        if self.strict:
            _refuse_absurd(log_prob)
        return log_prob, phi, product

    def _compiled(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability and posterior by a kernel; bags that it cannot solve, in torch."""
        if self.kernel == "triton":
            from llpkit.likelihood.kernels import triton_saddlepoint

            log_prob, phi, off = triton_saddlepoint.evaluate(z, self.offsets, self.counts)
            if not self.strict:  # looking for unsolved bags would wait for the device
                return log_prob, phi
            unsolved = (off > 1e-3 * self.offsets.diff()).nonzero()[:, 0]
        else:
            from llpkit.likelihood.kernels import numba_saddlepoint

            log_p = classes.log_prior(z)
            log_prob, phi = numba_saddlepoint.evaluate(log_p, self.offsets, self.counts)
            unsolved = log_prob.isnan().nonzero()[:, 0]  # bag numbers
        if len(unsolved):
            rows, inner = instances_of(self.offsets, unsolved)
            log_p = classes.log_prior(z[rows].double())
            part = self.function(log_p, self.counts[unsolved], inner, strict=self.strict)
            log_prob[unsolved], phi[rows] = part[0].to(phi.dtype), part[1].to(phi.dtype)
        return log_prob, phi

    def prior(self, z: Tensor) -> Tensor:
        return classes.log_prior(z).exp()

    def refuse_impossible(self, z: Tensor) -> None:
        """Nothing to do here: ``evaluate`` raises."""


def _refuse_absurd(log_p: Tensor) -> None:
    """Refuse a bag of K classes that is impossible, or so improbable that rounding decides."""
    far = log_p < classes.LEAST
    if bool(far.any()):
        b = int(far.nonzero()[0])
        value = float(log_p[b])
        raise impossible_bag(b) if value == -math.inf else absurd_bag(b, value)


def solve(z: Tensor, solver: Solver) -> tuple[Tensor, Tensor]:
    """Log-probability ``(B,)`` and posterior, both differentiable in the logits."""
    log_p, phi = _Solve.apply(z, solver)  # type: ignore[no-untyped-call]
    return log_p, phi


class _Solve(torch.autograd.Function):
    """Fisher's identity: the gradient of the log-probability is posterior minus prior."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, solver: Solver) -> tuple[Tensor, Tensor]:
        nan = None if solver.takes_nan or all_finite(z) else z.isnan()
        log_p, phi, _ = solver.evaluate(z if nan is None else torch.where(nan, 0.0, z))
        if nan is not None:  # without validation, a NaN logit makes its whole bag NaN
            of_row = nan if z.dim() == 1 else nan.any(1)  # (N,)
            bad = segment_sum(of_row.to(z.dtype), solver.offsets) > 0  # (B,)
            log_p = torch.where(bad, torch.nan, log_p)
            bad = bad[bag_index(solver.offsets)]
            phi = torch.where(bad if z.dim() == 1 else bad[:, None], torch.nan, phi)
        ctx.solver = solver
        ctx.set_materialize_grads(False)
        # The posterior is saved as an output, so that second derivatives pass through it.
        ctx.save_for_backward(z, phi)
        return log_p, phi

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_phi: Tensor | None) -> tuple[Any, None]:
        z, phi = ctx.saved_tensors
        total = None
        if grad is not None:
            total = ctx.solver.pull_back(grad, z, phi)
        if grad_phi is not None:
            product = _Product.apply(z, grad_phi, ctx.solver)  # type: ignore[no-untyped-call]
            total = product if total is None else total + product
        return total, None


class _Product(torch.autograd.Function):
    """The posterior's derivative along a direction: a product with the labels' covariance."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, direction: Tensor, solver: Solver) -> Tensor:  # noqa: ARG004
        product = solver.evaluate(z.double(), direction.double())[2]
        assert product is not None
        return product.to(z.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:  # noqa: ARG004
        raise RuntimeError("the count likelihood is differentiable twice, not three times")
