"""Refuse a network whose outputs cannot be logits, such as one that ends in a sigmoid."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from llpkit.errors import LLPError
from llpkit.training.seeds import forked_rng

_RANGES = ("values between 0 and 1", "no negative values", "no positive values")
_DRAWS = 40
"""Random changes of the weights."""
_ENOUGH = 20
"""Changes of the weights that must change the outputs before a network is refused."""


def refuse_probabilities(
    network: nn.Module,
    inputs: Tensor,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> None:
    """Refuse a network that returns probabilities, or other values of one sign.

    With other weights, logits take other values, but probabilities stay between 0 and 1, however
    they are computed. The network is run on a few inputs; as long as its outputs could be
    probabilities, its weights are changed and it is run again. Afterwards weights, buffers, modes
    and torch's random numbers are restored.

    Args:
        network: On its device.
        inputs: A few inputs, preprocessed.
        autocast: A context that runs the network in the run's precision.
    """
    if any(map(is_lazy, [*network.parameters(), *network.buffers()])):
        return  # the first step gives it its shapes; running it here would draw its weights
    weights = next(network.parameters(), None)
    if weights is not None:
        inputs = inputs.to(weights.dtype)

    def run() -> Any:
        with autocast():  # one context per run: within it, autocast would reuse the old weights
            return network(inputs)

    modes = [(module, module.training) for module in network.modules()]
    buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
    try:
        network.eval()
        with forked_rng(inputs.device), torch.no_grad():
            values = _constant_range(run, list(network.parameters()))
    finally:
        for module, training in modes:
            module.training = training
        with torch.no_grad():
            for name, buffer in network.named_buffers():
                if name in buffers and buffer.shape == buffers[name].shape:
                    buffer.copy_(buffers[name])
    if values is not None:
        raise LLPError(
            f"whatever its weights are, the network returns {values}; remove the last activation "
            "(a sigmoid or softmax), so that the network returns logits"
        )


def _constant_range(run: Callable[[], Any], weights: Sequence[Tensor]) -> str | None:
    """The range that outputs stay in whatever the weights are, if there is one."""
    first = run()
    ranges = _fitting(_RANGES, first)
    if not ranges:  # the usual case: the weights need no copy
        return None
    kept = [weight.detach().clone() for weight in weights]
    changed = 0
    try:
        for _ in _changes(weights, kept, 100 * (1 + float(first.abs().max()))):
            try:
                output = run()
            except Exception:  # the network may not work with other weights than its own
                continue
            ranges = _fitting(ranges, output)
            if not ranges:
                return None
            # Outputs that do not depend on the weights prove nothing.
            changed += bool(output.isfinite().all() and (output != first).any())
    finally:
        for weight, values in zip(weights, kept, strict=True):
            weight.copy_(values)
    return ranges[0] if changed >= _ENOUGH else None


def _fitting(ranges: Sequence[str], output: Any) -> list[str]:
    """The ranges that these outputs are in."""
    if not isinstance(output, Tensor) or output.dim() == 0 or output.numel() == 0:
        return []  # as_logits names the remedy
    values = output.float()
    if not bool(values.isfinite().all()):
        return list(ranges)
    low, high = float(values.min()), float(values.max())
    # Only differences count between several outputs, so that their sign means nothing.
    single = output[0].numel() == 1
    # 1.01: half precision rounds.
    inside = (low >= 0 and high <= 1.01, single and low >= 0, single and high <= 0)
    return [name for name, fits in zip(_RANGES, inside, strict=True) if fits and name in ranges]


def _changes(weights: Sequence[Tensor], kept: Sequence[Tensor], shift: float) -> Iterator[None]:
    """Change the weights in many ways, one after the other."""
    draw = torch.Generator().manual_seed(0)
    for i in range(_DRAWS):  # signs and scales, and values for what is zero
        reach = 2 if i % 2 else 30
        for weight, values in zip(weights, kept, strict=True):
            start = values if bool(values.any()) else 0.2 * _normal(values, draw)
            sign, size = torch.rand(2, generator=draw).tolist()
            weight.copy_(start * reach ** (2 * size - 1) * (1 if sign < 0.5 else -1))
        yield
    for weight, values in zip(weights, kept, strict=True):
        weight.copy_(values)
    for weight, values in reversed(list(zip(weights, kept, strict=True))):
        for far in (-shift, shift):  # one large shift at a time, of a bias for example
            weight.copy_(values + far)
            yield
        weight.copy_(values)


def _normal(like: Tensor, draw: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=draw).to(like)
