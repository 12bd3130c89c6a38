"""Forward passes over many rows, without gradients or augmentation."""

from typing import Any

import torch
from torch import Tensor, nn

from llpkit._validation import option
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.methods import Task
from llpkit.training.batches import Blocks
from llpkit.training.check import check_finite
from llpkit.training.inputs import Feed, Pipeline, as_inputs
from llpkit.training.processes import Processes


class Predictor:
    """Runs any network over the rows of bags, or over other inputs.

    Args:
        task: The bags of this process.
        pipeline: The inputs of the table.
        processes: All processes of the run.
        blocks: How the inputs of the table are read, if in blocks.
    """

    def __init__(
        self, task: Task, pipeline: Pipeline, processes: Processes, blocks: Blocks | None
    ) -> None:
        self.task, self.pipeline = task, pipeline
        self.processes, self.blocks = processes, blocks

    def bag_logits(self, network: nn.Module, bags: Bags) -> Tensor:
        """Logits of the instances of bags, in engine order."""
        rows, order = bags.rows, None
        if self.blocks is not None:  # in the order of the file, so that every block is read once
            order = rows.argsort()
            rows = rows[order]
        logits = self.pipeline.logits(network, self._batches(rows), self.task.num_classes)
        logits = logits[: len(rows)]
        return logits if order is None else logits[order.argsort()]

    def outputs(self, network: nn.Module) -> Tensor:
        """What a network returns for the training instances, in engine order."""
        rows = self.task.bags.rows
        return self.pipeline.outputs(network, self._batches(rows))[: len(rows)]

    def logits(self, network: nn.Module, inputs: Any) -> Tensor:
        """Logits ``(n,)`` or ``(n, K)`` of other inputs, or of a :class:`Feed` of them."""
        if self.processes.fsdp:
            raise LLPError(
                f"callbacks run in one process, which with {option('strategy', 'fsdp')} has only a "
                "part of the network, so they cannot predict; use ddp"
            )
        feed = inputs
        if not isinstance(inputs, Feed):
            inputs = as_inputs(inputs)
            check_finite(inputs)
            feed = Feed(inputs, self.task.device, resident=False)
        rows = list(torch.arange(len(feed), device=feed.device).split(512))
        pipeline = Pipeline(feed, self.pipeline.preprocess)
        return pipeline.logits(network, rows, self.task.num_classes)

    def _batches(self, rows: Tensor) -> list[Tensor]:
        # No gradients are stored, so batches may be larger than in training.
        batches = list(rows.split(max(self.task.batch_size, 512)))
        if self.processes.fsdp:
            # All processes have to run the network equally often; those with fewer batches add
            # some of a single row at the end, whose outputs are dropped.
            batches = batches if len(rows) else []
            spare = self.task.bags.rows[:1]
            batches += [spare] * (self.processes.max(len(batches)) - len(batches))
        return batches
