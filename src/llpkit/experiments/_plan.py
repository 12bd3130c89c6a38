"""Which runs an experiment is made of: the paper's protocol, as one list of runs."""

import difflib
import inspect
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from llpkit import _bounds, methods, networks
from llpkit.augment import AUGMENTATIONS as PRESETS
from llpkit.errors import LLPError
from llpkit.experiments._run import EXPERIMENTS, VARIANTS, Record, Run
from llpkit.methods import METHODS
from llpkit.methods.tractability import OPTION
from llpkit.networks import NETWORKS

FOLDS = 10
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")
BAG_SIZES = (2, 4, 8, 16, 32, 64, 128)
HELD_OUT = 0.1
"""Share of the training bags by whose likelihood hyper-parameters are chosen."""

WARM_UP = 2
"""First epochs of a timed run that are not counted."""

_DEFAULT_FOLDS = {"convergence": 10, "bag-size": 3, "grid": 2, "epoch-time": 3}
_QUICK_FOLDS = {"convergence": 3, "bag-size": 2, "grid": 1, "epoch-time": 2}
_TIMED_EPOCHS = 10
_QUICK_SIZES = (2, 16)


@dataclass(frozen=True)
class Protocol:
    """How a data set is learnt from unless the user says otherwise."""

    network: str
    epochs: int
    batch_size: int
    augment: str
    precision: str
    bag_size: tuple[int, int] | None
    shape: tuple[int, int, int]
    quick_epochs: int = 2
    flat: bool = False


PROTOCOLS = {
    "cifar10": Protocol("conv-large", 120, 128, "paper", "bf16-mixed", (1, 12), (3, 32, 32)),
    "group-photos": Protocol("conv-large", 100, 128, "paper", "bf16-mixed", None, (3, 90, 72)),
    # A flipped digit is no digit, and on them a CNN tells the methods apart no more.
    "digits": Protocol("mlp", 40, 32, "none", "32-true", (1, 12), (1, 8, 8), 8, flat=True),
}


@dataclass(frozen=True)
class Settings:
    """What a user may change, the same for every method; ``None`` is the protocol's own.

    Args:
        dataset: A key of :data:`PROTOCOLS`.
        methods: Of :func:`names`; all unless given, but no variants in ``bag-size``.
        folds: Which folds to run.
        size: Of group photos, ``"full"`` (90 x 72) or ``"half"``.
        held_out: Share of training bags to select the epoch by, beside the last one.
        bag_sizes: Of the bag-size experiment.
        method_options: For each method, its own options.
        quick: Few folds and few epochs, to see that everything works.
        grid: Whether to take what a grid has chosen where there is one.
    """

    dataset: str
    methods: Sequence[str] = ()
    folds: Sequence[int] | None = None
    epochs: int | None = None
    batch_size: int | None = None
    network: str | None = None
    augment: str | None = None
    precision: str | None = None
    size: str | None = None
    lr: float | None = None
    held_out: float | None = None
    seed: int = 0
    bag_sizes: Sequence[int] | None = None
    method_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    quick: bool = False
    grid: bool = True

    def __post_init__(self) -> None:
        known("dataset", self.dataset, PROTOCOLS)
        for name in (*self.methods, *self.method_options):
            known("method", name, names(), methods.OWN)
        for name, options in self.method_options.items():
            method, own = VARIANTS.get(name, (name, {}))
            methods.make(method, {**own, **options})
        _once("methods", self.methods)
        _once("bag_sizes", self.bag_sizes or ())
        if self.size is not None and self.dataset != "group-photos":
            raise LLPError(f"size = {self.size!r} is for group-photos, not for {self.dataset}")
        for name, words in (
            ("size", ("full", "half")),
            ("network", NETWORKS),
            ("augment", PRESETS),
            ("precision", PRECISIONS),
        ):
            if (value := getattr(self, name)) is not None:
                known(name, value, words)
        for fold in self.folds or ():
            if not 0 <= fold < FOLDS:
                raise LLPError(f"fold {fold} is not one of the {FOLDS}; give folds from 0 to 9")
        at_least_one("epochs", self.epochs, _bounds.EPOCHS)
        if not 0 <= self.seed <= _bounds.SEED:
            raise LLPError(f"seed = {self.seed}; give a number from 0 to {_bounds.SEED}")
        at_least_one("batch_size", self.batch_size)
        for bag_size in self.bag_sizes or ():
            at_least_one("bag_sizes", bag_size)
        if self.lr is not None and not 0 < self.lr < math.inf:
            raise LLPError(f"lr = {self.lr}; give a positive number")
        if self.held_out is not None and not 0 < self.held_out < 1:
            raise LLPError(f"held_out = {self.held_out}; give a share between 0 and 1, 0.1 say")
        self._check_network()

    def _check_network(self) -> None:
        """Whether the network takes the images, and the augmentation what the network takes."""
        shape: tuple[int, ...] = self.protocol.shape
        if self.size == "half":
            shape = (shape[0], shape[1] // 2, shape[2] // 2)
        if self.flat:
            shape = (math.prod(shape),)
            if self.augment not in (None, "none"):
                raise LLPError(
                    f"augment = {self.augment!r} is for images, but {self.dataset} are rows of "
                    "numbers here; use --network small-cnn, or augment none"
                )
        with torch.device("meta"):  # nothing is drawn
            networks.make(self.network or self.protocol.network, input_shape=shape, num_outputs=1)

    @property
    def flat(self) -> bool:
        """Whether images are rows of numbers."""
        return self.protocol.flat and self.network in (None, "mlp", "linear")

    @property
    def protocol(self) -> Protocol:
        """What holds where nothing was said."""
        return PROTOCOLS[self.dataset]


@dataclass(frozen=True)
class Choice:
    """Hyper-parameters of one method, and where they come from."""

    lr: float
    weight_decay: float = 0.0
    method_options: Mapping[str, Any] = field(default_factory=dict)
    chosen_by: str = "defaults"


def parse_folds(text: str) -> list[int]:
    """Folds from a count, a range or a list.

    >>> parse_folds("3"), parse_folds("5-7"), parse_folds("0,4,8-9")
    ([0, 1, 2], [5, 6, 7], [0, 4, 8, 9])
    """
    try:
        if text.strip().isdecimal():
            pairs = [(0, int(text) - 1)]
        else:
            parts = [part.partition("-") for part in filter(None, text.split(","))]
            pairs = [(int(first), int(last if dash else first)) for first, dash, last in parts]
    except ValueError:
        pairs = []
    there = all(first >= 0 and last < FOLDS for first, last in pairs)  # before they are listed
    folds = [fold for first, last in pairs for fold in range(first, last + 1)] if there else []
    if not folds:
        raise LLPError(
            f"folds = {text!r}; give a count such as 5, a range such as 0-4 or a list such as "
            f"0,3,7 of the folds 0 to {FOLDS - 1}"
        )
    return list(dict.fromkeys(folds))


def plan(
    experiment: str,
    settings: Settings,
    choices: Mapping[str, Choice] | None = None,
    compiled: bool = False,
) -> list[Run]:
    """The runs of an experiment, fold by fold so that any part of them is a fair comparison.

    Of timed runs, each turn begins with another method: none is always the first.

    Args:
        experiment: ``"convergence"``, ``"bag-size"`` or ``"epoch-time"``.
        settings: What the user changed.
        choices: What a grid search chose, for the methods it covered.
        compiled: Whether networks will be compiled, which makes other runs of timed ones.

    >>> runs = plan("bag-size", Settings("digits", methods=["mle"], folds=[0], bag_sizes=[2, 4]))
    >>> [run.title for run in runs]
    ['digits, mle, bags of 2, fold 0', 'digits, mle, bags of 4, fold 0']
    """
    known("experiment", experiment, EXPERIMENTS)
    protocol = settings.protocol
    sizes: Sequence[Any] = [protocol.bag_size]
    if experiment == "bag-size":
        if protocol.bag_size is None:
            raise LLPError(f"{settings.dataset} has bags of its own; bag-size needs random bags")
        sizes = settings.bag_sizes or (_QUICK_SIZES if settings.quick else BAG_SIZES)
    chosen = {**choices_without_grid(settings), **(choices or {})}
    wanted = wanted_by(experiment, settings)
    runs = [
        make(experiment, settings, name, chosen[name], fold, size)
        for fold, size, name in itertools.product(folds_of(experiment, settings), sizes, wanted)
    ]
    for name, run in zip(itertools.cycle(wanted), runs, strict=False):
        if run.name != name and run.name in wanted:
            raise LLPError(
                f"methods: {name} with these options is {run.name}, which is there too; give the "
                f"options to {run.name}, or name only one of the two"
            )
    if experiment == "epoch-time":
        runs = [replace(run, compiled=compiled) for run in _rotated(runs, len(wanted))]
    return runs


def _rotated(runs: Sequence[Any], number: int) -> list[Any]:
    """Turns of so many runs, each begun one run later than the turn before.

    >>> _rotated("abcabcabc", 3)
    ['a', 'b', 'c', 'b', 'c', 'a', 'c', 'a', 'b']
    """
    turns = [runs[i : i + number] for i in range(0, len(runs), number)]
    return [turn[(i + j) % number] for i, turn in enumerate(turns) for j in range(number)]


def names() -> list[str]:
    """All methods, each followed by its variants.

    >>> names()
    ['supervised', 'mle', 'mle-pass', 'direct', 'amle', 'dllp', 'llp-gan']
    """
    return [
        name
        for method in METHODS
        for name in (method, *(v for v, (of, _) in VARIANTS.items() if of == method))
    ]


def in_order(some: Iterable[str]) -> list[str]:
    """Names of methods in their usual order; those that are not known here come last.

    >>> in_order(["mine", "dllp", "mle"])
    ['mle', 'dllp', 'mine']
    """
    order = names()
    return sorted(some, key=lambda name: order.index(name) if name in order else len(order))


def brings_network(record: Record) -> bool:
    """Whether the method of a record has networks of its own, known here or not."""
    method = METHODS.get(record["run"]["method"])
    return bool(record.get("own_network", method is not None and method.network_name is not None))


def wanted_by(experiment: str, settings: Settings) -> Sequence[str]:
    """The methods of an experiment, by name."""
    return settings.methods or (list(METHODS) if experiment == "bag-size" else names())


def make(
    experiment: str, settings: Settings, name: str, choice: Choice, fold: int, bag_size: Any
) -> Run:
    """One run of an experiment."""
    protocol = settings.protocol
    method, options = VARIANTS.get(name, (name, {}))
    network = METHODS[method].network_name or settings.network or protocol.network
    held_out = settings.held_out
    if experiment == "grid":
        held_out = HELD_OUT
    elif experiment == "epoch-time":
        held_out = None
    return Run(
        experiment=experiment,
        dataset=settings.dataset,
        method=method,
        fold=fold,
        folds=FOLDS,
        seed=settings.seed,
        bag_size=bag_size,
        data_options={"size": settings.size or "full"} if bag_size is None else {},
        flat=settings.flat,
        network=network,
        epochs=epochs_of(experiment, settings),
        batch_size=settings.batch_size or protocol.batch_size,
        lr=float(choice.lr),
        weight_decay=float(choice.weight_decay),
        augment=settings.augment or protocol.augment,
        precision=settings.precision or protocol.precision,
        held_out=held_out,
        method_options=_resolved(method, {**options, **choice.method_options}),
    )


def folds_of(experiment: str, settings: Settings) -> Sequence[int]:
    """The folds to run; of timed runs, the turns."""
    if settings.folds is not None:
        return settings.folds
    return range((_QUICK_FOLDS if settings.quick else _DEFAULT_FOLDS)[experiment])


def choices_without_grid(settings: Settings) -> dict[str, Choice]:
    """Hyper-parameters as the user gave them, else the stated defaults."""
    found = {}
    for name in names():
        lr, options = settings.lr, settings.method_options.get(name, {})
        given = "options" if lr is not None or options else "defaults"
        found[name] = Choice(default_lr(name) if lr is None else lr, 0.0, options, given)
    return found


def default_lr(name: str) -> float:
    """The learning rate where nothing has chosen one: the method's own."""
    return METHODS[VARIANTS.get(name, (name, {}))[0]].lr


def stated(name: str) -> dict[str, Any]:
    """The options of a method, by name, where nothing was said.

    >>> stated("mle-pass")["refresh"]
    'pass'
    """
    method, options = VARIANTS.get(name, (name, {}))
    return _resolved(method, options) if method in METHODS else {}


def _resolved(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a method with what holds where nothing was said; 1 is 1.0 where that is."""
    parameters = inspect.signature(METHODS[method]).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    defaults.pop(OPTION, None)  # of K classes, which no experiment has; as in older records
    given = {
        k: float(v) if isinstance(defaults.get(k), float) and isinstance(v, int) else v
        for k, v in options.items()
    }
    return {**defaults, **given}


def epochs_of(experiment: str, settings: Settings) -> int:
    """Of each run of an experiment."""
    protocol = settings.protocol
    if settings.epochs is not None:
        if experiment == "epoch-time" and settings.epochs <= WARM_UP:
            raise LLPError(
                f"epochs = {settings.epochs}; the first {WARM_UP} of a timed run are not counted, "
                f"give {WARM_UP + 1} or more"
            )
        return settings.epochs
    if experiment == "epoch-time":
        return 4 if settings.quick else _TIMED_EPOCHS
    return protocol.quick_epochs if settings.quick else protocol.epochs


def known(what: str, value: str, names: Iterable[str], more: str = "") -> None:
    """An error that names the nearest, or all and what ``more`` says, for a word not of some."""
    if value not in (every := list(names)):
        near = difflib.get_close_matches(value, every, 1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(every)}"
        hint += f"; {more}" if more and not near else ""
        raise LLPError(f"{what} = {value!r}; {hint}")


def _once(what: str, values: Sequence[Any]) -> None:
    twice = [str(value) for i, value in enumerate(values) if value in values[:i]]
    if twice:
        raise LLPError(f"{what}: {twice[0]} is there twice; name each once")


def at_least_one(what: str, value: int | None, most: int | None = None) -> None:
    """An error for a number below one, or above the most."""
    if value is not None and (value < 1 or (most is not None and value > most)):
        bound = "" if most is None else f" to {most}"
        raise LLPError(f"{what} = {value}; give a number from 1{bound}")
