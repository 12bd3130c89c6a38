"""A search for the settings of an estimator, in a run."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from llpkit.bags import Bags
from llpkit.config import Config
from llpkit.training import Fitted

SEARCH = "search"
FOLDS = 5


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
        n_folds=FOLDS,
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
