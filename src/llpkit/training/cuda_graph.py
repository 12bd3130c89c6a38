"""Training steps captured once as a CUDA graph and replayed from then on.

A step of a small network is a hundred short kernels, and the device waits for the host between
them. A CUDA graph holds them all: the first steps run as usual, the next is captured, and from then
on a step is a few copies into the captured step's inputs and one launch.

A graph holds addresses and constants, so it does not notice when a tensor is replaced or a number
changes. Before every epoch these are compared with their captured values: the hyper-parameters; the
parameters, buffers and plain attributes of the network and its submodules; the attributes of the
method, including its networks and optimisers. After a change, a new graph is captured. Other
objects that a network refers to are not compared.
"""

import gc
import warnings
from collections.abc import Hashable
from types import NoneType
from typing import Any

import torch
from torch import Tensor, nn

from llpkit.evidence import Evidence
from llpkit.methods import Batch
from llpkit.training.batches import Step
from llpkit.training.steps import Steps

WARM_UP = 3
"""Steps before the capture, which allocate gradients, optimiser state and other one-off tensors."""


class ReplayedSteps(Steps):
    """Steps that are captured and replayed, or run one by one if that turns out impossible.

    They need a CUDA device, outside its default stream, and batches of one shape. Arguments as for
    :class:`~llpkit.training.steps.Steps`.
    """

    possible = True
    """Whether the step can be captured, as far as is known."""
    warm = 0
    """Steps run before the capture."""
    graph: torch.cuda.CUDAGraph | None = None
    captured: Hashable = None
    """What the graph read when it was captured."""
    static: tuple[Step, Batch] | None = None
    """The tensors that the graph reads, into which every batch is copied."""

    def begin_epoch(self) -> None:
        """Drop the graph if anything that it reads has changed."""
        super().begin_epoch()
        if self.graph is not None and self.captured != self._read_by_a_step():
            self.graph = None

    def __call__(
        self, step: Step, evidence: Evidence, inputs: Tensor, strong: Tensor | None
    ) -> None:
        """One optimiser step, replayed if there is a graph of it."""
        if not self.possible:
            super().__call__(step, evidence, inputs, strong)
            return
        if self.static is None:
            copy = None if strong is None else strong.clone()
            own = step.map(torch.clone)
            self.static = own, own.batch(evidence, inputs.clone(), copy)
        (own, batch), new = self.static, (*step, inputs, strong)
        for old, value in zip((*own, batch.inputs, batch.strong), new, strict=True):
            if isinstance(old, Tensor) and isinstance(value, Tensor):
                old.copy_(value, non_blocking=True)
        if self.graph is None and self.warm == WARM_UP:
            self._capture()
        if self.graph is not None:
            self.graph.replay()
            return
        self.warm += 1
        if self.warm == WARM_UP:
            self._run_and_check()
        else:
            self._run(own, batch)

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
        # By their text: they have no category of their own, and torch's mode "error" would stop the
        # step halfway.
        waits = [w for w in caught if "synchroniz" in str(w.message)]
        for other in caught:
            if other not in waits:
                warnings.warn_explicit(other.message, other.category, other.filename, other.lineno)
        if waits:
            line = f"{waits[0].filename}, line {waits[0].lineno}"
            self._give_up(f"it waits for the device: {line}")

    def _capture(self) -> None:
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
        self.graph, self.captured = graph, read

    def _read_by_a_step(self) -> Hashable:
        """Addresses of tensors and values of numbers that a graph would hold."""
        groups = self.learner.optimizer.param_groups
        attributes = tuple((name, _mark(value)) for name, value in vars(self.method).items())
        return _mark_groups(groups), _mark(self.learner.network), attributes

    def _give_up(self, reason: str) -> None:
        self.possible = False
        warnings.warn(
            f'a step of method "{self.method.key}" cannot be captured as a CUDA graph ({reason}); '
            "training continues without one, more slowly. Pass cuda_graph=False to skip trying",
            stacklevel=2,
        )


def _mark(value: Any) -> Hashable:
    """A value that changes when a graph captured with ``value`` is out of date."""
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
