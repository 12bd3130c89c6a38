"""Steps of one shape: run as they are or, on a CUDA device, recorded once and replayed.

A small network's step is a hundred short kernels, and a device waits for the host between them. A
CUDA graph holds them all: the first steps are run as usual, the next is recorded, and from then on
a step is a few copies into the recorded step's inputs and one launch.
"""

import warnings

import torch
from torch import Tensor

from llpkit.methods import Batch, Method, Trainer
from llpkit.training._fixed import Plan

WARM_UP = 3
"""Steps before the recording, which make what is made once: gradients, the optimiser's state."""


class Replay:
    """Runs steps of one shape and gathers what an epoch needs of them.

    Args:
        method: Whose steps.
        trainer: With what.
        num_classes: ``None`` for binary labels.
        num_instances: ``N``.
        record: Whether to record a graph; only on a CUDA device, outside its default stream.
    """

    def __init__(
        self,
        method: Method,
        trainer: Trainer,
        num_classes: int | None,
        num_instances: int,
        device: torch.device,
        record: bool,
    ) -> None:
        self.method, self.trainer, self.num_classes = method, trainer, num_classes
        self.record = record
        last = () if num_classes is None else (num_classes,)
        # One place more than instances, for what fills the batches up.
        self.seen = torch.zeros((num_instances + 1, *last), device=device)
        self.total = torch.zeros((), device=device)
        self.warm = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.slot: tuple[Plan, Tensor] | None = None

    def __call__(self, step: Plan, inputs: Tensor) -> None:
        """One optimiser step; its logits go to ``seen``, its share of the loss to ``total``."""
        if not self.record:
            self._run(step, step.batch(inputs))
            return
        if self.slot is None:
            self.slot = step.map(torch.clone), inputs.clone()
            self.batch = self.slot[0].batch(self.slot[1])
        for mine, new in zip((*self.slot[0], self.slot[1]), (*step, inputs), strict=True):
            if mine is not None and new is not None:
                mine.copy_(new, non_blocking=True)
        if self.graph is None and self.warm == WARM_UP:
            self._record()
        if self.graph is not None:
            self.graph.replay()
            return
        self.warm += 1
        if self.warm == WARM_UP:
            self._run_and_listen()
        else:
            self._run(self.slot[0], self.batch)

    def _run_and_listen(self) -> None:
        """The last step before the recording, which must not wait for the device."""
        assert self.slot is not None
        before = torch.cuda.get_sync_debug_mode()
        try:
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                torch.cuda.set_sync_debug_mode("warn")
                heard.clear()  # it warns that it is a prototype
                self._run(self.slot[0], self.batch)
        finally:
            torch.cuda.set_sync_debug_mode(before)
        waits = [w for w in heard if "synchroniz" in str(w.message)]
        for other in heard:
            if other not in waits:
                warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
        if waits:
            where = f"{waits[0].filename}, line {waits[0].lineno}"
            self._give_up(f"it waits for the device: {where}")

    def _record(self) -> None:
        assert self.slot is not None
        self.trainer.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        device = self.seen.device
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        try:
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream(device)):
                self._run(self.slot[0], self.batch)
        except RuntimeError as error:
            # The generator still believes that a recording goes on; give it a state that does not.
            seed = generator.initial_seed()
            generator.graphsafe_set_state(torch.Generator(device).graphsafe_get_state())
            generator.manual_seed(seed)
            self._give_up(str(error).strip().splitlines()[0])
            return
        self.graph = graph

    def _give_up(self, reason: str) -> None:
        self.record = False
        warnings.warn(
            f'a step of method "{self.method.key}" cannot be recorded as a CUDA graph ({reason}); '
            "training goes on without, which is slower. cuda_graph=False says so from the start",
            stacklevel=2,
        )

    def _run(self, step: Plan, batch: Batch) -> None:
        loss, logits = self.method.step(batch, self.trainer, self.num_classes)
        self.seen.index_copy_(0, step.into, logits.to(self.seen.dtype))
        self.total.add_(loss * step.share)
