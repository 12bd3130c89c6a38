"""Runs that train an estimator instead of a network: fitting, saving, loading, inspecting."""

import json
import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from llpkit._threads import threads as limited
from llpkit._threads import threads_for
from llpkit._validation import option
from llpkit.bags import Bags
from llpkit.config import Config
from llpkit.datasets import DataSet
from llpkit.errors import LLPError
from llpkit.files import Checksums, add_checksums, claim, write_text
from llpkit.tables import FeatureEncoder
from llpkit.training import Fitted
from llpkit.training.inputs import Preprocess, check_shape
from llpkit.training.model import DESCRIPTION, ENCODER, read_encoder

ESTIMATOR = "estimator.skops"
SEARCH = "search"
FOLDS = 5


class FittedEstimator(Fitted):
    """A fitted estimator with the interface of a trained network."""

    def __init__(
        self,
        estimator: Any,
        num_classes: int | None,
        num_features: int,
        history: list[dict[str, Any]],
        details: dict[str, Any],
        encoder: FeatureEncoder | None = None,
    ) -> None:
        unchanged = Preprocess(torch.zeros(()), torch.ones(()))
        super().__init__(nn.Identity(), unchanged, num_classes, (num_features,), history)
        self.details, self.encoder = details, encoder
        self.estimator = estimator

    def logits(self, inputs: Any) -> Tensor:
        """Logits ``(n,)`` or ``(n, K)`` of rows ``(n, D)``, or of a data frame."""
        rows = np.asarray(self._inputs(inputs))
        check_shape(rows, self.input_shape)
        with threads_for(rows.size):
            found = self.estimator.decision_function(rows)
        z = torch.from_numpy(np.asarray(found, np.float64))
        # Counts of two classes are solved as binary; the other class has logit zero.
        if self.num_classes is not None and z.dim() == 1:
            z = torch.stack([torch.zeros_like(z), z], 1)
        return z

    def save(self, directory: str | Path) -> Path:
        """Write the estimator with skops and a description as JSON."""
        from llpkit import estimators

        folder = Path(directory)
        names = (ESTIMATOR, DESCRIPTION, *([] if self.encoder is None else [ENCODER]))
        claim(folder, names)
        with warnings.catch_warnings():  # load explains that LightGBM models must be trusted
            warnings.simplefilter("ignore", UserWarning)
            estimators.save(self.estimator, folder / ESTIMATOR)
        about = {
            "num_classes": self.num_classes,
            "num_features": self.input_shape[0],
            "details": self.details,
            "history": self.history,
            "encoder": self.encoder is not None,
        }
        write_text(folder / DESCRIPTION, json.dumps(about, indent=1))
        if self.encoder is not None:
            write_text(folder / ENCODER, self.encoder.to_json())
        add_checksums(folder, names)
        return folder


def train(config: Config, data: DataSet, bags: Bags) -> FittedEstimator:
    """Fit the estimator to the training bags of a table, after a search if one is asked for."""
    from llpkit.estimators.registry import make

    choice, threads = config.estimator, config.execution.threads
    name, options = choice.estimator, choice.estimator_options
    assert name is not None
    if not isinstance(data.inputs, Tensor) or data.inputs.dim() != 2:
        raise LLPError(
            f"{data.name} holds images, and the estimator {name} takes tables of features; choose "
            "a network instead"
        )
    model = make(name, options, config.recipe.seed, threads)
    rows = data.inputs[bags.rows].numpy()
    details: dict[str, Any] = {"estimator": name}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with limited(threads):
                if choice.search is None:
                    model.fit(rows, bags.evidence, bags.bag_index.numpy())
                else:
                    model, details[SEARCH] = _search(config, model, rows, bags)
        except LLPError:
            raise
        except Exception as error:  # classifiers refuse bad options in all kinds of ways
            if not options:
                raise
            values = ", ".join(f"{key}={value!r}" for key, value in options.items())
            raise LLPError(
                f"the estimator {name} with {option('estimator_options')} {values} failed: {error}"
            ) from error
    details["warnings"] = sorted({str(warning.message) for warning in caught})
    return FittedEstimator(model, bags.num_classes, rows.shape[1], history_of(model), details)


def _search(
    config: Config, estimator: Any, rows: np.ndarray[Any, Any], bags: Bags
) -> tuple[Any, dict[str, Any]]:
    """The best candidate, fitted, and the record of the search, which can be saved as JSON."""
    from llpkit import estimators
    from llpkit.estimators.searches import grid_of

    choice = config.estimator
    assert choice.estimator is not None
    assert choice.search is not None
    result = estimators.search(
        estimator,
        rows,
        bags.evidence,
        bags.bag_index.numpy(),
        grid_of(choice.estimator, choice.estimator_options),
        candidates=choice.search,
        n_folds=FOLDS,
        random_state=config.recipe.seed,
    )
    tried = [
        # JSON has no NaN, which is the mean of a candidate that cannot be fitted.
        {key: _finite(value) for key, value in candidate._asdict().items()}
        for candidate in estimators.tried(result)
    ]
    return result.best_estimator_, {"chosen": tried[0]["settings"], "tried": tried}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def with_chosen_options(config: Config, model: Fitted) -> Config:
    """The configuration with the options that a search chose in place of the search."""
    if SEARCH not in model.details:
        return config
    options = {**config.estimator.estimator_options, **model.details[SEARCH]["chosen"]}
    return replace(
        config, estimator=config.estimator.replace(estimator_options=options, search=None)
    )


def history_of(estimator: Any) -> list[dict[str, Any]]:
    """The log-likelihood after every iteration of EM; other estimators have no history.

    It is out of fold where EM cross-fits.
    """
    values = getattr(estimator, "log_likelihoods_", np.empty(0)).tolist()
    out_of_fold = getattr(estimator, "out_of_fold_", False)
    key = "out_of_fold_log_likelihood" if out_of_fold else "log_likelihood"
    return [{"epoch": i, key: value} for i, value in enumerate(values, 1)]


def load(folder: Path, trust: bool = False) -> FittedEstimator:
    """Read what :meth:`FittedEstimator.save` wrote. The files cannot run code.

    ``trust`` also reads LightGBM and XGBoost models, which could crash the process.
    """
    from llpkit import estimators
    from llpkit.estimators.persistence import BOOSTERS, Untrusted

    checked = Checksums.need(folder)
    try:
        about = json.loads(checked.check(DESCRIPTION).read_text(encoding="utf-8"))
        parts = about["num_classes"], about["num_features"], about["history"], about["details"]
        encoder = read_encoder(checked, about)
    except LLPError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LLPError(f"the model in {folder} cannot be read: {error!r}; fit it again") from error
    try:
        estimator = estimators.load(checked.check(ESTIMATOR), trusted=BOOSTERS if trust else ())
    except Untrusted as error:
        if not set(error.names) <= set(BOOSTERS):
            raise
        raise LLPError(
            f"{folder / ESTIMATOR} holds a model of {error.names[0].partition('.')[0]}, and a "
            "crafted file can crash the code that reads it; if you trust where the run comes from, "
            f"pass {option('trust_model', True)}"
        ) from error
    return _Loaded(estimator, *parts, encoder)


class _Loaded(FittedEstimator):
    """A model read from a file, whose parts are valid but may not fit together."""

    def logits(self, inputs: Any) -> Tensor:
        """The logits of the saved model, checked for their shape."""
        inputs = self._inputs(inputs)
        expected = (len(inputs), *([] if self.num_classes is None else [self.num_classes]))
        try:
            z = super().logits(inputs)
        except LLPError:
            raise
        except Exception as error:  # missing parts show only when the estimator is used
            raise LLPError(f"the estimator cannot be used: {error!r}; fit it again") from error
        if z.shape != expected or not z.isfinite().all():
            raise LLPError(
                f"the estimator gives logits of shape {tuple(z.shape)}, not {expected}, or some "
                "that are not finite; fit it again"
            )
        return z
