"""Input from users as checked tensors."""

from typing import Any

import torch
from torch import Tensor

from llpkit._arrays import checked_labels, numbers
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.likelihood import checks

_ROUNDING = 0.02
"""Largest deviation of a row sum of probabilities from one; bfloat16 is off by up to 0.004."""


def _reals(values: Any, name: str) -> Tensor:
    """Numbers as a float tensor ``(N,)`` or ``(N, K)``, on their device; float32 stays."""
    if not isinstance(values, Tensor):
        tensor = torch.from_numpy(numbers(values, name).astype("float64"))
    else:
        tensor = values.detach()
        plain = tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_quantized
        if not plain or tensor.is_complex() or tensor.device.type == "meta":
            raise LLPError(f"{name} is {tensor.layout} {tensor.dtype}; give a dense array of reals")
        if tensor.dtype != torch.float32:
            tensor = tensor.double()
    if tensor.dim() not in (1, 2) or (tensor.dim() == 2 and tensor.shape[1] < 2):
        raise LLPError(
            f"{name} has shape {tuple(tensor.shape)}; give (N,), or (N, K) for K > 1 classes"
        )
    return tensor


def check_probabilities(values: Any) -> Tensor:
    """Probabilities ``(N,)`` or ``(N, K)``, on their device; float32 stays."""
    p = _reals(values, "probability")
    _refuse(~((p >= 0) & (p <= 1)), p, "probability", "give numbers from 0 to 1, not logits")
    if p.dim() == 2:
        total = p.double().sum(1)
        off = (total - 1).abs() > _ROUNDING
        _refuse(off, total, "the sum of probability", "the classes of an instance must sum to 1")
    return p


def check_scores(values: Any) -> Tensor:
    """Scores ``(N,)``, which may be infinite."""
    score = _reals(values, "probability")
    if score.dim() != 1:
        raise LLPError("auc is for binary probabilities (N,); pick one class of (N, K)")
    _refuse(score.isnan(), score, "probability", "give a number")
    return score


def _refuse(bad: Tensor, values: Tensor, name: str, remedy: str) -> None:
    if bool(bad.any()):
        cell = bad.nonzero()[0].tolist()
        raise LLPError(f"{name}{cell} = {float(values[tuple(cell)])}; {remedy}")


def check_labels(truth: Any, probability: Tensor) -> Tensor:
    """One label per instance, on the device of its probabilities."""
    classes = probability.shape[1] if probability.dim() == 2 else None
    remedy = "number the classes from 0; for K classes give probabilities (N, K)"
    labels = torch.from_numpy(checked_labels(truth, classes, "truth", remedy))
    if len(labels) != len(probability):
        raise LLPError(
            f"there are {len(probability)} probabilities but {len(labels)} labels; "
            "give one label for every instance"
        )
    return labels.to(probability.device)


def check_logits(values: Any, bags: Any) -> Tensor:
    """Logits of the instances of these bags, on the device of the bags."""
    tensor = values if isinstance(values, Tensor) else _reals(values, "logits")
    logits = check_length(checks.check_logits(tensor), "logits", bags)
    checks.check_numbers(logits.detach())
    return logits


def check_length(values: Tensor, name: str, bags: Any) -> Tensor:
    """Values of the instances of these bags, on the device of the bags."""
    check_bags(bags)
    if len(values) != bags.num_instances:
        raise LLPError(
            f"there are {len(values)} {name} but the bags hold {bags.num_instances} instances; "
            "pass one per instance, in the order of bags.rows"
        )
    classes = values.shape[1] if values.dim() == 2 else None
    if classes != bags.num_classes:
        shape = "(N,)" if bags.num_classes is None else f"(N, {bags.num_classes})"
        raise LLPError(f"{name} has shape {tuple(values.shape)}; these bags need {shape}")
    return values.to(bags.device)


def check_bags(bags: Any) -> None:
    """Refuse anything but bags."""
    if not isinstance(bags, Bags):
        raise LLPError(f"bags is a {type(bags).__name__}; pass llpkit.Bags")
