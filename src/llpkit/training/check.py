"""Checks of bags, inputs, labels and method against each other before training."""

import warnings
from typing import Any

import torch
from torch import Tensor

from llpkit._arrays import checked_labels, numbers
from llpkit.bags import Bags
from llpkit.errors import ApproximationWarning, LLPError
from llpkit.evaluation import approximation_note, measurable
from llpkit.likelihood.choice import choice_note
from llpkit.methods import BagMethod, Method
from llpkit.recipe import Recipe
from llpkit.training.inputs import Inputs


def check_table(bags: Any, num_rows: int, name: str = "bags") -> None:
    """Check that bags and inputs have the same number of rows."""
    if not isinstance(bags, Bags):
        raise LLPError(f"{name} is a {type(bags).__name__}; pass llpkit.Bags")
    if bags.num_rows != num_rows:
        raise LLPError(
            f"{name} is for a table with {bags.num_rows} rows but inputs has {num_rows}; pass the "
            "inputs of all rows, in the table's order (num_rows= of Bags is the table's length)"
        )


def check_not_empty(bags: Bags) -> None:
    """Refuse bags without instances."""
    if bags.num_instances == 0:
        raise LLPError("the bags hold no instances; there is nothing to learn from")


def checked_bags(
    method: Method, bags: Bags, inputs: Inputs, labels: Any, held_out: Any, recipe: Recipe
) -> tuple[Bags, Bags | None]:
    """Training and held-out bags, after checks of the method and of the inputs of both."""
    if labels is not None and not method.needs_labels:
        raise LLPError(f'method "{method.key}" learns from counts; pass no labels')
    if not isinstance(held_out, Bags):
        held_out = recipe.held_out
    # Preprocessing and baseline must not see held-out bags, so they are split off first.
    bags, held_out = hold_out(bags, held_out, recipe.seed)
    parts = [bags] if held_out is None else [bags, held_out]
    check_finite(inputs, *(part.rows for part in parts))
    check_views(method, bags, recipe.batch_size)
    return bags, held_out


def hold_out(bags: Bags, held_out: Bags | float | None, seed: int) -> tuple[Bags, Bags | None]:
    """Training bags and held-out bags, which share no row."""
    if held_out is None:
        return bags, None
    if isinstance(held_out, Bags):
        check_table(held_out, bags.num_rows, "held_out")
        _check_disjoint(bags, held_out)
        return bags, held_out
    return split_off(bags, "held_out", held_out, seed)


def split_off(
    bags: Bags, name: str, part: float, generator: torch.Generator | int
) -> tuple[Bags, Bags]:
    """The rest, and a random part of the bags; errors name the setting of its share."""
    if round((1 - part) * len(bags)) in (0, len(bags)):
        raise LLPError(
            f"{name} = {part:g} of {len(bags)} bags leaves a part without bags; both need one at "
            "least"
        )
    return bags.split(1 - part, generator)


def _check_disjoint(bags: Bags, held_out: Bags) -> None:
    if held_out.num_instances == 0:
        raise LLPError("held_out holds no instances, so it cannot select an epoch")
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


def check_measurable(held_out: Bags) -> None:
    """Refuse held-out bags that cannot select a model."""
    if not bool(held_out.informative.any()):
        raise LLPError("no held_out bag has a count, so they cannot select a model; choose others")
    if not bool(measurable(held_out).any()):
        raise LLPError(
            "the likelihood of the held_out bags is intractable: they are too large for this "
            "number of classes, and their counts are not exact; train without held_out"
        )


def warn_of_approximations(method: Method, *parts: Bags, stacklevel: int) -> None:
    """Warn if training or the metrics of these bags use approximate likelihoods."""
    notes = [approximation_note(*parts)]
    if method.chosen_approximation is not None and method.approximation == "auto":
        notes.insert(0, choice_note(method.chosen_approximation))
    text = "; ".join(note for note in notes if note is not None)
    if text:
        warnings.warn(text, ApproximationWarning, stacklevel=stacklevel)


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
    every = numbers(labels, "labels")
    if every.shape != (bags.num_rows,):
        raise LLPError(f"labels has shape {every.shape}; give one for each of {bags.num_rows} rows")
    remedy = "number the classes from 0; for K classes the counts of bags are (B, K)"
    rows = bags.rows.cpu().numpy()
    return torch.from_numpy(checked_labels(every, bags.num_classes, "labels", remedy, rows))


def check_finite(inputs: Inputs, *rows: Tensor) -> None:
    """Refuse NaN and infinity in the inputs of these rows, or of all; files cannot hold them."""
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point() or inputs.numel() == 0:
        return
    # aminmax propagates NaN, so two numbers decide the usual case without a mask of all inputs.
    if all(bool(end.isfinite()) for end in inputs.aminmax()):
        return
    finite = [part.isfinite().flatten(1).all(1) for part in inputs.split(4096)]
    bad = ~torch.cat(finite).cpu()  # (rows,)
    if rows:
        used = torch.zeros_like(bad)
        used[torch.cat([some.cpu() for some in rows])] = True
        bad &= used
    if bool(bad.any()):
        first = int(bad.nonzero()[0])
        values = inputs[first].flatten()
        raise LLPError(
            f"inputs[{first}] has the value {float(values[~values.isfinite()][0])} "
            f"({int(bad.sum())} such rows in all); drop these rows, or fill in their values"
        )
