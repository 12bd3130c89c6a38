"""Opening finished runs. The files cannot run code, and damaged ones are rejected."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from llpkit import datasets, training
from llpkit._device import device_of
from llpkit._validation import option
from llpkit.config import Config, Data, Values, check, merge, read
from llpkit.errors import LLPError
from llpkit.files import CHECKSUMS, Checksums
from llpkit.runs import estimator
from llpkit.runs.folder import RunFolder
from llpkit.runs.resume import CONFIG
from llpkit.tables import FeatureEncoder
from llpkit.tables.files import TABLES
from llpkit.training import Fitted
from llpkit.training.model import DESCRIPTION


@dataclass(frozen=True)
class Run:
    """A finished run, read from its directory."""

    folder: Path
    config: Config
    model: Fitted

    @property
    def encoder(self) -> FeatureEncoder | None:
        """The encoder of the table; a run on images has none."""
        return self.model.encoder

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes 0, 1 and so on."""
        return self.model.class_names

    @property
    def files(self) -> list[Path]:
        """The files of the run, which no output may overwrite."""
        return [self.folder / name for name in (CHECKSUMS, *Checksums.need(self.folder).files)]


def open_run(folder: Path, device: str = "auto", *, trust_model: bool = False) -> Run:
    """Read a run directory; ``trust_model`` also reads models that could crash the process."""
    target = device_of(device)
    if is_saved_model(folder):
        raise LLPError(
            f"{folder} is a model saved by model.save, not a run of llpkit fit; open it with "
            "llpkit.load"
        )
    model = open_model(folder, trust_model=trust_model)
    config = check(read(Checksums.need(folder).check(CONFIG)))
    model.network.to(target)
    model.preprocess.to(target)
    return Run(folder, config, model)


def is_saved_model(folder: Path) -> bool:
    """Whether a folder holds a model alone, without the configuration of a run."""
    found = Checksums.read(folder)
    if found is None or (folder / CONFIG).exists():
        return False
    return DESCRIPTION in found.files and CONFIG not in found.files


def open_model(folder: Path, *, trust_model: bool = False) -> Fitted:
    """The model of a run directory, a network or an estimator, with its encoder."""
    if not (folder / CONFIG).exists() and not (folder / CHECKSUMS).exists():
        if RunFolder(folder).kept:
            raise LLPError(
                f"the run {folder} was stopped before its end; continue it with: "
                f"llpkit fit --resume --out {shlex.quote(str(folder))}"
            )
        raise LLPError(f"{folder} is not a run directory; give a folder that llpkit fit wrote")
    if estimator.ESTIMATOR in Checksums.need(folder).files:
        return estimator.load(folder, trust_model)
    return training.load(folder)


def is_table(source: str) -> bool:
    """Whether a source is a file rather than the name of a data set."""
    path = Path(source).expanduser()
    return path.suffix.lower() in TABLES or (path.exists() and source not in datasets.DATASETS)


def data_of(run: Run, source: str | None, options: Values) -> Data:
    """The run's own data, or another table or data set read in the same way.

    Args:
        run: The run.
        source: A table or the name of a data set; ``None`` for the run's own data.
        options: Settings that differ, by paths such as ``data.label``.
    """
    own = run.config.data
    settings = {key: value for key, value in own.to_dict().items() if value}
    if source is not None and is_table(source):
        if own.table is None:
            raise LLPError(
                f"the run {run.folder} learned from the data set {own.dataset}, not from a table; "
                "give the name of a data set"
            )
        settings |= {"table": source}
        settings.pop("counts_table", None)  # it belongs to the bags of the run's own table
    elif source is not None and source != own.dataset:
        settings = {"dataset": source}
    names = {path: option(path.removeprefix("data.")) for path in options}
    names["data.dataset"] = "data set"  # an argument, not an option
    return check(merge({"data": settings}, options), options=names).data
