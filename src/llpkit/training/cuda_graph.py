"""Steps of one shape: run as they are or, on a CUDA device, recorded once and replayed.

A small network's step is a hundred short kernels, and a device waits for the host between them. A
CUDA graph holds them all: the first steps are run as usual, the next is recorded, and from then on
a step is a few copies into the recorded step's inputs and one launch.

A recording holds addresses and numbers: a tensor that was replaced, or a number that was changed,
would go unheard. So before every epoch the hyper-parameters, the parameters, buffers and plain
attributes of the network and of its parts, and what the method keeps (networks and optimisers
too) are compared with what they were, and after a change a step is recorded anew. What lies
deeper, in objects of a network's own, is not seen.
"""

import gc
import warnings
from collections.abc import Hashable
from types import NoneType
from typing import Any

import torch
from torch import Tensor, nn

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
        device: Where it all is.
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
        self.batch: Batch | None = None
        self.recorded: Hashable = None

    def begin(self) -> None:
        """Before every epoch: forget a recording that what it read has moved away from."""
        self.total.zero_()
        if self.graph is not None and self.recorded != self._read_by_a_step():
            self.graph = None

    def __call__(self, step: Plan, inputs: Tensor) -> None:
        """One optimiser step; its logits go to ``seen``, its share of the loss to ``total``."""
        if not self.record:
            self._run(step, step.batch(inputs))
            return
        if self.slot is None:
            self.slot = step.map(torch.clone), inputs.clone()
            self.batch = self.slot[0].batch(self.slot[1])
        assert self.batch is not None
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
        assert self.batch is not None
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
        assert self.batch is not None
        self.trainer.optimizer.zero_grad(set_to_none=True)
        device, graph = self.seen.device, torch.cuda.CUDAGraph()
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        state, read = generator.get_state(), self._read_by_a_step()
        stream = torch.cuda.current_stream(device)
        # A recording of an earlier run that is collected now would end this one: destroying a graph
        # is not allowed while its stream is recorded.
        gc.collect()
        collecting = gc.isenabled()
        gc.disable()
        try:
            # Other threads, such as those that pin memory for a loader, go on with their work.
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                self._run(self.slot[0], self.batch)
        except RuntimeError as error:
            # The generator still believes that a recording goes on; give it a state that does not.
            generator.graphsafe_set_state(torch.Generator(device).graphsafe_get_state())
            generator.set_state(state)
            self._give_up(str(error).strip().splitlines()[0])
            return
        finally:
            if collecting:
                gc.enable()
        if read != self._read_by_a_step():
            self._give_up("it replaces tensors that it reads, or changes numbers")
            return
        self.graph, self.recorded = graph, read

    def _read_by_a_step(self) -> Hashable:
        """Addresses of tensors and values of numbers that a recording would hold."""
        groups = self.trainer.optimizer.param_groups
        kept = tuple((name, _mark(value)) for name, value in vars(self.method).items())
        return _mark_groups(groups), _mark(self.trainer.network), kept

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


def _mark(value: Any) -> Hashable:
    """What tells whether a value is still what a recording has of it."""
    if isinstance(value, Tensor):
        return value.data_ptr(), value.requires_grad
    if isinstance(value, tuple | list):
        return tuple(_mark(v) for v in value)
    if isinstance(value, dict):
        return tuple((repr(k), _mark(v)) for k, v in value.items())
    if isinstance(value, nn.Module):
        return tuple(_mark_module(module) for module in value.modules())
    if isinstance(value, torch.optim.Optimizer):
        return _mark_groups(value.param_groups)
    return value if isinstance(value, Hashable) else id(value)


def _mark_module(module: nn.Module) -> Hashable:
    """A module's own tensors, and the numbers and words that its forward pass may read."""
    plain = (bool, int, float, complex, str, tuple, list, NoneType)
    return (
        tuple(_mark(p) for p in module.parameters(recurse=False)),
        tuple(_mark(b) for b in module.buffers(recurse=False)),
        tuple(
            (name, _mark(value))
            for name, value in vars(module).items()
            # An epoch is trained in training mode, whatever the mode before it.
            if name != "training" and isinstance(value, plain)
        ),
    )


def _mark_groups(groups: list[dict[str, Any]]) -> Hashable:
    return tuple(_mark({k: v for k, v in group.items() if k != "params"}) for group in groups)
