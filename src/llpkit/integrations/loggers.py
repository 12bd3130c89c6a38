"""Callbacks that log a run to TensorBoard, MLflow or Weights & Biases.

Each logs the settings, one row of metrics per epoch, and the final metrics. A run that resumes in
the same ``run_dir`` continues its log: the file ``loggers.json`` there contains the identifier and
the last epoch of every logger. With several processes, only the first one logs.
"""

import json
import math
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar

from llpkit._package import package
from llpkit._registry import Registry
from llpkit.errors import LLPError
from llpkit.files import path_of, read_regular, write_bytes
from llpkit.training import Callback
from llpkit.training.callbacks import Row, plain_row
from llpkit.training.fingerprint import name_of

STATE = "loggers.json"
FINAL = "final"
"""Prefix of the names of final metrics."""


class Logger(Callback):
    """Base of the loggers; a new one defines ``_open``, ``_log``, ``_measure`` and ``_close``.

    Pass loggers to :func:`llpkit.fit` as ``callbacks``, after those that add metrics. For an
    estimator, call :meth:`log_run` once it is fitted.
    """

    name: ClassVar[str]
    """The name of the logger and of the package that it needs."""

    settings: Mapping[str, Any] = {}
    """Logged in addition to the settings of the training run."""

    def check(self) -> None:
        """Raise an error if the package is not installed."""
        package(self.name, self.name)

    def on_start(self, session: Any) -> None:
        """Log the settings, and epochs that were not logged before a resume."""
        folder = None if session.checkpoint is None else session.checkpoint.path.parent
        self._begin(folder, flat(self.settings, ".") | _settings_of(session))
        self._rows(session.history)

    def on_epoch(self, session: Any, row: Row) -> None:  # noqa: ARG002
        """Log the metrics of an epoch."""
        self._rows([row])

    def on_end(self, session: Any) -> None:
        """Log the metrics of the selected model, if the run is finished."""
        finished = session.stop or len(session.history) >= session.epochs
        if finished and session.history:
            epoch = len(session.history) if session.best is None else session.best["epoch"]
            self._final(session.history[epoch - 1])
        self._end(finished)

    def log_run(
        self,
        history: Iterable[Row],
        measures: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        folder: str | Path | None = None,
    ) -> None:
        """Log a finished run.

        Args:
            history: Rows with an ``epoch`` each; rows that were already logged are skipped.
            measures: Final metrics, perhaps nested.
            settings: Settings of the run.
            folder: The ``run_dir``, if there is one.
        """
        self._begin(None if folder is None else Path(folder), flat(settings or {}, "."))
        self._rows(history)
        self._final(measures or {})
        self._end(True)

    def _begin(self, folder: Path | None, settings: dict[str, Any]) -> None:
        self._file = None if folder is None else folder / STATE
        previous = _read(self._file).get(self.name)
        self._state = previous or {"run": uuid.uuid4().hex[:16], "epoch": 0}
        with self._named():
            run = self._open(folder, self._state["run"], settings, new=previous is None)
        self._state["run"] = run
        self._write()

    def _rows(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if row["epoch"] <= self._state["epoch"]:
                continue
            values = {k: v for k, v in numbers(plain_row(row)).items() if k != "epoch"}
            with self._named():
                self._log(row["epoch"], values)
            self._state["epoch"] = row["epoch"]
            self._write()

    def _final(self, measures: Mapping[str, Any]) -> None:
        final = numbers(flat({FINAL: measures}, "/"))
        if final:
            with self._named():
                self._measure(self._state["epoch"], final)

    def _end(self, finished: bool) -> None:
        with self._named():
            self._close(finished)

    def _write(self) -> None:
        if self._file is not None:
            states = _read(self._file) | {self.name: self._state}
            write_bytes(self._file, json.dumps(states).encode(), sync=False)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the logger in errors of its package."""
        try:
            yield
        except LLPError:
            raise
        except Exception as error:
            raise LLPError(
                f"{self.name} failed: {error}; fix that, or use another logger"
            ) from error

    def _open(self, folder: Path | None, run: str, settings: dict[str, Any], new: bool) -> str:
        """Begin or continue a run, and return its identifier, which may differ from ``run``."""
        raise NotImplementedError

    def _log(self, epoch: int, values: dict[str, float]) -> None:
        raise NotImplementedError

    def _measure(self, epoch: int, values: dict[str, float]) -> None:
        self._log(epoch, values)

    def _close(self, finished: bool) -> None:
        raise NotImplementedError


LOGGERS: Registry[type[Logger]] = Registry("logger")


@LOGGERS.add("tensorboard")
class TensorBoard(Logger):
    """Log to TensorBoard: scalars per epoch, and the settings as hyper-parameters.

    Args:
        log_dir: Folder for the event files; by default ``tensorboard`` in ``run_dir``.
    """

    name = "tensorboard"

    def __init__(self, log_dir: str | Path | None = None) -> None:
        self.log_dir = None if log_dir is None else path_of("log_dir", log_dir)

    def _open(self, folder: Path | None, run: str, settings: dict[str, Any], new: bool) -> str:
        self.check()
        if self.log_dir is None and folder is None:
            raise LLPError("TensorBoard has no folder to write to; give log_dir= or run_dir=")
        home = self.log_dir or (folder or Path()) / "tensorboard"
        board = package("torch.utils.tensorboard", self.name)
        self._writer = board.SummaryWriter(str(home))
        if new:
            from torch.utils.tensorboard.summary import hparams

            plain = {k: "none" if v is None else v for k, v in settings.items()}
            # add_hparams would put them into a separate run.
            for summary in hparams(plain, {"log_likelihood": None}):
                self._writer.file_writer.add_summary(summary)
        return run

    def _log(self, epoch: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, epoch)
        self._writer.flush()

    def _close(self, finished: bool) -> None:  # noqa: ARG002
        self._writer.close()


@LOGGERS.add("mlflow")
class MLflow(Logger):
    """Log to MLflow: metrics per epoch, and the settings as parameters.

    Args:
        experiment: Name of the experiment; it is created if it does not exist.
        run_name: Name of the run; MLflow makes one up by default.
        tracking_uri: Where to log; by default ``MLFLOW_TRACKING_URI``, or MLflow's own default.
    """

    name = "mlflow"

    def __init__(
        self,
        experiment: str = "llpkit",
        run_name: str | None = None,
        tracking_uri: str | None = None,
    ) -> None:
        self.experiment, self.run_name, self.tracking_uri = experiment, run_name, tracking_uri

    def _open(self, folder: Path | None, run: str, settings: dict[str, Any], new: bool) -> str:  # noqa: ARG002
        mlflow = package("mlflow", self.name)
        self._client = mlflow.MlflowClient(tracking_uri=self.tracking_uri)
        if not new:
            self._client.update_run(run, status="RUNNING")
            self._run = run
            return run
        known = self._client.get_experiment_by_name(self.experiment)
        where = self._client.create_experiment(self.experiment) if known is None else None
        made = self._client.create_run(where or known.experiment_id, run_name=self.run_name)
        self._run = str(made.info.run_id)
        for name, value in settings.items():
            self._client.log_param(self._run, name, value)
        return self._run

    def _log(self, epoch: int, values: dict[str, float]) -> None:
        now, metric = int(time.time() * 1000), package("mlflow.entities", self.name).Metric
        metrics = [metric(name, value, now, epoch) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def _close(self, finished: bool) -> None:
        self._client.set_terminated(self._run, "FINISHED" if finished else "KILLED")


@LOGGERS.add("wandb")
class WandB(Logger):
    """Log to Weights & Biases: metrics per epoch, settings as configuration, and a summary.

    Args:
        project: Name of the project; by default ``WANDB_PROJECT``, or ``llpkit``.
        **options: Further arguments of ``wandb.init``, such as ``mode="offline"``.
    """

    name = "wandb"

    def __init__(self, project: str | None = None, **options: Any) -> None:
        self.project, self.options = project, options

    def _open(self, folder: Path | None, run: str, settings: dict[str, Any], new: bool) -> str:  # noqa: ARG002
        project = self.project or os.environ.get("WANDB_PROJECT", "llpkit")
        again = {} if new else {"resume": "allow"}
        options = {"project": project, "id": run, "config": settings, **again, **self.options}
        self._run = package("wandb", self.name).init(**options)
        return run

    def _log(self, epoch: int, values: dict[str, float]) -> None:
        self._run.log(values, step=epoch)

    def _measure(self, epoch: int, values: dict[str, float]) -> None:  # noqa: ARG002
        self._run.summary.update(values)

    def _close(self, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)


def make(names: Iterable[str], settings: Mapping[str, Any]) -> list[Logger]:
    """Loggers by name, for a run with these settings; their packages must be installed."""
    loggers = []
    for name in names:
        logger = LOGGERS[name]()
        logger.check()
        logger.settings = settings
        loggers.append(logger)
    return loggers


def flat(values: Mapping[str, Any], joint: str) -> dict[str, Any]:
    """Nested values by joined names; values other than numbers, text and None become text.

    >>> flat({"data": {"bag": "ward", "options": {}}, "classes": [2, 3]}, ".")
    {'data.bag': 'ward', 'classes': '[2, 3]'}
    """
    flattened: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flattened |= {f"{name}{joint}{k}": v for k, v in flat(value, joint).items()}
        else:
            plain = value is None or isinstance(value, bool | int | float | str)
            flattened[name] = value if plain else str(value)
    return flattened


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers among them.

    >>> numbers({"loss": 0.5, "note": "warm", "log_likelihood": float("nan")})
    {'loss': 0.5}
    """
    real = {k: float(v) for k, v in values.items() if isinstance(v, Real)}
    return {k: v for k, v in real.items() if math.isfinite(v)}


def _settings_of(session: Any) -> dict[str, Any]:
    recipe = {k: name_of(v) for k, v in session.recipe.to_dict().items()}
    rate = float(session.learner.optimizer.param_groups[0]["lr"])
    bags = session.shard.whole
    about = {"instances": bags.num_instances, "bags": len(bags)}
    chosen = {"method": session.method.key, "method_options": dict(session.method.options)}
    return flat({**recipe, **chosen, "lr": rate, **about}, ".")


def _read(file: Path | None) -> dict[str, Any]:
    if file is None or not file.exists():
        return {}
    try:
        found = json.loads(read_regular(file))
        return {k: {"run": str(v["run"]), "epoch": int(v["epoch"])} for k, v in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LLPError(f"{file} is damaged; remove it to start a new log") from error
