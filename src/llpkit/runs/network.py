"""Training the network of a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from llpkit import training
from llpkit._validation import option
from llpkit.bags import Bags
from llpkit.config import Config
from llpkit.datasets import DataSet
from llpkit.errors import LLPError
from llpkit.methods import METHODS
from llpkit.runs.data import take
from llpkit.training import Callback, Fitted, TestMetrics


def train(
    config: Config,
    data: DataSet,
    parts: Mapping[str, Bags],
    work: Path,
    callbacks: Sequence[Callback],
) -> Fitted:
    """Train a network on the training bags, from the checkpoint in ``work`` if there is one."""
    method = config.recipe.method
    needs_labels = METHODS[method].needs_labels
    if needs_labels and data.truth is None:
        raise LLPError(
            f'method "{method}" learns from instance labels, and this table has none; name their '
            f"column with {option('label')}, or choose another method"
        )
    test_metrics: list[Callback] = []
    if "test" in parts and data.truth is not None:
        rows = parts["test"].rows
        test_metrics = [TestMetrics(take(data.inputs, rows), data.truth[rows])]
    return training.fit(
        None,
        parts["training"],
        data.inputs,
        recipe=config.recipe,
        held_out=parts.get("held-out"),  # split off already
        labels=data.truth if needs_labels else None,
        callbacks=[*test_metrics, *callbacks],
        run_dir=work,
        resume=True,  # also starts a run that has no checkpoint
        progress=False,
        **config.execution.to_dict(),
    )
