"""One call from bags to a fitted model."""

import functools
import logging
import math
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from llpkit import _bounds, methods, networks
from llpkit._device import device_of
from llpkit._files import locked, place_of
from llpkit.bags import Bags
from llpkit.errors import BaselineWarning, LLPError
from llpkit.evaluation import (
    UNJUDGED,
    Gain,
    baseline_note,
    gain,
    measurable,
    warn_of_approximation,
)
from llpkit.likelihood.budget import best_log_prob, cost, even_sample
from llpkit.methods import BagMethod, Method, Task
from llpkit.training._batches import epoch_seed
from llpkit.training._callbacks import Callback, Progress
from llpkit.training._check import (
    check_finite,
    check_table,
    divide,
    labels_of_rows,
    not_negative,
    refuse_probabilities,
    whole,
)
from llpkit.training._feed import Feed, Inputs, Preprocess, as_inputs, to_float
from llpkit.training._fingerprint import name_of, of_bags, of_inputs, of_tensors, options_of
from llpkit.training._loop import MEASURE_BUDGET, MEASURES, Session
from llpkit.training._model import Fitted

CHECKPOINT = "checkpoint.pt"
SCHEDULES = ("tail", "cosine", "constant")
_SAMPLE = 4096
_FEW = 8
_COST_OF_A_PASS = 2**8
"""States of the recursion that an instance's forward pass is taken to cost: at the end of a run
some 16,000 instances are judged."""

_Function = TypeVar("_Function", bound=Callable[..., Fitted])

_training = threading.RLock()
"""Held by the one :func:`fit` that is under way: all of them draw from torch's global numbers."""


def _after_fork() -> None:
    global _training  # the thread that held it is not in the child
    _training = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _one_at_a_time(function: _Function) -> _Function:
    """Keep other threads from training, and other processes from the run_dir."""

    @functools.wraps(function)
    def alone(*arguments: Any, run_dir: str | Path | None = None, **options: Any) -> Fitted:
        with ExitStack() as held:
            held.enter_context(_training)
            if run_dir is not None:
                run_dir = place_of("run_dir", run_dir)
                held.enter_context(locked(run_dir / CHECKPOINT))
            return function(*arguments, run_dir=run_dir, **options)

    return cast(_Function, alone)


@_one_at_a_time
def fit(
    network: str | nn.Module | None,
    bags: Bags,
    inputs: Any,
    method: str | Method | type[Method] = "mle",
    *,
    epochs: int = 30,
    batch_size: int = 128,
    optimizer: str | Callable[[list[nn.Parameter]], torch.optim.Optimizer] = "adam",
    lr: float | None = None,
    weight_decay: float = 0.0,
    schedule: str | Callable[[torch.optim.Optimizer], Any] = "tail",
    augment: Any = None,
    held_out: Bags | float | None = None,
    patience: int | None = None,
    measure: bool | str = "auto",
    labels: Any = None,
    method_options: dict[str, Any] | None = None,
    precision: Any = "auto",
    device: str = "auto",
    seed: int = 0,
    callbacks: Callback | Sequence[Callback] = (),
    run_dir: str | Path | None = None,
    resume: bool = False,
    resident: bool | str = "auto",
    workers: int = 2,
    cuda_graph: bool = True,
    compile: bool = False,
    progress: bool = True,
) -> Fitted:
    """Train a network that classifies single instances, from the counts of their bags.

    A seed gives the same weights everywhere. The order of the instances comes from a generator of
    the run's own. The first weights of a named network, dropout, augmentation and the noise of
    ``llp-gan`` come from torch's global random numbers, which the run seeds and puts back; so calls
    in several threads run one after the other, and a thread of yours that draws from them meanwhile
    (``torch.rand`` without a generator) changes those. Processes run side by side. A network that
    you build yourself has drawn its weights before: seed torch, and build it, in one thread.

    Args:
        network: Any ``nn.Module`` that returns one logit (or two) an instance, or K logits for K
            classes; or a name for :func:`llpkit.networks.make`; or ``None`` for a default.
        bags: Which rows form which bag, and what is known of the counts.
        inputs: One row per instance: images ``(rows, C, H, W)`` as uint8 or floats in ``[0, 1]``,
            features ``(rows, D)``, or :class:`llpkit.datasets.ImageFiles`.
        method: A key of :data:`llpkit.methods.METHODS`, or a method of your own.
        epochs: Passes over the training data.
        batch_size: Instances a step; whole-bag methods pack bags up to this many.
        optimizer: ``"adam"``, ``"sgd"``, or a function from parameters to an optimiser.
        lr: Learning rate; the method's own default if ``None``.
        weight_decay: Decoupled weight decay.
        schedule: ``"tail"`` (constant, then a cosine to zero over the last half), ``"cosine"``,
            ``"constant"``, or a function from the optimiser to a scheduler stepped every epoch.
        augment: ``None``, a name for :func:`llpkit.augment.make`, or any function of a float batch.
        held_out: Other bags of the same table, kept from training (or the share of ``bags`` to
            keep): the weights of the epoch with their best log-likelihood are returned (exact,
            wherever that is within reach).
        patience: Stop when that has not improved for so many epochs.
        measure: Which training bags are measured after every epoch, for the history. ``"auto"``:
            all of them, unless the exact likelihood of K classes would cost more than 2^22 states
            of its recursion; then an even sample of the bags within that budget, the same in every
            epoch, whose number is ``measured_bags`` in the history (``mle`` has the likelihood
            anyway, and is not measured again). ``"all"`` (or ``True``) measures all of them;
            ``"off"`` (or ``False``) none. Held-out bags are always measured, since they select. The
            time it takes is ``measure_seconds`` in the history; ``seconds`` is the training's.
        labels: True labels of the rows, for ``method="supervised"`` only.
        method_options: Arguments of the method, such as ``{"refresh": "pass"}`` for ``mle``.
        precision: As Lightning Fabric takes it: ``"32-true"``, ``"bf16-mixed"``, ``"16-mixed"``;
            ``"auto"`` is bf16-mixed on a CUDA device that has it and 32-true elsewhere.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``, …
        seed: All randomness of the run follows from it.
        callbacks: Look on, add metrics, stop; see :class:`llpkit.training.Callback`.
        run_dir: Where a checkpoint is written after every epoch; one that is there already is
            never overwritten unless the run resumes from it. A directory in which another run is
            under way is refused.
        resume: Go on from the checkpoint in ``run_dir``; data and settings must be those of the
            run. On a CPU the weights are those of a run that was never stopped, bit for bit; on a
            CUDA device, where sums are added in no fixed order, up to rounding.
        resident: Whether inputs live on the device: ``True``, ``False`` or ``"auto"``.
        workers: Processes that read image files which are not resident.
        cuda_graph: On a CUDA device, record a step as a graph and replay it (if the method is
            :attr:`~llpkit.methods.Method.replayable`). A network whose forward pass does something
            else every time, by Python's random numbers say, must have it off.
        compile: Compile the network's steps with ``torch.compile``, which fuses small operations.
            It takes some twenty seconds before the first epoch, so it pays in long runs on a GPU.
        progress: Show a progress bar.

    Returns:
        A :class:`llpkit.training.Fitted`. ``baseline_log_likelihood`` in its history is that of the
        same bags if every instance had the same probability; a
        :class:`~llpkit.errors.BaselineWarning` says if the model is not better in the end, on the
        held-out bags by more than two standard errors. Without ``held_out`` it is given only if the
        model is no better even on the training bags: more than that these cannot tell.

    >>> import torch, llpkit
    >>> x = torch.randn(200, 2)
    >>> bags = llpkit.random_bags(labels=(x[:, 0] > 0).long(), size=4, generator=0)
    >>> model = llpkit.fit("linear", bags, x, epochs=60, lr=0.1, progress=False)
    >>> bool(((model.predict(x) == 1) == (x[:, 0] > 0)).float().mean() > 0.9)
    True
    """
    epochs = whole("epochs", epochs, most=_bounds.EPOCHS)
    batch_size = whole("batch_size", batch_size)
    patience = None if patience is None else whole("patience", patience)
    seed = whole("seed", seed, 0, _bounds.SEED)
    workers = whole("workers", workers, 0, _bounds.WORKERS)
    measure = _measure(measure)
    weight_decay = not_negative("weight_decay", weight_decay)
    watchers = _callbacks(callbacks)
    checkpoint = _checkpoint(run_dir, resume)
    how = methods.make(method, method_options)
    own_options = options_of(how)
    data = as_inputs(inputs)
    check_table(bags, len(data))
    if bags.num_instances == 0:
        raise LLPError("the bags hold no instances; there is nothing to learn from")
    if labels is not None and not how.needs_labels:
        raise LLPError(f'method "{how.key}" learns from counts; pass no labels')
    if patience is not None and held_out is None:
        raise LLPError("patience needs held_out bags to judge by; pass held_out=0.1, say")
    bags, judges = divide(bags, held_out, seed)
    check_finite(data, *(part.rows for part in (bags, judges) if part is not None))
    where = device_of(device)
    task = _task(bags, data, how, labels, batch_size, where, lr)

    precision = _precision(precision, where)
    devices: Any = 1 if where.index is None else [where.index]
    try:
        with _quiet():
            fabric = Fabric(accelerator=where.type, devices=devices, precision=precision)
    except ValueError as error:
        raise LLPError(
            f'precision = {precision!r}; give "auto", "32-true", "bf16-mixed" or "16-mixed"'
        ) from error
    with torch.random.fork_rng([where] if where.type == "cuda" else []):
        torch.manual_seed(epoch_seed(seed, 0))
        module, name = _network(network, how, task)
        feed = Feed(data, where, resident, workers)
        preprocess = _preprocess(feed, bags, how, where)
        how.prepare(task)
    _check_measures(bags, judges)
    plain = module.to(where)
    if where.type == "cuda" and len(task.input_shape) == 3:
        plain = plain.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    chosen = _optimizer(optimizer, plain, task.lr, how, weight_decay, where)
    fixed = _fixed(how, task)
    with _quiet():
        wrapped, chosen = fabric.setup(plain, chosen)
        compiled = fabric.setup_module(_compiled(plain)) if compile else None
    few = next(feed.stream([bags.rows[:_FEW].to(where)]))
    refuse_probabilities(wrapped, preprocess(to_float(few)))

    augmentation = _augment(augment)
    settings = {
        "method": how.key,
        "options": own_options,
        "epochs": epochs,
        "batch_size": batch_size,
        "lr": task.lr,
        "seed": seed,
        "optimizer": name_of(optimizer),
        "weight_decay": weight_decay,
        "schedule": name_of(schedule),
        "augment": name_of(augmentation),
        "held_out": name_of(held_out),
        "patience": patience,
        "measure": measure,
        "instances": bags.num_instances,
        "bags": len(bags),
        "precision": str(precision),
    }
    session = Session(
        fabric,
        wrapped,
        chosen,
        _schedule(schedule, chosen, epochs),
        how,
        task,
        feed,
        preprocess,
        augmentation,
        epochs,
        seed,
        None if judges is None else judges.to(where),
        patience,
        ([Progress(how.key)] if progress else []) + watchers,
        checkpoint,
        settings,
        fixed,
        False,
        compiled,
        None if checkpoint is None else _checksums(bags, judges, data, task.labels),
        measure,
    )
    if resume:
        session.resume()
    session.record = fixed and cuda_graph and _recordable(chosen, precision)
    session.run()

    epoch = len(session.history)
    if session.best is not None:
        wrapped.load_state_dict(session.best["network"])
        epoch = session.best["epoch"]
    plain.eval()
    with torch.random.fork_rng([where] if where.type == "cuda" else []):
        baseline = _baseline(session, bags, judges)
    return Fitted(
        plain,
        preprocess,
        task.num_classes,
        task.input_shape,
        session.history,
        epoch,
        name,
        {"settings": settings, "baseline": baseline},
    )


def _baseline(session: Session, bags: Bags, held_out: Bags | None) -> dict[str, Any]:
    """The constant rate, what it reaches, and a warning if the model does not beat it."""
    training = None
    if session.measure != "off":
        within = cost(bags.evidence, bags.sizes) + _COST_OF_A_PASS * bags.sizes
        some = bags[even_sample(within, MEASURE_BUDGET)]
        training = _gain(session, some)
    unseen = None if held_out is None else _gain(session, held_out)
    found: dict[str, Any] = {"rate": session.rate.tolist()}
    for prefix, part in (("", training), ("held_out_", unseen)):
        if part is not None:
            found[f"{prefix}log_likelihood"] = part.baseline
    note = baseline_note(training, unseen)
    if note is not None:
        found["warning"] = note
        warnings.warn(note, BaselineWarning, stacklevel=4)
    elif unseen is None:
        found["note"] = UNJUDGED
    return found


def _gain(session: Session, bags: Bags) -> Gain | None:
    if not bool(measurable(bags).any()):
        return None
    bags = bags.to(session.task.device)
    log_p = best_log_prob(session.bag_logits(bags), bags.evidence, bags.offsets)
    return gain(log_p, bags, session.rate)


def _measure(measure: Any) -> str:
    """``True`` and ``False`` are other words for all and off."""
    if isinstance(measure, bool):
        return "all" if measure else "off"
    if measure not in MEASURES:
        raise LLPError(f"measure = {measure!r}; known are {', '.join(MEASURES)}")
    return str(measure)


def _checkpoint(run_dir: str | Path | None, resume: bool) -> Path | None:
    if run_dir is None:
        if resume:
            raise LLPError("resume needs the run_dir that holds the checkpoint")
        return None
    checkpoint = Path(run_dir) / CHECKPOINT
    if checkpoint.exists() and not resume:
        raise LLPError(
            f"run_dir = {str(run_dir)!r} holds the checkpoint of a run; go on with resume=True, "
            "remove it, or use another directory"
        )
    return checkpoint


def _callbacks(callbacks: Any) -> list[Callback]:
    """One callback or several, as a list."""
    given = [callbacks] if isinstance(callbacks, Callback) else list(callbacks)
    for i, one in enumerate(given):
        if not isinstance(one, Callback):
            kind = (
                f"the class {one.__name__}" if isinstance(one, type) else f"a {type(one).__name__}"
            )
            raise LLPError(
                f"callbacks[{i}] is {kind}; pass objects of subclasses of llpkit.training.Callback"
            )
    return given


def _check_measures(bags: Bags, held_out: Bags | None) -> None:
    """Say where measures are approximate; refuse to select by what cannot be measured."""
    if held_out is not None and not bool(measurable(held_out).any()):
        raise LLPError(
            "the likelihood of the held_out bags is out of reach: they are too large for their "
            "classes, and their counts are not exact; train without held_out"
        )
    parts = [bags] if held_out is None else [bags, held_out]
    warn_of_approximation(*parts, stacklevel=5)


def _precision(precision: Any, device: torch.device) -> Any:
    if precision != "auto":
        return precision
    on_card = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16-mixed" if on_card else "32-true"


@contextmanager
def _quiet() -> Iterator[None]:
    """Fabric tells what it was told and gives advice, at a level below warnings."""
    log = logging.getLogger("lightning_fabric.utilities.rank_zero")
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(level)


def _compiled(network: nn.Module) -> nn.Module:
    """With the network's own parameters; only its training steps run through it."""
    compiled: nn.Module = torch.compile(network)  # type: ignore[assignment]
    return compiled


def _fixed(method: Method, task: Task) -> bool:
    """Whether all batches shall have one shape: it pays where steps can be recorded."""
    # A subclass changes what its parent promised, so it must promise anew.
    promised = vars(type(method)).get("replayable", False) and method.replayable
    if task.device.type != "cuda" or not promised:
        return False
    if method.batches == "instances":
        return True
    large = int(task.bags.sizes.max()) > task.batch_size
    return task.bags.evidence.is_exact and (isinstance(method, BagMethod) or not large)


def _recordable(optimizer: torch.optim.Optimizer, precision: Any) -> bool:
    """Whether the learning rate can be scheduled in a recorded step, and no scaler waits."""
    rates = [group["lr"] for group in optimizer.param_groups]
    scheduled = all(isinstance(rate, Tensor) and rate.is_cuda for rate in rates)
    return scheduled and not str(precision).startswith("16")


def _task(
    bags: Bags,
    inputs: Inputs,
    method: Method,
    labels: Any,
    batch_size: int,
    device: torch.device,
    lr: float | None,
) -> Task:
    first = inputs[:1] if isinstance(inputs, Tensor) else inputs.load([0])
    truth = None
    if labels is not None:
        truth = labels_of_rows(labels, bags).to(device)
    rate = method.lr if lr is None else lr
    if not (isinstance(rate, float | int) and 0 < rate < math.inf):
        raise LLPError(f"lr = {rate!r}; give a positive number")
    return Task(
        bags.to(device),
        bags.num_classes,
        tuple(first.shape[1:]),
        truth,
        min(batch_size, bags.num_instances),  # some methods make room for a whole batch
        device,
        float(rate),
    )


def _network(
    network: str | nn.Module | None, method: Method, task: Task
) -> tuple[nn.Module, str | None]:
    if isinstance(network, nn.Module):
        return network, None
    if network is None:
        network = method.network_name or ("small-cnn" if len(task.input_shape) == 3 else "mlp")
    outputs = task.num_classes or 1
    return networks.make(network, input_shape=task.input_shape, num_outputs=outputs), network


def _preprocess(feed: Feed, bags: Bags, method: Method, device: torch.device) -> Preprocess:
    """Fitted to the training rows alone, or an even sample of them."""
    rows = bags.rows
    if len(rows) > _SAMPLE:
        rows = rows[torch.linspace(0, len(rows) - 1, _SAMPLE).long()]
    raw = next(feed.stream([rows.to(device)]))
    return Preprocess.of(raw, method.symmetric_inputs).to(device)


def _optimizer(
    optimizer: Any,
    network: nn.Module,
    lr: float,
    method: Method,
    weight_decay: float,
    device: torch.device,
) -> torch.optim.Optimizer:
    parameters = [p for p in network.parameters() if p.requires_grad]
    if not parameters:
        raise LLPError("the network has no parameters to train")
    if callable(optimizer):
        made: torch.optim.Optimizer = optimizer(parameters)
        return made
    on_card = device.type == "cuda"
    # A number would be fixed in a recorded step; a tensor on the device can still be scheduled.
    rate: Any = torch.tensor(lr, device=device) if on_card else lr
    if optimizer == "adam":
        return torch.optim.AdamW(
            parameters,
            lr=rate,
            betas=method.betas,
            weight_decay=weight_decay,
            fused=True,
            capturable=on_card,
        )
    if optimizer == "sgd":
        return torch.optim.SGD(
            parameters, rate, momentum=0.9, nesterov=True, weight_decay=weight_decay, fused=True
        )
    raise LLPError(f"optimizer = {optimizer!r}; known are adam and sgd, or pass a function")


def _schedule(schedule: Any, optimizer: torch.optim.Optimizer, epochs: int) -> Any:
    if callable(schedule):
        return schedule(optimizer)
    if schedule not in SCHEDULES:
        raise LLPError(f"schedule = {schedule!r}; known are {', '.join(SCHEDULES)}")
    start = {"tail": epochs // 2, "cosine": 0, "constant": epochs}[schedule]

    def factor(epoch: int) -> float:
        if epoch < start:
            return 1.0
        return 0.5 + 0.5 * math.cos(math.pi * (epoch - start) / max(1, epochs - start))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def _checksums(
    bags: Bags, held_out: Bags | None, inputs: Inputs, labels: Tensor | None
) -> dict[str, str]:
    return {
        "inputs": of_inputs(inputs),
        "labels": of_tensors(labels),
        "bags": of_bags(bags),
        "held-out bags": of_bags(held_out),
    }


def _augment(augment: Any) -> Any:
    if isinstance(augment, str):
        from llpkit.augment import make

        return make(augment)
    return augment
