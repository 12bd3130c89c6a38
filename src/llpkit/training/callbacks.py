"""Callbacks: code that runs during training, after every epoch."""

import json
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from llpkit.errors import LLPError
from llpkit.evaluation import accuracy, auc
from llpkit.probability import probability_of
from llpkit.progress import live_bar

Row = dict[str, Any]

_LOG_LINES = 5
"""Approximate number of progress lines in a log, for the whole run."""


def plain_row(row: Row) -> Row:
    """A row that can be saved as JSON: scalar tensors and NumPy values become Python numbers."""
    kinds = (Tensor, np.ndarray, np.generic)
    plain = {k: v.item() if isinstance(v, kinds) and v.ndim == 0 else v for k, v in row.items()}
    for key, value in plain.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise LLPError(
                f"a callback wrote a {type(value).__name__} into row[{key!r}], which cannot be "
                "saved; write a number or text"
            ) from error
    return plain


class Callback:
    """Called by the loop; override what you need."""

    def on_start(self, session: Any) -> None:
        """Before the first epoch. ``session`` has ``epochs``, ``first_epoch``, ``history``."""

    def on_epoch(self, session: Any, row: Row) -> None:
        """After an epoch: ``row`` is its entry in the history; add metrics to it as you like.

        ``session.logits(inputs)`` gives the current logits; ``session.stop = True`` ends the run,
        and ``session.paused = True`` interrupts it after this epoch: it can be resumed from its
        checkpoint.
        """

    def on_end(self, session: Any) -> None:
        """After the last epoch, also when training stops early or fails."""


class TestMetrics(Callback):
    """Test metrics of labelled instances for learning curves; never used for model selection.

    Args:
        inputs: Test instances.
        truth: Their true labels.
    """

    __test__ = False  # keeps pytest from collecting it because of its name

    def __init__(self, inputs: Any, truth: Any) -> None:
        self.inputs = inputs
        self.truth = torch.as_tensor(truth).cpu()
        if self.truth.shape != (len(inputs),):
            raise LLPError(
                f"truth has shape {tuple(self.truth.shape)} but inputs has {len(inputs)} rows; "
                "give one label for every row"
            )

    def on_epoch(self, session: Any, row: Row) -> None:
        logits = session.logits(self.inputs).double().cpu()
        row |= instance_measures(logits, self.truth)
        if logits.dim() == 1:
            row["test_auc"] = auc(logits, self.truth)


def instance_measures(logits: Tensor, truth: Tensor) -> Row:
    """Accuracy and log loss of labelled instances, from logits ``(n,)`` or ``(n, K)``."""
    row = {"test_accuracy": accuracy(probability_of(logits), truth)}
    # From the logits: the logarithm of a rounded probability may be infinite.
    if logits.dim() == 1:
        loss = F.binary_cross_entropy_with_logits(logits, truth.to(logits.dtype))
    else:
        loss = F.cross_entropy(logits, truth.long())
    return row | {"test_log_loss": float(loss)}


class Progress(Callback):
    """A bar in a terminal or a notebook, a few lines in a log: epoch, metrics, time left."""

    def __init__(self, title: str) -> None:
        self.name = title

    def on_start(self, session: Any) -> None:
        from rich.console import Console

        self.console = Console(stderr=True)
        # All processes take part in every step, so one bar shows the progress of all.
        number = session.processes.number
        self.title = self.name if number == 1 else f"{self.name} on {number} processes"
        self.bar = live_bar(self.title)

    def on_epoch(self, session: Any, row: Row) -> None:
        figures = _figures(row, last=row["epoch"] == session.epochs)
        left = (row["seconds"] + row["measure_seconds"]) * (session.epochs - row["epoch"])
        if self.bar is not None:
            done, epochs = row["epoch"], session.epochs
            self.bar.show(done / epochs, f"epoch {done}/{epochs}  {figures}", left)
            return
        every = max(1, session.epochs // _LOG_LINES)
        if row["epoch"] % every == 0 or row["epoch"] == session.epochs:
            self.console.print(
                f"{self.title}: epoch {row['epoch']}/{session.epochs}  {figures}  "
                f"about {left:.0f} s left",
                highlight=False,
                soft_wrap=True,
            )

    def on_end(self, session: Any) -> None:  # noqa: ARG002
        if self.bar is not None:
            self.bar.close()


def _figures(row: Row, last: bool = False) -> str:
    """The metrics of an epoch; each log-likelihood is followed by that of a constant rate."""
    parts = []
    for prefix, name in (("", "bag log-lik"), ("held_out_", "held out")):
        if f"{prefix}log_likelihood" in row:
            value, base = (row[f"{prefix}{k}log_likelihood"] for k in ("", "baseline_"))
            parts.append(f"{name} {value:.3f} (constant rate {base:.3f})")
    if "proportion_error" in row:
        parts.insert(1, f"prop. error {row['proportion_error']:.3f}")
    if not parts:
        parts.append(f"loss {row['loss']:.3f}")
    if last and "held_out_log_likelihood" not in row:
        parts.append("no held-out bags to check it on")
    spent = row["measure_seconds"]
    if spent > 0.1 and spent > 0.5 * row["seconds"]:
        parts.append(f"measuring takes {spent / (spent + row['seconds']):.0%} of an epoch")
    return "  ".join(parts)
