"""The source of an export: a run, a trained network or a fitted estimator."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

import llpkit
from llpkit.errors import LLPError
from llpkit.estimators import BaseLLP
from llpkit.export.encoder import columns_by_input
from llpkit.files import CHECKSUMS, Checksums
from llpkit.runs import Run, is_saved_model, open_run
from llpkit.runs.estimator import FittedEstimator
from llpkit.tables import FeatureEncoder
from llpkit.tables.columns import NumberColumn, VectorColumn
from llpkit.tables.parsing import MISSING
from llpkit.training import Fitted


@dataclass(frozen=True)
class Source:
    """A model with its class names and, if it has them, its encoder and its run."""

    model: Fitted | BaseLLP
    class_names: tuple[str, ...]
    encoder: FeatureEncoder | None = None
    run: Run | None = None

    @property
    def is_network(self) -> bool:
        """Whether the model is a network."""
        return isinstance(self.model, Fitted) and not isinstance(self.model, FittedEstimator)

    @property
    def estimator(self) -> BaseLLP:
        """The estimator, unless the model is a network."""
        found = self.model.estimator if isinstance(self.model, FittedEstimator) else self.model
        if not isinstance(found, BaseLLP):
            raise LLPError(f"the model is a {type(found).__name__}, which cannot be exported")
        return found

    @property
    def files(self) -> list[Path]:
        """Files that must not be overwritten: the run's files and its table."""
        if self.run is None:
            return []
        folder, table = self.run.folder, self.run.config.data.table
        own = [folder / name for name in (CHECKSUMS, *Checksums.need(folder).files)]
        return own + ([] if table is None else [Path(table).expanduser()])

    def predict_proba(self, inputs: Any) -> np.ndarray[Any, Any]:
        """The model's own probabilities, ``(n, K)``."""
        return np.asarray(self.model.predict_proba(inputs))

    def about(self, levels: bool = False) -> dict[str, Any]:
        """The metadata of a file: names of classes and columns, and the version.

        With ``levels``, it includes what programs that take no text need: the levels of categories
        and the words for missing values.
        """
        found: dict[str, Any] = {
            "llpkit_version": llpkit.__version__,
            "class_names": self.class_names,
        }
        if self.encoder is not None:
            found["columns"] = [
                {"input": name, "column": column.name, "kind": _kind(column)}
                | ({"levels": column.levels} if levels and hasattr(column, "levels") else {})
                for name, column in columns_by_input(self.encoder).items()
            ]
            found |= {"missing": MISSING} if levels else {}
        return found


def _kind(column: Any) -> str:
    if isinstance(column, VectorColumn):
        return "list"
    return "number" if isinstance(column, NumberColumn) else "category"


def source_of(model: Any) -> Source:
    """The source of a run, a directory of a run or a model, a network or an estimator."""
    if isinstance(model, str | os.PathLike):
        folder = Path(model)
        model = llpkit.load(folder) if is_saved_model(folder) else open_run(folder, "cpu")
    if isinstance(model, Run):
        return Source(model.model, model.class_names, model.encoder, model)
    if isinstance(model, Fitted):
        return Source(model, model.class_names, model.encoder)
    if isinstance(model, BaseLLP):
        check_is_fitted(model)
        return Source(model, tuple(map(str, model.classes_)))
    raise LLPError(
        f"model is a {type(model).__name__}; give a run directory, what llpkit.fit returned or a "
        "fitted estimator of llpkit.estimators"
    )
