"""The parts of a training run, made from its recipe: network, optimiser, precision, batches."""

import logging
import math
import multiprocessing
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from llpkit import augment, networks
from llpkit._validation import option
from llpkit.augment import Augment, Augmentation
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.methods import BagMethod, Method, Task
from llpkit.recipe import Recipe
from llpkit.training.batches import Blocks
from llpkit.training.inputs import Feed, Preprocess
from llpkit.training.processes import Placement

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_SAMPLE = 4096
"""Rows that the preprocessing is fitted to."""
_SAMPLE_BYTES = 2**24
"""Bytes of images, one per pixel and channel, that it is fitted to if they are read in blocks."""
_BLOCKS = 16
"""Blocks that samples are taken from, of inputs that are read in blocks."""


def make_fabric(place: Placement, precision: Any) -> "Fabric":
    """Fabric on one device, or with DDP or FSDP on several processes."""
    # It takes a second or two to import, and only training needs it.
    from lightning_fabric import Fabric

    device, several = place.device, place.number > 1
    if place.divided and precision == "16-mixed":
        raise LLPError(
            f'precision = "16-mixed" is not possible with {option("strategy", "fsdp")}; give '
            '"bf16-mixed" or "32-true"'
        )
    alone: dict[str, Any] = {"devices": 1 if device.index is None else [device.index]}
    try:
        with quiet():
            more = _several(place) if several else alone
            if precision == "64-true":
                more["plugins"], precision = [*more.get("plugins", []), _double()], None
            return Fabric(accelerator=device.type, precision=precision, **more)
    except ValueError as error:
        raise LLPError(
            f'precision = {precision!r}; give "auto", "32-true", "bf16-mixed" or "16-mixed"'
        ) from error


def _double() -> Any:
    """Double precision to the end: Fabric rounds the output of the network to single."""
    from lightning_fabric.plugins.precision.double import DoublePrecision

    plugin = DoublePrecision()
    plugin.convert_output = _unchanged  # type: ignore[method-assign]
    return plugin


def _unchanged(data: Any) -> Any:
    return data


def _several(place: Placement) -> dict[str, Any]:
    """Further arguments of Fabric for several processes."""
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment
    from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
    from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
    from lightning_fabric.strategies.ddp import DDPStrategy

    environment: Any = LightningEnvironment()
    if place.external:
        elastic = TorchElasticEnvironment.detect()
        environment = TorchElasticEnvironment() if elastic else SLURMEnvironment()
    shared: dict[str, Any] = {}
    cards = torch.cuda.device_count() if place.device.type == "cuda" else place.devices
    if place.devices > cards:
        # NCCL refuses two processes on one card; gloo copies their gradients through the host.
        where = [torch.device("cuda", i % cards) for i in range(place.devices)]
        shared = {"parallel_devices": where, "process_group_backend": "gloo"}
    start: Any = "popen" if place.external else _start_method(place.device)
    strategy: Any
    if place.divided:
        from llpkit.training.fsdp import Sharded

        strategy = Sharded(place.number, start)
    else:
        # The loop averages buffers once per epoch; in every step it would cost more than batch norm
        # gains, and one process could not evaluate the network on its own.
        strategy = DDPStrategy(start_method=start, broadcast_buffers=False, **shared)
    return {
        "strategy": strategy,
        "devices": min(place.devices, cards),
        "num_nodes": place.nodes,
        "plugins": [environment],
    }


def _start_method(device: torch.device) -> Literal["spawn", "forkserver"]:
    """How to start processes that get a copy of the arguments, with tensors in shared memory."""
    if device.type == "cuda" or "forkserver" not in multiprocessing.get_all_start_methods():
        return "spawn"  # a fork of a process that has seen CUDA cannot use it
    # The server imports once, and processes are forks of it.
    kernels = [f"llpkit.likelihood.kernels.numba_{name}" for name in ("binary", "classes")]
    multiprocessing.set_forkserver_preload(["lightning_fabric", "llpkit.training.job", *kernels])
    return "forkserver"


def precision_on(precision: Any, device: torch.device) -> Any:
    """The precision to use; ``"auto"`` depends on the device."""
    if precision != "auto":
        return precision
    on_card = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16-mixed" if on_card else "32-true"


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Fabric's log messages below warnings."""
    log = logging.getLogger("lightning_fabric")
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(level)


def wrap(
    fabric: "Fabric",
    network: nn.Module,
    make: Callable[[nn.Module], torch.optim.Optimizer],
    divided: bool = False,
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The network and its optimiser in the run's precision, with DDP or FSDP if there are several.

    Args:
        fabric: Launched.
        network: On its device.
        make: Makes the optimiser of a network.
        divided: Whether FSDP divides it, which replaces its parameters.
    """
    if divided:
        # Of the whole network, whose output nobody changes in place.
        view = rf"FSDP2-wrapped module \(FSDP{type(network).__name__}\) returned a view"
        warnings.filterwarnings("ignore", view)
        with quiet():
            wrapped = fabric.setup_module(network)
            return wrapped, fabric.setup_optimizers(make(network))  # type: ignore[return-value]
    optimizer = make(network)
    with quiet(), warnings.catch_warnings():
        # The new name of this argument is unknown to older versions of torch.
        warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated")
        wrapped, made = fabric.setup(network, optimizer)
    return wrapped, made


def compiled(network: nn.Module) -> nn.Module:
    """A compiled view that shares the network's parameters; used for training steps only."""
    compiled: nn.Module = torch.compile(network)  # type: ignore[assignment]
    return compiled


def paddable(method: Method, task: Task) -> bool:
    """Whether to pad all batches to one shape: it pays where steps can be recorded."""
    # A subclass may break its parent's promise, so it has to set the attribute itself.
    promised = vars(type(method)).get("replayable", False) and method.replayable
    if task.device.type != "cuda" or not promised:
        return False
    if method.batches == "instances":
        return True
    large = int(task.bags.sizes.max()) > task.batch_size
    return task.bags.evidence.is_exact and (isinstance(method, BagMethod) or not large)


def recordable(optimizer: torch.optim.Optimizer, precision: Any) -> bool:
    """Whether the learning rate can be scheduled in a recorded step, without a gradient scaler."""
    # A 16-bit gradient scaler reads its overflow flag on the host, which capture forbids.
    rates = [group["lr"] for group in optimizer.param_groups]
    scheduled = all(isinstance(rate, Tensor) and rate.is_cuda for rate in rates)
    return scheduled and not str(precision).startswith("16")


def make_network(
    network: str | nn.Module | None, method: Method, task: Task
) -> tuple[nn.Module, str | None]:
    """The network and its name; ``None`` is the default network, and a module has no name."""
    if isinstance(network, nn.Module):
        return network, None
    if network is None:
        network = method.network_name or ("small-cnn" if len(task.input_shape) == 3 else "mlp")
    outputs = task.num_classes or 1
    return networks.make(network, input_shape=task.input_shape, num_outputs=outputs), network


def make_preprocess(
    feed: Feed, bags: Bags, method: Method, device: torch.device, blocks: Blocks | None = None
) -> Preprocess:
    """Fit the preprocessing to the training rows only, or to an even sample of them."""
    rows, most = bags.rows, _SAMPLE
    if blocks is not None:  # inputs that may not fit into memory
        rows = bags[few_blocks(blocks.of_bag)].rows
        each = max(1, feed.inputs.nbytes // max(1, len(feed.inputs)))
        most = min(most, max(256, _SAMPLE_BYTES // each))
    if len(rows) > most:
        rows = rows[torch.linspace(0, len(rows) - 1, most).long()]
    raw = next(feed.stream([rows.to(device)]))
    return Preprocess.of(raw, method.symmetric_inputs).to(device)


def few_blocks(of_bag: Tensor) -> Tensor:
    """The bags of evenly spaced blocks, where a sample over all of them would read all inputs."""
    known = of_bag.unique()
    chosen = known[torch.linspace(0, len(known) - 1, min(_BLOCKS, len(known))).long()]
    return torch.where(torch.isin(of_bag, chosen))[0]


def make_optimizer(
    recipe: Recipe, network: nn.Module, lr: float, method: Method, device: torch.device
) -> torch.optim.Optimizer:
    """The optimiser over all trainable parameters."""
    parameters = [p for p in network.parameters() if p.requires_grad]
    if not parameters:
        raise LLPError("the network has no parameters to train")
    if callable(recipe.optimizer):
        if recipe.lr is not None or recipe.weight_decay:
            raise LLPError(
                "optimizer is a function, which sets lr and weight_decay itself; leave them out, "
                "or give them to it, as in lambda p: torch.optim.SGD(p, lr=0.1)"
            )
        made: torch.optim.Optimizer = recipe.optimizer(parameters)
        return made
    on_card = device.type == "cuda"
    # A graph would freeze a plain number; a tensor on the device can still be scheduled.
    rate: Any = torch.tensor(lr, device=device) if on_card else lr
    common: dict[str, Any] = {"lr": rate, "weight_decay": recipe.weight_decay, "fused": True}
    if recipe.optimizer == "adam":
        return torch.optim.AdamW(parameters, betas=method.betas, capturable=on_card, **common)
    return torch.optim.SGD(parameters, momentum=0.9, nesterov=True, **common)


def make_scheduler(recipe: Recipe, optimizer: torch.optim.Optimizer) -> Any:
    """The learning-rate scheduler, stepped after every epoch."""
    if callable(recipe.schedule):
        return recipe.schedule(optimizer)
    epochs = recipe.epochs
    # The epoch from which the rate falls along a cosine to zero.
    start = {"tail": epochs // 2, "cosine": 0, "constant": epochs}[recipe.schedule]

    def factor(epoch: int) -> float:
        if epoch < start:
            return 1.0
        return 0.5 + 0.5 * math.cos(math.pi * (epoch - start) / max(1, epochs - start))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def augmentations(
    recipe: Recipe, method: Method, of_images: bool = True
) -> tuple[Augmentation | None, Augmentation | None]:
    """The weak and the strong augmentation; the method's own is for images.

    The method's own has mirror images only if the weak one has: of letters they are something else.
    """
    own = method.strong_augment if of_images else None
    given = (recipe.augment, recipe.strong_augment or own)
    weak, strong = (augment.make(a) if isinstance(a, str) else a for a in given)
    if recipe.strong_augment is None and isinstance(strong, Augment):
        strong = replace(strong, flip=isinstance(weak, Augment) and weak.flip)
    if weak == Augment.none():  # which features may be given too
        weak = None
    if method.views == 1:
        if recipe.strong_augment is not None:
            name = option("strong_augment")
            raise LLPError(f'method "{method.key}" has one view; leave {name} out')
        return weak, None
    return weak, strong
