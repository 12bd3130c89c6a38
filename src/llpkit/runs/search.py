"""A search for the settings of an estimator, in a run."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from llpkit.bags import Bags
from llpkit.config import Config
from llpkit.training import Fitted

SEARCH = "search"
FOLDS = 5


def search(
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
