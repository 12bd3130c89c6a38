"""One call from bags to a fitted model."""

import functools
import inspect
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from llpkit import methods
from llpkit._device import device_of
from llpkit._files import locked, place_of
from llpkit._registry import did_you_mean
from llpkit.auto import pick_method
from llpkit.bags import Bags
from llpkit.errors import ApproximationWarning, BaselineWarning, LLPError
from llpkit.evaluation import (
    UNJUDGED,
    Gain,
    approximation_note,
    baseline_note,
    gain,
    measurable,
)
from llpkit.likelihood.budget import best_log_prob, cost, even_sample
from llpkit.likelihood.checks import Approximation
from llpkit.likelihood.choice import choice_note
from llpkit.methods import BagMethod, Learner, Method, Task
from llpkit.recipe import AUTO, Execution, Recipe
from llpkit.training.batches import epoch_seed
from llpkit.training.building import (
    augmentations,
    compiled,
    make_fabric,
    make_network,
    make_optimizer,
    make_preprocess,
    make_scheduler,
    paddable,
    precision_on,
    quiet,
    recordable,
)
from llpkit.training.callbacks import Callback, Progress
from llpkit.training.check import (
    check_finite,
    check_table,
    divide,
    labels_of_rows,
    refuse_probabilities,
)
from llpkit.training.checkpoint import Checkpoint
from llpkit.training.fingerprint import name_of, of_bags, of_inputs, of_tensors, options_of
from llpkit.training.inputs import Feed, Inputs, Pipeline, as_inputs, to_float
from llpkit.training.loop import Session
from llpkit.training.measures import BUDGET
from llpkit.training.model import Fitted

CHECKPOINT = "checkpoint.pt"
_FEW = 8
_COST_OF_A_PASS = 2**8
"""States of the recursion that cost about as much as one instance's forward pass, so that the final
measurement covers some 16,000 instances."""

_Function = TypeVar("_Function", bound=Callable[..., Fitted])

_training = threading.RLock()
"""Held while :func:`fit` runs: all calls draw from torch's global random numbers."""


def _after_fork() -> None:
    global _training  # a fork copies a held lock but not the thread that would release it
    _training = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _one_at_a_time(function: _Function) -> _Function:
    """Let one thread train at a time, and keep other processes out of the run_dir."""

    @functools.wraps(function)
    def alone(*arguments: Any, run_dir: str | Path | None = None, **options: Any) -> Fitted:
        with ExitStack() as held:
            held.enter_context(_training)
            # Restored even if the fit fails.
            held.callback(torch.set_num_threads, torch.get_num_threads())
            if run_dir is not None:
                run_dir = place_of("run_dir", run_dir)
                held.enter_context(locked(run_dir / CHECKPOINT))
            return function(*arguments, run_dir=run_dir, **options)

    return cast(_Function, alone)


def _with_settings(function: _Function) -> _Function:
    """Show every setting in the signature, for help() and editors."""
    own = inspect.signature(function)
    named = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in (Recipe.defaults() | Execution.defaults()).items()
        if name not in own.parameters
    ]
    function.__signature__ = own.replace(parameters=[*named, *more])  # type: ignore[attr-defined]
    return function


@_with_settings
@_one_at_a_time
def fit(
    network: str | nn.Module | None,
    bags: Bags,
    inputs: Any,
    method: str | Method | type[Method] | None = None,
    *,
    labels: Any = None,
    held_out: Bags | float | None = None,
    callbacks: Callback | Sequence[Callback] = (),
    run_dir: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    recipe: Recipe | None = None,
    **settings: Any,
) -> Fitted:
    """Train a per-instance classifier from the counts of bags.

    A seed determines the weights. The order of the instances comes from a separate generator; the
    initial weights of a named network, dropout, augmentation and the noise of ``llp-gan`` come from
    torch's global random numbers, which the run seeds and restores. Calls from several threads
    therefore run one after the other, and a thread that draws global random numbers meanwhile
    (``torch.rand`` without a generator) changes the result. Processes can run in parallel. If you
    build the network yourself, seed torch first, in the same thread.

    Args:
        network: Any ``nn.Module`` that returns one logit (or two) per instance, or K logits for K
            classes; or a key of :data:`llpkit.networks.NETWORKS`; or ``None`` for a default.
        bags: Which rows form which bag, and what is known about the counts.
        inputs: One row per instance: images ``(rows, C, H, W)`` as uint8 or floats in ``[0, 1]``,
            features ``(rows, D)``, or :class:`llpkit.datasets.ImageFiles`.
        method: A key of :data:`llpkit.methods.METHODS`, or your own method. The default,
            ``"auto"``, picks one by the bags, see :mod:`llpkit.auto`; the choice and its reason are
            printed and are in the ``details`` of the model.
        labels: True labels of the rows, for ``method="supervised"`` only.
        held_out: Other bags of the same table, or the share of ``bags`` to hold out. The weights of
            the epoch with the best held-out log-likelihood are returned.
        callbacks: See :class:`llpkit.training.Callback`.
        run_dir: A checkpoint is written here after every epoch. An existing checkpoint is never
            overwritten unless the run resumes from it, and a directory in use is refused.
        resume: Continue from the checkpoint in ``run_dir``; data and settings must be the same. On
            a CPU the weights equal those of an uninterrupted run bit for bit; on a CUDA device they
            agree up to rounding, because the order of summation varies.
        progress: Show a progress bar.
        recipe: Settings to start from.
        **settings: Any field of :class:`~llpkit.training.Recipe`, which determine the result
            (``epochs``, ``batch_size``, ``lr``, …), and of :class:`~llpkit.training.Execution`,
            which do not (``device``, ``compile``, …).

    Returns:
        A :class:`llpkit.training.Fitted`. ``baseline_log_likelihood`` in its history is the
        log-likelihood if every instance had the same probability. A
        :class:`~llpkit.errors.BaselineWarning` is given if the final model does not beat it on
        held-out bags by more than two standard errors. Without ``held_out`` the warning is given
        only if the model is no better on the training bags, which is a much weaker check.

    >>> import torch, llpkit
    >>> x = torch.randn(200, 2)
    >>> bags = llpkit.random_bags(labels=(x[:, 0] > 0).long(), size=4, generator=0)
    >>> model = llpkit.fit("linear", bags, x, epochs=60, lr=0.1, progress=False)
    >>> bool(((model.predict(x) == 1) == (x[:, 0] > 0)).float().mean() > 0.9)
    True
    """
    recipe, execution = _settings(recipe, method, network, held_out, settings)
    if execution.threads is not None:
        torch.set_num_threads(execution.threads)  # until this call ends
    watchers = _callbacks(callbacks)
    path = _checkpoint_path(run_dir, resume)
    data = as_inputs(inputs)
    check_table(bags, len(data))
    if bags.num_instances == 0:
        raise LLPError("the bags hold no instances; there is nothing to learn from")
    picked = None
    if recipe.method == AUTO and (method is None or isinstance(method, str)):
        of_images = not isinstance(data, Tensor) or data.dim() == 4
        picked = pick_method(bags, recipe, of_images)
        method = picked.name
        recipe = recipe.replace(method=method)
        if progress:
            print(f"method: {picked}", file=sys.stderr)
    how = methods.make(recipe.method if method is None else method, recipe.method_options)
    own_options = options_of(how)
    if labels is not None and not how.needs_labels:
        raise LLPError(f'method "{how.key}" learns from counts; pass no labels')
    unseen = held_out if isinstance(held_out, Bags) else recipe.held_out
    if recipe.patience is not None and unseen is None:
        raise LLPError("patience needs held-out bags; pass held_out=0.1, for example")
    # Preprocessing and baseline must not see held-out bags, so they are split off first.
    bags, apart = divide(bags, unseen, recipe.seed)
    check_finite(data, *(part.rows for part in (bags, apart) if part is not None))
    where = device_of(execution.device)
    task = _task(bags, data, how, labels, recipe, where)
    if how.views == 2 and isinstance(how, BagMethod) and int(bags.sizes.max()) > task.batch_size:
        raise LLPError(
            f'method "{how.key}" has two views, which a bag larger than a batch cannot have; use a '
            f"batch_size of at least {int(bags.sizes.max())}"
        )
    precision = precision_on(recipe.precision, where)
    fabric = make_fabric(where, precision)

    with torch.random.fork_rng([where] if where.type == "cuda" else []):
        torch.manual_seed(epoch_seed(recipe.seed, 0))
        # Initial weights follow from the seed; the caller's random numbers are restored.
        plain, name = make_network(recipe.network if network is None else network, how, task)
        feed = Feed(data, where, execution.resident, execution.workers)
        preprocess = make_preprocess(feed, bags, how, where)
        plain = plain.to(where)
        if where.type == "cuda" and len(task.input_shape) == 3:  # faster convolutions
            plain = plain.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimizer = make_optimizer(recipe, plain, task.lr, how, where)
        with quiet():
            wrapped, optimizer = fabric.setup(plain, optimizer)
            trained = fabric.setup_module(compiled(plain)) if execution.compile else wrapped
        # After Fabric has set the precision, so that a copy of the network, a teacher, has it too.
        how.prepare(task, plain)
    automatic = getattr(how, "approximation", None) == "auto"
    _check_measures(bags, apart, how.chosen_approximation if automatic else None)
    pad = paddable(how, task)
    few = next(feed.stream([bags.rows[:_FEW].to(where)]))
    refuse_probabilities(wrapped, preprocess(to_float(few)))

    weak, strong = augmentations(recipe, how, len(task.input_shape) == 3)
    # For the checkpoint and the saved model: resolved values instead of None and "auto".
    described: dict[str, Any] = {key: name_of(value) for key, value in recipe.to_dict().items()}
    described |= {
        "method": how.key,
        "method_options": own_options,
        "chosen_approximation": how.chosen_approximation,
        "network": name or type(plain).__name__,
        "lr": float(optimizer.param_groups[0]["lr"]),
        "augment": name_of(weak),
        "strong_augment": name_of(strong),
        "held_out": name_of(unseen if recipe.held_out is None else recipe.held_out),
        "precision": str(precision),
        "instances": bags.num_instances,
        "bags": len(bags),
    }
    checkpoint = None
    if path is not None:
        checkpoint = Checkpoint(path, described, _checksums(bags, apart, data, task.labels))
    session = Session(
        recipe,
        wrapped,
        Learner(trained, optimizer, fabric.backward, fabric.autocast),
        make_scheduler(recipe, optimizer),
        how,
        task,
        Pipeline(feed, preprocess, weak, strong, how.views),
        held_out=None if apart is None else apart.to(where),
        callbacks=([Progress(how.key)] if progress else []) + watchers,
        checkpoint=checkpoint,
        checkpoint_every=execution.checkpoint_every,
        pad=pad,
        cuda_graph=pad and execution.cuda_graph and recordable(optimizer, precision),
    )
    if resume:
        session.resume()
    session.run()

    epoch = session.restore_best()
    model = plain if how.model is None else how.model
    model.eval()
    with torch.random.fork_rng([where] if where.type == "cuda" else []):
        baseline = _baseline(session, bags, apart)
    from llpkit.statistics import warn_unidentified  # imports SciPy

    features = data if isinstance(data, Tensor) and data.dim() == 2 else None
    unidentified = () if how.needs_labels else warn_unidentified(features, bags, stacklevel=4)
    return Fitted(
        model,
        preprocess,
        task.num_classes,
        task.input_shape,
        session.history,
        epoch,
        name,
        {
            "settings": described,
            "baseline": baseline,
            "warnings": [str(problem) for problem in unidentified],
            **({} if picked is None else picked.about()),
        },
    )


def _settings(
    recipe: Recipe | None,
    method: Any,
    network: Any,
    held_out: Any,
    settings: dict[str, Any],
) -> tuple[Recipe, Execution]:
    """The recipe with the arguments of this call applied, and the execution settings."""
    if recipe is not None and not isinstance(recipe, Recipe):
        raise LLPError(f"recipe is a {type(recipe).__name__}; pass an llpkit.training.Recipe")
    of_machine = Execution.settings()
    for name in settings:
        if name not in of_machine and name not in Recipe.settings():
            known = [*inspect.signature(fit).parameters]
            raise LLPError(f"fit has no argument {name!r}; {did_you_mean(name, known)}")
    given = {k: v for k, v in settings.items() if k not in of_machine}
    if isinstance(method, str):
        given["method"] = method
    if isinstance(network, str):
        given["network"] = network
    if held_out is not None and not isinstance(held_out, Bags):
        given["held_out"] = held_out
    execution = Execution(**{k: v for k, v in settings.items() if k in of_machine})
    return (recipe or Recipe()).replace(**given), execution


def _baseline(session: Session, bags: Bags, held_out: Bags | None) -> dict[str, Any]:
    """The constant rate and its log-likelihood; warns if the model does not beat it."""
    training = None
    if session.recipe.measure != "off":
        within = cost(bags.evidence, bags.sizes) + _COST_OF_A_PASS * bags.sizes
        some = bags[even_sample(within, BUDGET)]
        training = _gain(session, some)
    unseen = None if held_out is None else _gain(session, held_out)
    found: dict[str, Any] = {"rate": session.measures.rate.tolist()}
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
    return gain(log_p, bags, session.measures.rate)


def _checkpoint_path(run_dir: str | Path | None, resume: bool) -> Path | None:
    if run_dir is None:
        if resume:
            raise LLPError("resume needs the run_dir that holds the checkpoint")
        return None
    checkpoint = Path(run_dir) / CHECKPOINT
    if checkpoint.exists() and not resume:
        raise LLPError(
            f"run_dir = {str(run_dir)!r} holds the checkpoint of a run; continue it with "
            "resume=True, remove it, or use another directory"
        )
    return checkpoint


def _callbacks(callbacks: Any) -> list[Callback]:
    """One callback or several, as a list."""
    single = isinstance(callbacks, Callback) or not isinstance(callbacks, Iterable)
    given = [callbacks] if single else list(callbacks)
    for i, one in enumerate(given):
        if not isinstance(one, Callback):
            kind = (
                f"the class {one.__name__}" if isinstance(one, type) else f"a {type(one).__name__}"
            )
            raise LLPError(
                f"callbacks[{i}] is {kind}; pass objects of subclasses of llpkit.training.Callback"
            )
    return given


def _check_measures(bags: Bags, held_out: Bags | None, chosen: Approximation) -> None:
    """Warn where likelihoods are approximate; refuse held-out bags that cannot be measured."""
    if held_out is not None and not bool(measurable(held_out).any()):
        raise LLPError(
            "the likelihood of the held_out bags is intractable: they are too large for this "
            "number of classes, and their counts are not exact; train without held_out"
        )
    parts = [bags] if held_out is None else [bags, held_out]
    notes = [choice_note(chosen)] if chosen is not None else []
    notes += filter(None, [approximation_note(*parts)])
    if notes:
        warnings.warn("; ".join(notes), ApproximationWarning, stacklevel=4)


def _task(
    bags: Bags,
    inputs: Inputs,
    method: Method,
    labels: Any,
    recipe: Recipe,
    device: torch.device,
) -> Task:
    first = inputs[:1] if isinstance(inputs, Tensor) else inputs.load([0])
    return Task(
        bags.to(device),
        bags.num_classes,
        tuple(first.shape[1:]),
        None if labels is None else labels_of_rows(labels, bags).to(device),
        min(recipe.batch_size, bags.num_instances),  # some methods allocate a whole batch
        device,
        float(method.lr if recipe.lr is None else recipe.lr),
        recipe.epochs,
    )


def _checksums(
    bags: Bags, held_out: Bags | None, inputs: Inputs, labels: Tensor | None
) -> dict[str, str]:
    return {
        "inputs": of_inputs(inputs),
        "labels": of_tensors(labels),
        "bags": of_bags(bags),
        "held-out bags": of_bags(held_out),
    }
