"""Standard errors of the coefficients of a run, and shares of groups from runs and tables."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from llpkit._arrays import refuse, whole_array
from llpkit._validation import option
from llpkit.bags import Bags
from llpkit.config import Data
from llpkit.errors import LLPError
from llpkit.evidence import Evidence
from llpkit.runs.data import divide
from llpkit.runs.estimator import FittedEstimator
from llpkit.runs.opening import Run
from llpkit.runs.reading import table_bags
from llpkit.statistics import Shares, Summary, shares, summary
from llpkit.statistics.summary import effect_note
from llpkit.tables import FeatureEncoder, Table
from llpkit.tables.columns import CategoryColumn
from llpkit.tables.selection import choose_features

WEAK = 1000.0
"""C of the models fitted here: a penalty that only decides between redundant columns."""
MOST_GROUPS = 100


def is_likelihood_model(model: object) -> bool:
    """Whether standard errors follow from a model's likelihood."""
    estimator = getattr(model, "estimator", None)
    return all(hasattr(estimator, name) for name in ("coef_", "intercept_", "fit_intercept", "C"))


def summarise(
    model: FittedEstimator,
    inputs: torch.Tensor,
    bags: Bags,
    encoder: FeatureEncoder | None,
    covariance: Any = "observed",
    level: float = 0.95,
) -> Summary:
    """Standard errors of a fitted estimator, in the units of the table's columns."""
    encoded = summary(model.estimator, *_xy(inputs, bags), covariance=covariance, level=level)
    if encoder is None or not model.estimator.fit_intercept:
        return encoded
    block, names = _units(encoder)
    several = encoded.adapter is not None and len(encoded.adapter.classes) > 2
    classes = model.details.get("class_names") or list(range(len(model.estimator.classes_)))
    prefixes = [f"{name}: " for name in classes[1:]] if several else [""]
    to_units = np.kron(np.eye(len(prefixes)), block)
    extra = len(encoded.names) - to_units.shape[1]  # the deviation of a random effect
    to_units = np.pad(to_units, ((0, extra), (0, extra)))
    to_units[len(to_units) - extra :, to_units.shape[1] - extra :] = np.eye(extra)
    terms = [f"{prefix}{name}" for prefix in prefixes for name in names]
    return encoded.turned(to_units, terms + encoded.names[len(encoded.names) - extra :])


def _xy(inputs: torch.Tensor, bags: Bags) -> tuple[Any, Evidence, Any]:
    """Rows, evidence and the bag of each row, as the functions of llpkit.statistics take them."""
    rows = inputs[bags.rows].numpy().astype(np.float64)
    return rows, bags.evidence, bags.bag_index.numpy()


def _units(encoder: FeatureEncoder) -> tuple[Any, list[str]]:
    """The linear map from intercept and weights of the features to coefficients, and their names.

    Coefficients are per unit of a number, and of a category compared with its first level.
    """
    width = 1 + len(encoder.feature_names)
    constant = np.zeros(width)
    constant[0] = 1.0
    rows, names, start = [constant], ["(intercept)"], 1
    for column in encoder.columns:
        labels = column.feature_names
        for i, name in enumerate(labels):
            row = np.zeros(width)
            if not isinstance(column, CategoryColumn):
                scales, means = np.atleast_1d(column.scale), np.atleast_1d(column.mean)
                number = i < len(scales)  # else it marks missing values
                row[start + i] = 1 / scales[i] if number else 1.0
                if number:
                    constant[start + i] -= means[i] / scales[i]
            elif i == 0:  # the most frequent level, which the others are compared with
                constant[start] += 1.0
                continue
            else:
                row[start + i], row[start] = 1.0, -1.0
                name = f"{name} (against {labels[0].removeprefix(column.name + ' = ')})"
            rows.append(row)
            names.append(name)
        start += len(labels)
    return np.stack(rows), names


def run_summary(run: Run, data: Data, covariance: str, level: float, own: bool) -> Summary:
    """Standard errors of a run; from its training bags if the data are its ``own``."""
    if not is_likelihood_model(run.model):
        raise LLPError(
            f"{run.folder} is not a logistic regression, the only model with standard errors from "
            f"its likelihood; fit one with {option('estimator', 'logistic')} or "
            f"{option('estimator', 'mixed-logistic')}"
        )
    assert isinstance(run.model, FittedEstimator)
    _, inputs, _, part = _read(run, data, own)
    result = summarise(run.model, inputs, part, run.encoder, covariance, level)
    return replace(result, title=f"{result.title}, {run.folder}")


def run_shares(
    run: Run, data: Data, by: str, covariance: str, level: float, own: bool, replicates: int | None
) -> Shares:
    """Shares by a column of a table, over all its bags, from a run."""
    if not isinstance(run.model, FittedEstimator):
        raise LLPError(
            f"{run.folder} is a network, which has no standard errors; fit an estimator instead, "
            f"such as {option('estimator', 'mixed-logistic')}"
        )
    model = run.model.estimator
    table, inputs, bags, part = _read(run, data, own)
    uncertainty: dict[str, Any]
    if replicates is not None:
        uncertainty = {"covariance": "bootstrap", "replicates": replicates, "progress": True}
    elif is_likelihood_model(run.model):
        fitted = summary(model, *_xy(inputs, part), covariance=covariance)  # type: ignore[arg-type]
        uncertainty = {"covariance": fitted}
    else:
        raise LLPError(
            f"{run.model.details['estimator']} has no standard errors of its own; refit it to "
            f"bootstrap samples, with {option('bootstrap', 100)} for example, or fit "
            f"{option('estimator', 'mixed-logistic')}"
        )
    code = group_values(table, by)[bags.rows.numpy()]
    result = shares(model, *_xy(inputs, bags), by=code, level=level, **uncertainty)
    return replace(result, by=by, classes=list(run.class_names))


def _read(run: Run, data: Data, own: bool) -> tuple[Table, torch.Tensor, Bags, Bags]:
    """The table, its features, all its bags, and those that standard errors are computed on."""
    if data.table is None or run.encoder is None:
        raise LLPError(
            f"{run.folder} was not trained on a table of features, which this command requires"
        )
    table = Table.read(data.table)
    bags, _ = table_bags(run, data, table)
    part = divide(bags, run.config)["training"] if own else bags
    return table, run.encoder.apply(table), bags, part


def group_values(table: Table, by: str) -> Any:
    """The values of a column as words, ``(R,)``; empty ones are "missing"."""
    words = table.words(by).to_pylist()
    values = np.array(["missing" if word is None else word for word in words], object)
    number = len(set(words))
    if number > MOST_GROUPS:
        raise LLPError(
            f"column {by!r} has {number:,} different values; give a column of up to {MOST_GROUPS} "
            "groups, such as age ranges"
        )
    return values.astype(str)


def table_shares(
    path: Path,
    *,
    bag: str,
    count: Sequence[str],
    by: str,
    multiplicity: str | None = None,
    features: Sequence[str] = (),
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    effect: bool = True,
    covariance: str = "observed",
    level: float = 0.95,
) -> tuple[Shares, list[str]]:
    """Fit a logistic regression to the counts of a table: the shares by a column, and notes."""
    from llpkit.estimators import LLPLogisticRegression, LLPMixedLogisticRegression

    table = Table.read(path)
    code = group_values(table, by)
    groups, _ = table.groups(bag)
    columns = [_whole_column(table, name) for name in count]
    y = columns[0] if len(columns) == 1 else np.stack(columns, 1)
    times = None if multiplicity is None else _whole_column(table, multiplicity)
    taken = dict.fromkeys(count, "the counts") | {bag: "the bag ids"}
    if multiplicity is not None:
        taken[multiplicity] = "how many instances a row stands for"
    chosen, notes = choose_features(
        table, features or None, drop, taken=taken, wanted={*categorical}
    )
    encoder = FeatureEncoder.fit(table, chosen, categorical=categorical)
    X = encoder.apply(table).numpy().astype(np.float64)
    kind = LLPMixedLogisticRegression if effect else LLPLogisticRegression
    model = kind(C=WEAK).fit(X, y, groups, multiplicity=times)
    fitted = summary(model, X, y, groups, covariance=covariance, multiplicity=times)  # type: ignore[arg-type]
    result = shares(
        model, X, y, groups, by=code, level=level, covariance=fitted, multiplicity=times
    )
    classes = list(count) if len(count) > 1 else [f"not {count[0]}", count[0]]
    if isinstance(model, LLPMixedLogisticRegression):
        notes.append(effect_note(model))
    return replace(result, by=by, classes=classes), notes


def _whole_column(table: Table, name: str) -> Any:
    """A column of non-negative whole numbers."""
    remedy = f"give non-negative whole numbers, for {option('count')} and {option('multiplicity')}"

    def entry(value: Any, row: int) -> str:
        return f"{table.cell(row, name)} = {value:g}"

    values = whole_array(table.numbers(name), name, remedy, entry)
    refuse(values < 0, lambda row: f"{entry(values[row], row)} is negative; {remedy}", "rows")
    return values
