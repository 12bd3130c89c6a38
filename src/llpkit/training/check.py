"""Checks of bags, inputs, labels and network against each other before the first step."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from llpkit._arrays import checked_labels, numbers
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.methods import BagMethod, Method
from llpkit.training.inputs import Inputs


def check_table(bags: Any, num_rows: int, name: str = "bags") -> None:
    """Check that bags and inputs have the same number of rows."""
    if not isinstance(bags, Bags):
        raise LLPError(f"{name} is a {type(bags).__name__}; pass llpkit.Bags")
    if bags.num_rows != num_rows:
        raise LLPError(
            f"{name} is of a table with {bags.num_rows} rows but inputs has {num_rows}; pass the "
            "inputs of all rows, in the table's order (num_rows= of Bags is the table's length)"
        )


def divide(bags: Bags, held_out: Bags | float | None, seed: int) -> tuple[Bags, Bags | None]:
    """Training bags and held-out bags, which share no row."""
    if held_out is None:
        return bags, None
    if isinstance(held_out, Bags):
        check_table(held_out, bags.num_rows, "held_out")
        _check_apart(bags, held_out)
        return bags, held_out
    if round((1 - held_out) * len(bags)) in (0, len(bags)):
        raise LLPError(f"held_out = {held_out:g} of {len(bags)} bags leaves a part without bags")
    return bags.split(1 - held_out, seed)


def _check_apart(bags: Bags, held_out: Bags) -> None:
    if held_out.num_instances == 0:
        raise LLPError("held_out holds no instances; there is nothing to select by")
    if held_out.num_classes != bags.num_classes:
        kinds = [
            "binary counts" if k is None else f"counts of {k} classes"
            for k in (held_out.num_classes, bags.num_classes)
        ]
        raise LLPError(f"held_out has {kinds[0]} but bags has {kinds[1]}; give both the same")
    used = torch.zeros(bags.num_rows, dtype=torch.bool)
    used[bags.rows.cpu()] = True
    rows = held_out.rows.cpu()
    shared = rows[used[rows]]
    if len(shared):
        raise LLPError(
            f"row {int(shared[0])} is in bags and in held_out ({len(shared)} such rows in all); "
            "keep them apart, as bags.split does"
        )


def check_views(method: Method, bags: Bags, batch_size: int) -> None:
    """Refuse two views of a bag that is trained on in pieces."""
    largest = int(bags.sizes.max())
    if method.views == 2 and isinstance(method, BagMethod) and largest > batch_size:
        raise LLPError(
            f'method "{method.key}" has two views, which a bag larger than a batch cannot have; '
            f"use a batch_size of at least {largest}"
        )


def labels_of_rows(labels: Any, bags: Bags) -> Tensor:
    """True labels of the bags' instances, int64 ``(N,)``, picked from the labels of all rows."""
    given = numbers(labels, "labels")
    if given.shape != (bags.num_rows,):
        raise LLPError(f"labels has shape {given.shape}; give one for each of {bags.num_rows} rows")
    remedy = "number the classes from 0; for K classes the counts of bags are (B, K)"
    rows = bags.rows.cpu().numpy()
    return torch.from_numpy(checked_labels(given, bags.num_classes, "labels", remedy, rows))


_SUSPECTS = ("values between 0 and 1", "no negative values", "no positive values")
_DRAWS, _ENOUGH = 40, 20


def refuse_probabilities(network: nn.Module, inputs: Tensor) -> None:
    """Refuse a network whose outputs cannot be logits, such as one that ends in a sigmoid.

    With other weights, logits take other values, but probabilities stay between 0 and 1, however
    they are computed. The network is run on a few inputs; as long as its outputs could be
    probabilities, its weights are changed and it is run again. Afterwards weights, buffers, modes
    and torch's random numbers are restored.
    """
    if any(map(is_lazy, [*network.parameters(), *network.buffers()])):
        return  # the first step gives it its shapes; running it here would draw its weights
    modes = [(module, module.training) for module in network.modules()]
    kept = {name: buffer.clone() for name, buffer in network.named_buffers()}
    devices = [inputs.device] if inputs.is_cuda else []
    try:
        with torch.random.fork_rng(devices), torch.no_grad():
            found = _always(network.eval(), inputs)
    finally:
        for module, training in modes:
            module.training = training
        with torch.no_grad():
            for name, buffer in network.named_buffers():
                if name in kept and buffer.shape == kept[name].shape:
                    buffer.copy_(kept[name])
    if found is not None:
        raise LLPError(
            f"whatever its weights are, the network returns {found}; remove the last activation "
            "(a sigmoid or softmax), so that the network returns logits"
        )


def _always(network: nn.Module, inputs: Tensor) -> str | None:
    """What all outputs have in common that logits have not, if there is such a thing."""
    first = network(inputs)
    suspects = _left(_SUSPECTS, first)
    if not suspects:  # the usual case: the weights need no copy
        return None
    own = [(weight, weight.detach().clone()) for weight in network.parameters()]
    agreed = 0
    try:
        for _ in _changes(own, 100 * (1 + float(first.abs().max()))):
            try:
                output = network(inputs)
            except Exception:  # other weights than its own may be impossible
                continue
            suspects = _left(suspects, output)
            if not suspects:
                return None
            # Outputs that do not depend on the weights prove nothing.
            agreed += bool(output.isfinite().all() and (output != first).any())
    finally:
        for weight, values in own:
            weight.copy_(values)
    return suspects[0] if agreed >= _ENOUGH else None


def _left(suspects: Sequence[str], output: Any) -> list[str]:
    """Those that these outputs do not disprove."""
    if not isinstance(output, Tensor) or output.dim() == 0 or output.numel() == 0:
        return []  # as_logits names the remedy
    values = output.float()
    if not bool(values.isfinite().all()):
        return list(suspects)
    low, high = float(values.min()), float(values.max())
    single = output[0].numel() == 1  # what counts of several are their differences
    possible = (low >= 0 and high <= 1.01, single and low >= 0, single and high <= 0)
    fits = dict(zip(_SUSPECTS, possible, strict=True))  # 1.01: half precision rounds
    return [what for what in suspects if fits[what]]


def _changes(own: Sequence[tuple[Tensor, Tensor]], shift: float) -> Iterator[None]:
    """Change the weights in many ways: each time the caller may run the network."""
    draw = torch.Generator().manual_seed(0)
    for i in range(_DRAWS):  # signs and scales, and values for what is zero
        reach = 2 if i % 2 else 30
        for weight, values in own:
            start = values if bool(values.any()) else 0.2 * _normal(values, draw)
            sign, size = torch.rand(2, generator=draw).tolist()
            weight.copy_(start * reach ** (2 * size - 1) * (1 if sign < 0.5 else -1))
        yield
    for weight, values in own:
        weight.copy_(values)
    for weight, values in reversed(own):  # one large shift at a time, of a bias for example
        for far in (-shift, shift):
            weight.copy_(values + far)
            yield
        weight.copy_(values)


def _normal(like: Tensor, draw: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=draw).to(like)


def check_finite(inputs: Inputs, *rows: Tensor) -> None:
    """Refuse NaN and infinity in the inputs of these rows, or of all; files cannot hold them."""
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point() or inputs.numel() == 0:
        return
    # aminmax propagates NaN, so two numbers decide the usual case without a mask of all inputs.
    if all(bool(end.isfinite()) for end in inputs.aminmax()):
        return
    fine = [part.isfinite().flatten(1).all(1) for part in inputs.split(4096)]
    bad = ~torch.cat(fine).cpu()
    if rows:
        used = torch.zeros_like(bad)
        for some in rows:
            used[some.cpu()] = True
        bad &= used
    if bool(bad.any()):
        first = int(bad.nonzero()[0])
        values = inputs[first].flatten()
        raise LLPError(
            f"inputs[{first}] has the value {float(values[~values.isfinite()][0])} "
            f"({int(bad.sum())} such rows in all); drop these rows, or fill in their values"
        )
