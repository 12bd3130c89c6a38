"""The parts of a training run, made from its recipe: network, optimiser, augmentations."""

import math
from dataclasses import replace
from typing import Any

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
from llpkit.training.check import labels_of_rows
from llpkit.training.inputs import Feed, Inputs, Preprocess

_SAMPLE = 4096
"""Maximum number of rows to fit the preprocessing to."""
_SAMPLE_BYTES = 2**24
"""Maximum bytes to fit it to if the inputs are read in blocks, as they may not fit in memory."""


def paddable(method: Method, task: Task) -> bool:
    """Whether to pad all batches to the same shape: it pays off where steps can be captured."""
    if task.device.type != "cuda" or not method.replayable:
        return False
    if method.batches == "instances":
        return True
    large = int(task.bags.sizes.max()) > task.batch_size
    return task.bags.evidence.is_exact and (isinstance(method, BagMethod) or not large)


def capturable(optimizer: torch.optim.Optimizer, precision: Any) -> bool:
    """Whether the learning rate can be scheduled in a captured step, without a gradient scaler."""
    # A 16-bit gradient scaler reads its overflow flag on the host, which capture forbids.
    rates = [group["lr"] for group in optimizer.param_groups]
    scheduled = all(isinstance(rate, Tensor) and rate.is_cuda for rate in rates)
    return scheduled and not str(precision).startswith("16")


def make_task(
    recipe: Recipe,
    method: Method,
    inputs: Inputs,
    bags: Bags,
    labels: Any,
    device: torch.device,
    num_instances: int,
) -> Task:
    """What the method learns from; ``num_instances`` are those of all processes."""
    return Task(
        bags.to(device),
        bags.num_classes,
        tuple(inputs.shape[1:]),
        None if labels is None else labels_of_rows(labels, bags).to(device),
        # Some methods allocate a whole batch.
        min(recipe.batch_size, num_instances),
        device,
        float(method.lr if recipe.lr is None else recipe.lr),
        recipe.epochs,
    )


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


def make_preprocess(feed: Feed, bags: Bags, method: Method, blocks: Blocks | None) -> Preprocess:
    """Fit the preprocessing to the training rows only, or to an even sample of them."""
    rows, most = bags.rows, _SAMPLE
    if blocks is not None:
        rows = bags[blocks.sample()].rows
        bytes_per_row = max(1, feed.inputs.nbytes // max(1, len(feed.inputs)))
        most = min(most, max(256, _SAMPLE_BYTES // bytes_per_row))
    if len(rows) > most:
        rows = rows[torch.linspace(0, len(rows) - 1, most).long()]
    raw = next(feed.stream([rows.to(feed.device)]))
    return Preprocess.of(raw, method.symmetric_inputs).to(feed.device)


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
        optimizer: torch.optim.Optimizer = recipe.optimizer(parameters)
        return optimizer
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
        scheduler = recipe.schedule(optimizer)
        if scheduler is None:
            raise LLPError("schedule is a function that returned None; return the scheduler")
        return scheduler
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
    """The weak and the strong augmentation; the method's own strong one is for images only."""
    named = recipe.strong_augment
    if method.views == 1 and named is not None:
        raise LLPError(f'method "{method.key}" has one view; leave {option("strong_augment")} out')
    own = method.strong_augment if method.views == 2 and of_images else None
    weak, strong = (
        augment.make(a) if isinstance(a, str) else a for a in (recipe.augment, named or own)
    )
    if named is None and isinstance(strong, Augment):
        # A mirrored letter is a different sign, so the user decides about flips for both views.
        strong = replace(strong, flip=isinstance(weak, Augment) and weak.flip)
    # "none" is allowed for features too, which other augmentations would refuse.
    return None if weak == Augment.none() else weak, strong
