"""One call from bags to a fitted model."""

import functools
import inspect
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, ParamSpec

from torch import Tensor, nn

from llpkit import methods
from llpkit._registry import did_you_mean
from llpkit._settings import raise_all
from llpkit._threads import torch_threads
from llpkit.auto import pick_method
from llpkit.bags import Bags
from llpkit.errors import BaselineWarning, LLPError
from llpkit.files import locked, path_of
from llpkit.methods import Method
from llpkit.recipe import AUTO, Execution, Recipe
from llpkit.training import launch
from llpkit.training.callbacks import Callback
from llpkit.training.check import (
    check_measurable,
    check_not_empty,
    checked_bags,
    warn_of_approximations,
)
from llpkit.training.check_processes import check_shardable
from llpkit.training.fabric import precision_on, weight_dtype
from llpkit.training.frames import checked_inputs
from llpkit.training.job import Job, train
from llpkit.training.model import Fitted
from llpkit.training.processes import placement

CHECKPOINT = "checkpoint.pt"
_Arguments = ParamSpec("_Arguments")

_training = threading.RLock()
"""Held while :func:`fit` runs: all calls draw from torch's global random numbers."""


def _after_fork() -> None:
    global _training  # a fork copies a held lock but not the thread that would release it
    _training = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _one_at_a_time(function: Callable[_Arguments, Fitted]) -> Callable[_Arguments, Fitted]:
    """Let one thread train at a time, and restore torch's number of threads."""

    @functools.wraps(function)
    def alone(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> Fitted:
        with _training, torch_threads(None):
            return function(*args, **kwargs)

    return alone


def _with_settings(function: Callable[_Arguments, Fitted]) -> Callable[_Arguments, Fitted]:
    """Show every setting in the signature, for help() and editors."""
    own = inspect.signature(function)
    named = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
    settings = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in (Recipe.defaults() | Execution.defaults()).items()
        if name not in own.parameters
    ]
    function.__signature__ = own.replace(  # type: ignore[attr-defined]
        parameters=[*named, *settings]
    )
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
            features ``(rows, D)``, :class:`llpkit.datasets.ImageFiles`, a map-style torch
            ``Dataset`` of tensors (or of tuples that begin with one), or a data frame (pandas,
            polars, pyarrow, Hugging Face). The columns of a frame are encoded as by ``llpkit fit``;
            the model keeps the encoder and predicts for frames.
        method: A key of :data:`llpkit.methods.METHODS`, or your own method. The default,
            ``"auto"``, picks one for you (see :mod:`llpkit.auto`); the choice and its reason are
            printed, and kept in the model's ``details``.
        labels: True labels of the rows, for ``method="supervised"`` only.
        held_out: Other bags of the same table, or the share of ``bags`` to hold out. The weights of
            the epoch with the best held-out log-likelihood are returned.
        callbacks: See :class:`llpkit.training.Callback`.
        run_dir: A checkpoint is written here after every epoch. An existing checkpoint is never
            overwritten unless the run resumes from it, and a directory in use is an error.
        resume: Continue from the checkpoint in ``run_dir``; data and settings must be the same. On
            a CPU the weights equal those of an uninterrupted run bit for bit; on a CUDA device, or
            with a different number of processes, they agree up to rounding, because the order of
            summation varies.
        progress: Show a progress bar.
        recipe: Settings to start from.
        **settings: Any field of :class:`~llpkit.training.Recipe`, which determine the result
            (``epochs``, ``batch_size``, ``lr``, …), and of :class:`~llpkit.training.Execution`,
            which do not (``device``, ``compile``, …). ``devices`` and ``nodes`` train on several
            processes and machines; a script that uses them needs ``if __name__ == "__main__":``.

    Returns:
        A :class:`llpkit.training.Fitted`. ``baseline_log_likelihood`` in its history is the
        log-likelihood if every instance had the same probability. A
        :class:`~llpkit.errors.BaselineWarning` is issued if the final model does not beat it on
        held-out bags by more than two standard errors. Without ``held_out`` it is issued
        only if the model is no better on the training bags, which is a much weaker check.

    >>> import torch, llpkit
    >>> x = torch.randn(200, 2)
    >>> bags = llpkit.random_bags(labels=(x[:, 0] > 0).long(), size=4, generator=0)
    >>> model = llpkit.fit("linear", bags, x, epochs=60, lr=0.1, progress=False)
    >>> bool(((model.predict(x) == 1) == (x[:, 0] > 0)).float().mean() > 0.9)
    True
    """
    recipe, execution = _settings(recipe, method, network, held_out, settings)
    here = placement(execution)
    callbacks = _callbacks(callbacks)
    inputs, encoder = checked_inputs(inputs, bags, stacklevel=4, held_out=held_out)
    check_not_empty(bags)

    choice = None
    if method is None or isinstance(method, str):
        method = recipe.method
    if method == AUTO:
        choice = pick_method(bags, recipe, len(inputs.shape) == 4, here.number > 1)
        method = choice.name
        recipe = recipe.replace(method=method)
        if progress and here.first:
            print(f"method: {choice}", file=sys.stderr)
    method = methods.make(method, recipe.method_options)
    bags, held_out = checked_bags(method, bags, inputs, labels, held_out, recipe)
    raise_all(recipe.problems(held_out))
    if here.number > 1:
        check_shardable(method, bags, recipe, execution)
    method.choose_approximation(bags)
    if held_out is not None:
        check_measurable(held_out)
    if here.first:
        parts = [bags] if held_out is None else [bags, held_out]
        warn_of_approximations(method, *parts, stacklevel=4)

    job = Job(
        network=network,
        bags=bags,
        held_out=held_out,
        inputs=inputs,
        method=method,
        labels=labels,
        callbacks=callbacks,
        checkpoint=None if run_dir is None else path_of("run_dir", run_dir) / CHECKPOINT,
        resume=resume,
        progress=progress,
        recipe=recipe,
        execution=execution,
        placement=here,
        precision=precision_on(recipe.precision, here.device),
    )
    model: Fitted
    with _reserved(job):
        model, weights = launch.run(here, job.precision, train, job)
    if weights is not None:  # several processes trained copies of the user's network
        assert isinstance(network, nn.Module)
        network.to(dtype=weight_dtype(job.precision)).load_state_dict(weights)
    model.encoder = encoder
    if choice is not None:
        model.details |= choice.about()
    if here.first:
        verdict = model.details["verdict"]
        if verdict["ok"] is False:
            warnings.warn(verdict["text"], BaselineWarning, stacklevel=3)
        if not method.needs_labels:
            from llpkit.statistics import warn_unidentified  # imports SciPy

            features = inputs if isinstance(inputs, Tensor) and inputs.dim() == 2 else None
            problems = warn_unidentified(features, bags, stacklevel=4)
            model.details["warnings"] = [str(problem) for problem in problems]
    return model


def _settings(
    recipe: Recipe | None, method: Any, network: Any, held_out: Any, settings: dict[str, Any]
) -> tuple[Recipe, Execution]:
    """The recipe with the arguments of this call applied, and the execution settings."""
    if recipe is not None and not isinstance(recipe, Recipe):
        raise LLPError(f"recipe is a {type(recipe).__name__}; pass an llpkit.training.Recipe")
    for name in settings:
        if name not in Execution.settings() and name not in Recipe.settings():
            known = [*inspect.signature(fit).parameters]
            raise LLPError(f"fit has no argument {name!r}; {did_you_mean(name, known)}")
    execution = {k: v for k, v in settings.items() if k in Execution.settings()}
    changes = {k: v for k, v in settings.items() if k not in execution}
    if isinstance(method, str):
        changes["method"] = method
    if isinstance(network, str):
        changes["network"] = network
    if held_out is not None and not isinstance(held_out, Bags):
        changes["held_out"] = held_out
    return (recipe or Recipe()).replace(**changes), Execution(**execution)


@contextmanager
def _reserved(job: Job) -> Iterator[None]:
    """Lock the run_dir, and refuse to overwrite a checkpoint."""
    if job.checkpoint is None:
        if job.resume:
            raise LLPError("resume needs the run_dir that holds the checkpoint")
        yield
        return
    with locked(job.checkpoint) if job.placement.first else nullcontext():
        if job.checkpoint.exists() and not job.resume:
            raise LLPError(
                f"run_dir = {str(job.checkpoint.parent)!r} holds the checkpoint of a run; continue "
                "it with resume=True, remove it, or use another directory"
            )
        yield


def _callbacks(callbacks: Any) -> list[Callback]:
    """One callback or several, as a list."""
    single = isinstance(callbacks, Callback) or not isinstance(callbacks, Iterable)
    every = [callbacks] if single else list(callbacks)
    for i, one in enumerate(every):
        if not isinstance(one, Callback):
            kind = (
                f"the class {one.__name__}" if isinstance(one, type) else f"a {type(one).__name__}"
            )
            raise LLPError(
                f"callbacks[{i}] is {kind}; pass objects of subclasses of llpkit.training.Callback"
            )
    return every
