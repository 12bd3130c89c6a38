"""One call from bags to a fitted model."""

import functools
import inspect
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from llpkit import methods
from llpkit._registry import did_you_mean
from llpkit.auto import pick_method
from llpkit.bags import Bags
from llpkit.errors import BaselineWarning, LLPError
from llpkit.files import locked, place_of
from llpkit.methods import Method
from llpkit.recipe import AUTO, Execution, Recipe
from llpkit.tables.frames import is_frame
from llpkit.training import launch
from llpkit.training.building import precision_on
from llpkit.training.callbacks import Callback
from llpkit.training.check import check_finite, check_table, check_views, divide
from llpkit.training.frames import encode
from llpkit.training.inputs import as_inputs
from llpkit.training.job import Job, check_measures, check_shardable, train
from llpkit.training.model import Fitted
from llpkit.training.processes import placement

CHECKPOINT = "checkpoint.pt"
_Function = TypeVar("_Function", bound=Callable[..., Fitted])

_training = threading.RLock()
"""Held while :func:`fit` runs: all calls draw from torch's global random numbers."""


def _after_fork() -> None:
    global _training  # a fork copies a held lock but not the thread that would release it
    _training = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _one_at_a_time(function: _Function) -> _Function:
    """Let one thread train at a time."""

    @functools.wraps(function)
    def alone(*arguments: Any, **options: Any) -> Fitted:
        with ExitStack() as held:
            held.enter_context(_training)
            # Restored even if the fit fails.
            held.callback(torch.set_num_threads, torch.get_num_threads())
            return function(*arguments, **options)

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
            features ``(rows, D)``, :class:`llpkit.datasets.ImageFiles`, a map-style torch
            ``Dataset`` of tensors (or of tuples that begin with one), or a data frame (pandas,
            polars, pyarrow, Hugging Face). The columns of a frame are encoded as by ``llpkit fit``;
            the model keeps the encoder and predicts for frames.
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
            a CPU the weights equal those of an uninterrupted run bit for bit; on a CUDA device, or
            on another number of processes, they agree up to rounding, because the order of
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
    place = placement(execution)
    watchers = _callbacks(callbacks)
    encoder = None
    if is_frame(inputs):
        inputs, encoder = encode(inputs, bags, stacklevel=4, held_out=held_out)
    data = as_inputs(inputs)
    check_table(bags, len(data))
    if bags.num_instances == 0:
        raise LLPError("the bags hold no instances; there is nothing to learn from")
    picked = None
    if recipe.method == AUTO and (method is None or isinstance(method, str)):
        of_images = len(getattr(data, "shape", (0,) * 4)) == 4  # files are images
        picked = pick_method(bags, recipe, of_images, place.number > 1)
        method = picked.name
        recipe = recipe.replace(method=method)
        if progress and place.first:
            print(f"method: {picked}", file=sys.stderr)
    how = methods.make(recipe.method if method is None else method, recipe.method_options)
    if labels is not None and not how.needs_labels:
        raise LLPError(f'method "{how.key}" learns from counts; pass no labels')
    unseen = held_out if isinstance(held_out, Bags) else recipe.held_out
    if recipe.patience is not None and unseen is None:
        raise LLPError("patience needs held-out bags; pass held_out=0.1, for example")
    # Preprocessing and baseline must not see held-out bags, so they are split off first.
    bags, apart = divide(bags, unseen, recipe.seed)
    check_finite(data, *(part.rows for part in (bags, apart) if part is not None))
    check_views(how, bags, recipe.batch_size)
    job = Job(
        network,
        bags,
        apart,
        data,
        how,
        labels,
        watchers,
        None if run_dir is None else place_of("run_dir", run_dir) / CHECKPOINT,
        resume,
        progress,
        recipe,
        execution,
        place,
        str(precision_on(recipe.precision, place.device)),
        unseen,
    )
    if place.number > 1:
        check_shardable(job)
        if place.first:
            check_measures(job, stacklevel=4)
    model: Fitted
    with _kept_apart(job):
        model, weights = launch.run(place, job.precision, train, job)
    if weights is not None and place.number > 1 and isinstance(network, nn.Module):
        trained = next(iter(weights.values()), None)
        if trained is not None and trained.is_floating_point():
            network.to(trained.dtype)  # as in one process, where Fabric sets the precision
        network.load_state_dict(weights)  # another process trained a copy of it
    verdict = model.details["verdict"]
    if verdict["ok"] is False and place.first:
        warnings.warn(verdict["text"], BaselineWarning, stacklevel=3)
    if not how.needs_labels and place.first:
        from llpkit.statistics import warn_unidentified  # imports SciPy

        features = data if isinstance(data, Tensor) and data.dim() == 2 else None
        unidentified = warn_unidentified(features, bags, stacklevel=4)
        model.details["warnings"] = [str(problem) for problem in unidentified]
    model.details |= {} if picked is None else picked.about()
    model.encoder = encoder
    return model


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


@contextmanager
def _kept_apart(job: Job) -> Iterator[None]:
    """Keep other runs out of the run_dir, and refuse to overwrite a checkpoint."""
    if job.path is None:
        if job.resume:
            raise LLPError("resume needs the run_dir that holds the checkpoint")
        yield
        return
    with locked(job.path) if job.place.first else nullcontext():
        if job.path.exists() and not job.resume:
            raise LLPError(
                f"run_dir = {str(job.path.parent)!r} holds the checkpoint of a run; continue it "
                "with resume=True, remove it, or use another directory"
            )
        yield


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
