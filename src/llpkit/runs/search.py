"""A search for the settings of an estimator, in a run."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from llpkit.bags import Bags
from llpkit.config import Config
from llpkit.report import Cell, Column, Section, Spread, Table
from llpkit.training import Fitted

SEARCH = "search"
_FOLDS = 5
RULE = (
    f"The candidate with the highest mean log-likelihood of held-out training bags, in {_FOLDS} "
    "folds of whole bags, was fitted to all training bags. ± is the standard error over the folds; "
    "the last column compares a candidate with the best one fold by fold."
)


def search(
    name: str,
    estimator: Any,
    options: Mapping[str, Any],
    rows: np.ndarray[Any, Any],
    bags: Bags,
    candidates: int,
    seed: int,
) -> tuple[Any, dict[str, Any]]:
    """The best candidate, fitted, and the record of the search, which can be saved as JSON."""
    from llpkit import estimators
    from llpkit.estimators.searches import grid_of

    found = estimators.search(
        estimator,
        rows,
        bags.evidence,
        bags.bag_index.numpy(),
        grid_of(name, options),
        candidates=candidates,
        n_folds=_FOLDS,
        random_state=seed,
    )
    tried = [
        # JSON has no NaN, which is the mean of a candidate that cannot be fitted.
        {key: _finite(value) for key, value in one._asdict().items()}
        for one in estimators.tried(found)
    ]
    return found.best_estimator_, {"chosen": tried[0]["settings"], "tried": tried}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def settled(config: Config, model: Fitted) -> Config:
    """The configuration with the chosen settings in place of the search."""
    if SEARCH not in model.details:
        return config
    options = {**config.choice.estimator_options, **model.details[SEARCH]["chosen"]}
    return replace(config, choice=config.choice.replace(estimator_options=options, search=None))


def search_section(model: Fitted) -> list[Section]:
    """The table of candidates, if there was a search."""
    if SEARCH not in model.details:
        return []
    tried = model.details[SEARCH]["tried"]
    names = list(tried[0]["settings"])
    columns = [
        *(Column(name, name, "", "") for name in names),
        Column("mean", "Log-likelihood", "mean per held-out bag ± standard error", ".4f"),
        Column("behind", "Behind the best", "± standard error of the difference", ".4f"),
    ]
    rows: list[tuple[str, list[Cell]]] = []
    for place, one in enumerate(tried, 1):
        cells: list[Cell] = [str(one["settings"][name]) for name in names]
        for key, error in (("mean", "standard_error"), ("behind", "behind_error")):
            known = one[key] is not None and (place > 1 or key == "mean")
            cells.append(Spread(one[key], one[error]) if known else None)
        rows.append((str(place), cells))
    return [Section("Search", [Table(columns, rows, of="Place", name="search")], RULE)]
