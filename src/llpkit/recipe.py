"""The settings of a training run, each defined once.

:class:`Recipe` holds what determines the result, :class:`Execution` what does not. The keyword
arguments of :func:`llpkit.fit`, the YAML configuration, the options of the command line, the runs
of an experiment and the checkpoints are all made from these fields.

The command line shows them in its help, so this module imports nothing heavy.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from llpkit._settings import Check, Settings, setting
from llpkit._validation import (
    flag,
    flag_or_auto,
    mapping,
    number,
    one_of,
    option,
    registered,
    share,
    whole,
)
from llpkit.errors import LLPError

OPTIMIZERS = ("adam", "sgd")
SCHEDULES = ("tail", "cosine", "constant")
PRECISIONS = ("auto", "32-true", "bf16-mixed", "16-mixed", "64-true", "bf16-true", "16-true")
MEASURES = ("auto", "all", "off")
STRATEGIES = ("ddp", "fsdp")
AUTO = "auto"
"""The method is picked by :mod:`llpkit.auto`."""


def _whole(least: int = 1, most: int | None = None) -> Check:
    return lambda place, value: whole(place, value, least, most)


def _or_function(check: Callable[[str, Any], Any]) -> Check:
    """A known name, or the user's own function."""
    return lambda place, value: value if callable(value) else check(place, value)


def _network(place: str, value: Any) -> str:
    from llpkit.networks import NETWORKS

    return registered(place, value, NETWORKS)


def _augmentation(place: str, value: Any) -> str:
    from llpkit.augment import AUGMENTATIONS

    return registered(place, value, AUGMENTATIONS)


def _method(place: str, value: Any) -> str:
    from llpkit.methods import METHODS

    return registered(place, value, (AUTO, *METHODS))


def _devices(place: str, value: Any) -> int | str:
    return "auto" if value == "auto" else whole(place, value, 1, 1024)


def _measure(place: str, value: Any) -> str:
    """``True`` and ``False`` mean all and off: YAML reads a bare ``off`` as false."""
    if isinstance(value, bool):
        return "all" if value else "off"
    return one_of(place, value, MEASURES)


@dataclass(frozen=True, kw_only=True)
class Recipe(Settings):
    """What determines the result of a training run.

    >>> Recipe(epochs=5).replace(lr=0.1).lr
    0.1
    >>> Recipe(epochs=0)
    Traceback (most recent call last):
        ...
    llpkit.errors.LLPError: epochs = 0; give a whole number from 1 to 1000000000
    """

    method: str = setting(
        AUTO,
        "Method, as listed by llpkit methods; auto picks one that suits the data (auto).",
        _method,
        "NAME",
        text=True,
    )
    method_options: dict[str, Any] = setting(
        {},
        "Option of the method, such as approximation=auto for many classes; repeatable.",
        mapping,
        "KEY=VALUE",
        many=True,
        option="--method-option",
    )
    network: str | None = setting(
        None,
        "Network, as listed by llpkit networks (small-cnn for images, mlp for features).",
        _network,
        "NAME",
        text=True,
    )
    epochs: int = setting(30, "Passes over the training data (30).", _whole(1, 10**9), "N")
    batch_size: int = setting(
        128, "Instances per step; whole-bag methods take as many bags as fit (128).", _whole(), "N"
    )
    max_bags: int | None = setting(
        None, "Maximum bags per step, for whole-bag methods (as many as fit).", _whole(), "N"
    )
    optimizer: str | Callable[..., Any] = setting(
        "adam",
        "adam or sgd (adam).",
        _or_function(partial(one_of, known=OPTIMIZERS)),
        "NAME",
        text=True,
    )
    lr: float | None = setting(
        None, "Learning rate (the method's default).", partial(number, above=0), "RATE"
    )
    weight_decay: float = setting(
        0.0, "Weight decay (0); decoupled with adam.", partial(number, least=0), "RATE"
    )
    schedule: str | Callable[..., Any] = setting(
        "tail",
        "Learning rate over time: tail (constant, then a cosine over the last half), cosine or "
        "constant (tail).",
        _or_function(partial(one_of, known=SCHEDULES)),
        "NAME",
        text=True,
    )
    augment: str | Callable[..., Any] | None = setting(
        None,
        "Augmentation of images, as listed by llpkit augmentations (none).",
        _or_function(_augmentation),
        "NAME",
        text=True,
    )
    strong_augment: str | Callable[..., Any] | None = setting(
        None,
        "Strong augmentation, for methods with two views (the method's default).",
        _or_function(_augmentation),
        "NAME",
        text=True,
    )
    held_out: float | None = setting(
        None,
        "Share of bags to hold out, to check the model and select the best epoch.",
        share,
        "SHARE",
    )
    patience: int | None = setting(
        None, "Stop after this many epochs without improvement on held-out bags.", _whole(), "N"
    )
    measure: str = setting(
        "auto",
        "Training bags to evaluate after each epoch: auto (as many as are cheap), all or off.",
        _measure,
        "WHICH",
    )
    precision: str = setting(
        "auto",
        f"{', '.join(PRECISIONS)}; auto is bf16-mixed on a GPU that supports it (auto).",
        lambda place, value: one_of(place, value, PRECISIONS),
        "NAME",
        text=True,
    )
    seed: int = setting(0, "Random seed of the run (0).", _whole(0, 2**63 - 1), "N")

    def problems(self, held_out: Any) -> Iterator[LLPError]:
        """Errors for settings that contradict each other; ``held_out`` is ``None`` without any."""
        if self.patience is not None and held_out is None:
            needed = option("held_out", 0.1)
            yield LLPError(f"patience needs held-out bags; give {needed}, for example")


@dataclass(frozen=True, kw_only=True)
class Execution(Settings):
    """Execution settings, which affect results only by rounding.

    With several processes, dropout and augmentation draw different random numbers, and
    ``sync_batchnorm`` determines how batch norm normalises.
    """

    device: str = setting(
        "auto", "auto, cpu, cuda, cuda:1, … (auto).", lambda _, value: value, "NAME", text=True
    )
    devices: int | str = setting(
        1, "Training processes per machine: a number, or auto for all GPUs (1).", _devices, "N"
    )
    nodes: int = setting(1, "Number of machines that train together (1).", _whole(1, 10**6), "N")
    strategy: str = setting(
        "ddp",
        "With several processes: ddp keeps the whole network in each of them; fsdp divides it "
        "between them, for networks too large for one GPU (ddp).",
        lambda place, value: one_of(place, value, STRATEGIES),
        "NAME",
        text=True,
    )
    sync_batchnorm: bool | None = setting(
        None,
        "With several processes, whether batch norm uses the whole batch (true, GPUs only) or each "
        "process's own part of it (false).",
        flag,
        "true|false",
    )
    resident: bool | str = setting(
        "auto", "Keep all inputs on the device: true, false or auto (auto).", flag_or_auto, "WHICH"
    )
    workers: int = setting(
        2,
        "Number of processes that read image files, or of local Dask workers (2).",
        _whole(0, 1024),
        "N",
    )
    cuda_graph: bool = setting(
        True, "Replay training steps as a CUDA graph (true).", flag, "true|false"
    )
    compile: bool = setting(
        False, "Compile the network; pays off in long runs on a GPU (false).", flag, "true|false"
    )
    checkpoint_every: float = setting(
        0.0,
        "Seconds between checkpoints in the run directory; 0 writes one after every epoch (0).",
        partial(number, least=0),
        "SECONDS",
    )
    threads: int | None = setting(
        None, "CPU threads (torch's default; one for a small table).", _whole(1, 1024), "N"
    )
