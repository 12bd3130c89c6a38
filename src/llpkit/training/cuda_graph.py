"""Training steps, run one by one or, on a CUDA device, recorded once and replayed.

A step of a small network is a hundred short kernels, and the device waits for the host between
them. A CUDA graph holds them all: the first steps run as usual, the next is recorded, and from then
on a step is a few copies into the recorded step's inputs and one launch.

A graph holds addresses and constants, so it does not notice when a tensor is replaced or a number
changes. Before every epoch these are compared with their recorded values: the hyper-parameters; the
parameters, buffers and plain attributes of the network and its submodules; the attributes of the
method, including its networks and optimisers. After a change, a new graph is recorded. Other
objects that a network refers to are not compared.
"""

import gc
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from types import NoneType
from typing import Any

import torch
from torch import Tensor, nn

from llpkit.evidence import Evidence
from llpkit.methods import BagMethod, Batch, LargeBag, Learner, Method, Task, logit_dtype
from llpkit.training.batches import Step
from llpkit.training.inputs import Views

WARM_UP = 3
"""Steps before recording, which allocate gradients, optimiser state and other one-off tensors."""


class Steps:
    """Runs the steps of an epoch and gathers their logits and losses.

    Args:
        method: The method whose steps are run.
        learner: The network and its optimiser.
        num_instances: ``N``.
        num_classes: ``None`` for binary labels.
        device: The training device.
        cuda_graph: Whether to record a graph; only on a CUDA device, outside its default stream,
            and if all steps have one shape.
    """

    def __init__(
        self,
        method: Method,
        learner: Learner,
        num_instances: int,
        num_classes: int | None,
        device: torch.device,
        cuda_graph: bool = False,
    ) -> None:
        self.method, self.learner, self.num_classes = method, learner, num_classes
        self.cuda_graph = cuda_graph
        last = () if num_classes is None else (num_classes,)
        # The extra last row takes the logits of padding.
        dtype = logit_dtype(learner.network)
        self.logits = torch.zeros((num_instances + 1, *last), dtype=dtype, device=device)
        self.loss = torch.zeros((), device=device)
        self.warm = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.static: tuple[Step, Batch] | None = None
        self.recorded: Hashable = None

    def begin_epoch(self) -> None:
        """Drop the recorded graph if anything that it reads has changed."""
        self.loss.zero_()
        if self.graph is not None and self.recorded != self._read_by_a_step():
            self.graph = None

    def __call__(
        self, step: Step, evidence: Evidence, inputs: Tensor, strong: Tensor | None
    ) -> None:
        """One optimiser step; its logits go to ``logits``, its share of the loss to ``loss``."""
        if not self.cuda_graph:
            self._run(step, step.batch(evidence, inputs, strong))
            return
        # A graph reads fixed addresses, so every batch is copied into the same, static tensors.
        if self.static is None:
            copy = None if strong is None else strong.clone()
            own = step.map(torch.clone)
            self.static = own, own.batch(evidence, inputs.clone(), copy)
        (own, batch), new = self.static, (*step, inputs, strong)
        for old, value in zip((*own, batch.inputs, batch.strong), new, strict=True):
            if isinstance(old, Tensor) and isinstance(value, Tensor):
                old.copy_(value, non_blocking=True)
        if self.graph is None and self.warm == WARM_UP:
            self._record()
        if self.graph is not None:
            self.graph.replay()
            return
        self.warm += 1
        if self.warm == WARM_UP:
            self._run_and_check()
        else:
            self._run(own, batch)

    def large(
        self, step: Step, task: Task, stream: Callable[[Sequence[Tensor]], Iterator[Views]]
    ) -> None:
        """A step on one bag larger than a batch, whose inputs ``stream`` reads in pieces."""
        assert isinstance(self.method, BagMethod)
        assert step.offsets is not None
        assert step.bags is not None
        pieces = [task.bags.rows[part] for part in step.positions.split(task.batch_size)]

        def chunks() -> Iterator[Tensor]:
            return (weak for weak, _ in stream(pieces))

        bag = LargeBag(chunks, step.positions, step.offsets, task.bags.evidence[step.bags])
        self._keep(step, *self.method.large_step(bag, self.learner, self.num_classes))

    def _keep(self, step: Step, loss: Tensor, logits: Tensor) -> None:
        """Store a step's logits and add its share of the loss."""
        # index_copy_ and add_ write in place: a replayed graph writes to the same buffers.
        self.logits.index_copy_(0, step.into, logits.to(self.logits.dtype))
        self.loss.add_(loss * step.share)

    def _run_and_check(self) -> None:
        """Run the last warm-up step and check that it never waits for the device."""
        assert self.static is not None
        before = torch.cuda.get_sync_debug_mode()
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                torch.cuda.set_sync_debug_mode("warn")
                caught.clear()  # the debug mode warns that it is a prototype
                self._run(*self.static)
        finally:
            torch.cuda.set_sync_debug_mode(before)
        waits = [w for w in caught if "synchroniz" in str(w.message)]
        for other in caught:
            if other not in waits:
                warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
        if waits:
            line = f"{waits[0].filename}, line {waits[0].lineno}"
            self._give_up(f"it waits for the device: {line}")

    def _record(self) -> None:
        assert self.static is not None
        # Gradients must be allocated inside the graph's memory pool.
        self.learner.optimizer.zero_grad(set_to_none=True)
        device, graph = self.logits.device, torch.cuda.CUDAGraph()
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        state, read = generator.get_state(), self._read_by_a_step()
        stream = torch.cuda.current_stream(device)
        # If the garbage collector destroyed an earlier run's graph now, capture would fail:
        # destroying a graph is not allowed while a stream is being captured.
        gc.collect()
        collecting = gc.isenabled()
        gc.disable()
        try:
            # Other threads, such as a loader's that pin memory, must be able to use the device.
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                self._run(*self.static)
        except RuntimeError as error:
            # The generator is still in capture mode: give it a fresh state object, then the values
            # from before.
            generator.graphsafe_set_state(torch.Generator(device).graphsafe_get_state())
            generator.set_state(state)
            self._give_up(str(error).strip().splitlines()[0])
            return
        finally:
            if collecting:
                gc.enable()
        # Tensors that the step itself replaces would be out of date in the next replay.
        if read != self._read_by_a_step():
            self._give_up("it replaces tensors that it reads, or changes numbers")
            return
        self.graph, self.recorded = graph, read

    def _read_by_a_step(self) -> Hashable:
        """Addresses of tensors and values of numbers that a recording would hold."""
        groups = self.learner.optimizer.param_groups
        attributes = tuple((name, _mark(value)) for name, value in vars(self.method).items())
        return _mark_groups(groups), _mark(self.learner.network), attributes

    def _give_up(self, reason: str) -> None:
        self.cuda_graph = False
        warnings.warn(
            f'a step of method "{self.method.key}" cannot be recorded as a CUDA graph ({reason}); '
            "training continues without one, more slowly. Pass cuda_graph=False to skip trying",
            stacklevel=2,
        )

    def _run(self, step: Step, batch: Batch) -> None:
        self._keep(step, *self.method.step(batch, self.learner, self.num_classes))


def _mark(value: Any) -> Hashable:
    """A value that changes when a graph recorded with ``value`` is out of date."""
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
    """A module's own tensors, and the plain attributes that its forward pass may read."""
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
