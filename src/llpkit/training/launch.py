"""Starting the processes of a run through Lightning Fabric, and handling their failures.

``torchrun`` and ``srun`` start the processes themselves. Otherwise this process starts them, waits,
and gets the first one's result. If one fails, it ends the others and raises the cause.
"""

import contextlib
import logging
import multiprocessing
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from llpkit import plugins
from llpkit._validation import naming, option, options_named
from llpkit.errors import Diverged, LLPError, LostProcess
from llpkit.progress import in_notebook
from llpkit.recipe import Execution
from llpkit.training.fabric import make_fabric, quiet
from llpkit.training.processes import Placement, Processes, placement

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Function = Callable[..., Any]

_GRACE = 3.0
"""Seconds that a process waits after losing another, so that its watcher sees the cause first."""

_GLOO = "gloo"
"""In the path that begins the messages of gloo's errors. When a process of the group is gone, torch
raises a ``DistError`` with NCCL or its store, but with gloo only a ``RuntimeError``, which only its
text identifies. Asking the group instead would hang while the other processes are alive."""


def run(placement: Placement, precision: Any, function: Function, *arguments: Any) -> Any:
    """Call ``function(fabric, *arguments)`` in every process; returns the first one's result.

    Processes that torchrun or Slurm started all get a result.
    """
    if placement.number == 1:
        return function(make_fabric(placement, precision), *arguments)
    _check_startable(placement)
    fabric = make_fabric(placement, precision)
    if placement.external:
        with quiet(), watching_others():
            return fabric.launch(function, *arguments)
    return _start(fabric, function, arguments)


@contextlib.contextmanager
def together(execution: Execution) -> Iterator[Processes]:
    """All processes that torchrun or Slurm started, before they train; else only this one."""
    here = placement(execution)
    if not here.external:
        yield Processes()
        return
    fabric = make_fabric(here, None)
    with quiet(), watching_others():
        fabric.launch()
        yield Processes(fabric)


def _check_startable(placement: Placement) -> None:
    """Refuse notebooks, and scripts that would start processes endlessly."""
    if placement.external:
        return
    if hasattr(sys, "ps1") or in_notebook():
        raise LLPError(
            f"{option('devices')} = {placement.devices}: a notebook or an interactive session "
            "cannot start training processes; put the call in a script, or run llpkit fit --devices"
        )
    # Private, but Python's own check for this case, in multiprocessing.spawn, reads it too.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise LLPError(
            "a training process imported the script, and that started training again; put the call "
            'of llpkit.fit under if __name__ == "__main__":'
        )


def _start(fabric: "Fabric", function: Function, arguments: tuple[Any, ...]) -> Any:
    from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

    with tempfile.TemporaryDirectory(prefix="llpkit-") as name, _own_environment(), _children():
        call = _Call(function, arguments, Path(name))
        # It logs which processes it ends; the error that follows gives the reason.
        logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)
        try:
            try:
                fabric.launch(call)
            except (ProcessRaisedException, ProcessExitedException) as error:
                raise _cause(error, call.folder) from error
        except (pickle.UnpicklingError, EOFError) as error:  # only a part of the error was written
            raise LostProcess(
                "a training process failed, and its error could not be written to "
                f"{tempfile.gettempdir()}; is the disk full? Continue from the checkpoint of the "
                "last epoch with resume=True"
            ) from error
        # What the function raises arrives as one of the above, so the arguments cannot be pickled.
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise LLPError(
                f"the training processes cannot get a copy of an argument ({error}); define its "
                "classes and functions at the top level of a module"
            ) from error
        # Trusted, because our own process wrote it.
        return torch.load(call.folder / "result", weights_only=False)


class _Call:
    """A function call in another process, which writes its result or error to a folder."""

    def __init__(self, function: Function, arguments: tuple[Any, ...], folder: Path) -> None:
        self.plugins = _Plugins()  # first: what follows may need them to be unpickled
        self.function, self.arguments, self.folder = function, arguments, folder
        self.style = naming()

    def __call__(self, fabric: "Fabric") -> None:
        mark = self.folder / f"began-{fabric.global_rank}"
        mark.touch()
        try:
            with options_named(self.style), watching_others():
                result = self.function(fabric, *self.arguments)
        except Exception as error:
            _write_error(error, self.folder / f"error-{fabric.global_rank}")
            raise
        except KeyboardInterrupt:  # torch would end this process without an error
            mark.rename(self.folder / f"interrupted-{fabric.global_rank}")
            raise
        if fabric.local_rank == 0:
            torch.save(result, self.folder / "result")


class _Plugins:
    """Loads the plugins of this process in the one that unpickles it, and silences Fabric."""

    def __reduce__(self) -> Any:
        return _begin, (plugins.loaded(),)


def _begin(sources: list[str]) -> None:
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    plugins.load(sources)


@contextlib.contextmanager
def watching_others() -> Iterator[None]:
    """Turn torch's errors about a lost process into a :class:`LostProcess`."""
    try:
        yield
    except LLPError:
        raise
    except RuntimeError as error:
        if not (isinstance(error, torch.distributed.DistError) or _GLOO in str(error)):
            raise
        time.sleep(_GRACE)
        raise LostProcess(
            "another process of this run ended, so this one stops; see its message, and continue "
            "from the checkpoint of the last epoch, if there is one, with resume=True"
        ) from error


def _write_error(error: Exception, path: Path) -> None:
    try:
        content = pickle.dumps(error)
        pickle.loads(content)
    except Exception:  # an exception of the user's that cannot be pickled
        content = pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    path.write_bytes(content)


def _cause(error: Any, folder: Path) -> Exception:
    """The error of the process that failed first, not of those that lost it."""
    errors = [pickle.loads(path.read_bytes()) for path in sorted(folder.glob("error-*"))]
    causes = [e for e in errors if not isinstance(e, LostProcess)]
    # If one process diverged, NaN weights may cause other errors in the others.
    causes.sort(key=lambda e: not isinstance(e, Diverged))
    if causes and isinstance(causes[0], LLPError | MemoryError | torch.OutOfMemoryError):
        return causes[0]
    if causes or (not errors and not hasattr(error, "exit_code")):
        return RuntimeError(str(error))  # a bug: with the traceback of the process
    signal, rank = getattr(error, "signal_name", None), error.error_index
    if not any(folder.iterdir()) and signal is None:
        return LLPError(
            "the training processes could not start (see their messages above); a script that uses "
            'devices or nodes has to call llpkit.fit under if __name__ == "__main__":'
        )
    end = f"ended with exit code {getattr(error, 'exit_code', 1)}"
    if signal is not None:
        end = f"was killed by {signal}"
    if interrupted := sorted(folder.glob("interrupted-*")):
        end, rank = "was interrupted", int(interrupted[0].name.split("-")[1])
    return LostProcess(
        f"process {rank} of the run {end}, so the others were stopped; continue from "
        "the checkpoint of the last epoch, if there is one, with resume=True, on any number of "
        "processes"
    )


@contextlib.contextmanager
def _own_environment() -> Iterator[None]:
    """Restore the variables that Fabric sets, so that the next run chooses its own port."""
    names = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK")
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def _children() -> Iterator[None]:
    """End the processes that were started here, however this block ends."""
    before = set(multiprocessing.active_children())
    try:
        yield
    finally:
        for child in set(multiprocessing.active_children()) - before:
            child.kill()  # checkpoints are written atomically
            child.join()
