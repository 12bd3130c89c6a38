"""Checks of the engine's arguments: every error names the place, the value and the remedy."""

import math
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from llpkit._arrays import check_rising, on_device_of
from llpkit.errors import LLPError
from llpkit.evidence import Evidence
from llpkit.evidence.counts import CountNaming, exact_counts, whole_tensor
from llpkit.evidence.support import check_support
from llpkit.likelihood.binary import without_known
from llpkit.likelihood.pieces import Pieces

Backend: TypeAlias = Literal["auto", "torch", "numba", "triton"]
Approximation: TypeAlias = Literal["auto", "saddlepoint", "sinkhorn"] | None

BACKENDS = ("auto", "torch", "numba", "triton")
APPROXIMATIONS = ("auto", "saddlepoint", "sinkhorn")

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_approximation(approximation: Any) -> None:
    """Refuse an unknown approximation."""
    known = isinstance(approximation, str) and approximation in APPROXIMATIONS
    if not (known or approximation is None):
        raise LLPError(
            f"approximation = {approximation!r}; leave it out (None) for the exact likelihood; "
            f"available: {', '.join(APPROXIMATIONS)}"
        )


def check_logits(logits: Any) -> Tensor:
    """A dense float tensor ``(N,)`` or ``(N, K)``."""
    if not isinstance(logits, Tensor):
        raise LLPError(f"logits is a {type(logits).__name__}; pass a torch tensor")
    if logits.dtype not in _DTYPES or logits.layout != torch.strided or logits.is_nested:
        raise LLPError(f"logits is {logits.layout} {logits.dtype}; pass a dense float tensor")
    if logits.device.type in ("meta", "mps"):
        raise LLPError(
            f"logits is on {logits.device}, which cannot compute in float64; move it to the CPU"
        )
    if logits.dim() not in (1, 2) or (logits.dim() == 2 and logits.shape[1] < 2):
        raise LLPError(
            f"logits has shape {tuple(logits.shape)}; expected (N,) for binary labels or (N, K) "
            "with K >= 2 classes; squeeze a last axis of one"
        )
    return logits


def check_offsets(offsets: Any, num_instances: int, device: torch.device, validate: bool) -> Tensor:
    """Offsets as int64 ``(B + 1,)``, rising from 0 to the number of instances."""
    ends = offsets
    if not (
        isinstance(ends, Tensor) and ends.dtype == torch.int64 and ends.layout == torch.strided
    ):
        ends = whole_tensor(offsets, "offsets")
    if ends.dim() != 1 or len(ends) == 0:
        raise LLPError(f"offsets has shape {tuple(ends.shape)}; expected (B + 1,), starting with 0")
    # The compiled kernels do not check bounds. On a CUDA device a check would wait for the device.
    if validate or ends.device.type == "cpu":
        marks = ends.cpu().numpy()
        check_rising(marks)
        if marks[-1] != num_instances:
            raise LLPError(
                f"offsets[-1] = {marks[-1]} but there are {num_instances} logits; the last "
                "offset is the number of instances"
            )
    return ends.to(device)


def check_evidence(counts: Any, logits: Tensor, ends: Tensor, validate: bool) -> Evidence:
    """Counts as :class:`Evidence` that fits the logits and the bags."""
    naming = CountNaming(range(len(ends) - 1))
    if isinstance(counts, Evidence):
        evidence = counts
    elif not validate and isinstance(counts, Tensor) and counts.is_cuda and _whole(counts.dtype):
        evidence = Evidence.unchecked(counts.to(torch.int64))  # reading them would synchronise
    else:
        y = exact_counts(counts, naming, ends.diff().cpu().numpy())
        evidence = Evidence.unchecked(on_device_of(counts, y))
    classes = None if logits.dim() == 1 else logits.shape[1]
    if evidence.num_classes != classes:
        expected = "(B,)" if classes is None else f"(B, {classes})"
        raise LLPError(
            f"counts has shape {tuple(evidence.low.shape)} but logits has shape "
            f"{tuple(logits.shape)}; expected counts of shape {expected}"
        )
    if len(evidence) != len(ends) - 1:
        raise LLPError(
            f"there are {len(evidence)} counts but offsets describe {len(ends) - 1} bags; "
            "give one count for every bag"
        )
    evidence = evidence.to(logits.device)
    if validate:
        check_support(evidence, ends.diff().cpu().numpy(), naming)
    return evidence


def _whole(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def all_finite(values: Tensor) -> bool:
    """Whether all are finite. Looks at their sum, for speed, so an overflow gives ``False`` too."""
    return math.isfinite(float(values.sum(dtype=torch.float64)))


def check_numbers(logits: Tensor) -> None:
    """Refuse NaN and, with several classes, rows with no possible class or several known ones."""
    if all_finite(logits):
        return
    bad = logits.isnan()
    if bool(bad.any()):
        cell = bad.nonzero()[0].tolist()
        raise LLPError(
            f"logits{cell} is NaN ({int(bad.sum())} in all); look for a division by zero or an "
            "overflow in the network, or lower the learning rate"
        )
    if logits.dim() == 2:
        none = (logits == -torch.inf).all(1)  # (N,)
        if bool(none.any()):
            raise LLPError(
                f"logits[{int(none.nonzero()[0])}] is -inf for every class; leave one possible"
            )
        several = (logits == torch.inf).sum(1) > 1
        if bool(several.any()):
            raise LLPError(
                f"logits[{int(several.nonzero()[0])}] is +inf for several classes; a known label "
                "is +inf for one class only"
            )


def possible(z: Tensor, offsets: Tensor, pieces: Pieces) -> Tensor:
    """Which bags have a label combination that agrees with the evidence, ``(B,)`` bool."""
    _, inner_offsets, inner = without_known(z, offsets, pieces)
    fits = torch.maximum(inner.low, inner.low.new_zeros(())) <= torch.minimum(
        inner.high, inner_offsets.diff()[inner.bag]
    )
    return torch.bincount(inner.bag[fits], minlength=len(offsets) - 1) > 0


def check_possible(z: Tensor, offsets: Tensor, pieces: Pieces) -> None:
    """Refuse a bag that no label combination can explain; the counts were checked before."""
    if len(pieces.table) == 0 and all_finite(z):
        return
    fits = possible(z, offsets, pieces)
    if not bool(fits.all()):
        b = int((~fits).nonzero()[0])
        inside = slice(int(offsets[b]), int(offsets[b + 1]))
        raise impossible_bag(
            b, int((z[inside] == torch.inf).sum()), int((z[inside] == -torch.inf).sum())
        )


def impossible_bag(b: int, positive: int = 0, negative: int = 0) -> LLPError:
    """The error for a bag whose evidence no label combination agrees with."""
    known = ""
    if positive or negative:
        known = f" with {positive} instances known positive and {negative} known negative"
    return LLPError(
        f"bag {b} is impossible: no label combination agrees with its evidence{known}; correct "
        "the count or the known labels (infinite logits)"
    )


def absurd_bag(b: int, log_p: float) -> LLPError:
    """The error for a bag whose label combinations float64 cannot distinguish."""
    return LLPError(
        f"bag {b} has a log-likelihood of {log_p:.3g}: its counts need classes that the logits "
        "almost rule out, and float64 cannot distinguish its label combinations; correct the "
        "counts, scale the logits down, or lower the learning rate"
    )
