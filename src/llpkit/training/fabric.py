"""Lightning Fabric: device, precision, and the strategy for several processes."""

import logging
import multiprocessing
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from llpkit._validation import option
from llpkit.errors import LLPError
from llpkit.training.processes import Placement

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_WEIGHTS = {"64-true": torch.float64, "bf16-true": torch.bfloat16, "16-true": torch.float16}


def precision_on(precision: str, device: torch.device) -> str:
    """The precision to use; ``"auto"`` depends on the device."""
    if precision != "auto":
        return precision
    on_card = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16-mixed" if on_card else "32-true"


def weight_dtype(precision: str) -> torch.dtype | None:
    """The type that this precision converts weights to; ``None`` leaves them as they are."""
    return _WEIGHTS.get(precision)


def make_fabric(placement: Placement, precision: Any) -> "Fabric":
    """Fabric on one device, or with DDP or FSDP on several processes."""
    # It takes a second or two to import, and only training needs it.
    from lightning_fabric import Fabric

    if placement.fsdp and precision == "16-mixed":
        raise LLPError(
            f'precision = "16-mixed" is not possible with {option("strategy", "fsdp")}; give '
            '"bf16-mixed" or "32-true"'
        )
    index = placement.device.index
    arguments: dict[str, Any] = {"devices": 1 if index is None else [index], "plugins": []}
    with quiet():
        if placement.number > 1:
            arguments = _several(placement)
        if precision == "64-true":
            arguments["plugins"].append(_double())
            precision = None
        return Fabric(accelerator=placement.device.type, precision=precision, **arguments)


def _double() -> Any:
    from lightning_fabric.plugins.precision.double import DoublePrecision

    plugin = DoublePrecision()
    # Fabric would round the network's output to single precision.
    plugin.convert_output = _unchanged  # type: ignore[method-assign]
    return plugin


def _unchanged(data: Any) -> Any:  # at the top level, because processes get a pickled copy
    return data


def _several(placement: Placement) -> dict[str, Any]:
    """Fabric's arguments for several processes."""
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment
    from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
    from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
    from lightning_fabric.strategies.ddp import DDPStrategy

    environment: Any = LightningEnvironment()
    if placement.external:
        elastic = TorchElasticEnvironment.detect()
        environment = TorchElasticEnvironment() if elastic else SLURMEnvironment()
    shared: dict[str, Any] = {}
    cards = torch.cuda.device_count() if placement.device.type == "cuda" else placement.devices
    if placement.devices > cards:
        # NCCL refuses two processes on one GPU; gloo copies their gradients through the host.
        devices = [torch.device("cuda", i % cards) for i in range(placement.devices)]
        shared = {"parallel_devices": devices, "process_group_backend": "gloo"}
    start: Any = "popen" if placement.external else _start_method(placement.device)
    strategy: Any
    if placement.fsdp:
        from llpkit.training.fsdp import FSDPStrategy

        strategy = FSDPStrategy(placement.number, start)
    else:
        # The loop averages buffers once per epoch; in every step it would cost more than batch norm
        # gains, and one process could not evaluate the network on its own.
        strategy = DDPStrategy(start_method=start, broadcast_buffers=False, **shared)
    return {
        "strategy": strategy,
        "devices": min(placement.devices, cards),
        "num_nodes": placement.nodes,
        "plugins": [environment],
    }


def _start_method(device: torch.device) -> Literal["spawn", "forkserver"]:
    """How to start processes that get a copy of the arguments, with tensors in shared memory."""
    if device.type == "cuda" or "forkserver" not in multiprocessing.get_all_start_methods():
        return "spawn"  # a fork of a process that has used CUDA cannot use it
    # The server imports once, and processes are forks of it.
    kernels = [f"llpkit.likelihood.kernels.numba_{name}" for name in ("binary", "classes")]
    multiprocessing.set_forkserver_preload(["lightning_fabric", "llpkit.training.job", *kernels])
    return "forkserver"


@contextmanager
def quiet(name: str = "lightning_fabric", least: int = logging.WARNING) -> Iterator[None]:
    """Silence log messages below this level, by default Fabric's."""
    log = logging.getLogger(name)
    level = log.level
    log.setLevel(least)
    try:
        yield
    finally:
        log.setLevel(level)


def wrap(
    fabric: "Fabric",
    network: nn.Module,
    make_optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    fsdp: bool = False,
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The network and its optimiser, wrapped for precision and for several processes."""
    if not fsdp:
        optimizer = make_optimizer(network)
        with quiet(), warnings.catch_warnings():
            # The new name of this argument is unknown to older versions of torch.
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated")
            wrapped, optimizer = fabric.setup(network, optimizer)
        return wrapped, optimizer
    # FSDP warns that in-place changes of the network's output would be lost; nobody makes any.
    view = rf"FSDP2-wrapped module \(FSDP{type(network).__name__}\) returned a view"
    warnings.filterwarnings("ignore", view)
    with quiet():
        wrapped = fabric.setup_module(network)  # replaces its parameters, so the optimiser is next
        return wrapped, fabric.setup_optimizers(make_optimizer(network))  # type: ignore[return-value]
