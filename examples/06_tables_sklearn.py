"""Tables with scikit-learn: any classifier, fitted to counts and selected by counts.

The income, age and kind of each household are known, but only the number of yes answers per
district. `fit` takes the district of every row as `groups` and the district's count as `y`. The
answers of single households are used only at the end, to evaluate the models.
"""

import numpy as np
import pandas as pd
import sklearn
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from llpkit.estimators import LLPClassifier, LLPLogisticRegression


def survey(rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Households, the district of each, and their hidden answers."""
    rng = np.random.default_rng(seed)
    age, income = rng.uniform(18, 90, rows), rng.gamma(4.0, 10.0, rows)
    kind = rng.choice(["single", "couple", "family"], rows)
    logit = 4.0 * (np.abs(age - 50) < 15) + 3.0 * (kind == "family") - income / 30 - 2.0
    answers = rng.random(rows) < 1 / (1 + np.exp(-logit))
    table = pd.DataFrame({"age": age, "income": income, "kind": pd.Categorical(kind)})
    table.loc[rng.random(rows) < 0.1, "income"] = np.nan  # some are missing
    return table, rng.permutation(rows) // 8, answers.astype(int)


def main(rows: int = 4000, trees: int = 60) -> dict[str, float]:
    """Accuracy of each model on new households."""
    X, district, answers = survey(rows, seed=0)
    count = np.bincount(district, answers).astype(int)[district]  # the only published number
    fresh, _, truth = survey(2000, seed=1)

    # With routing, a search passes the districts on to fit and score.
    sklearn.set_config(enable_metadata_routing=True)
    try:
        columns = make_column_transformer(
            (StandardScaler(), ["age", "income"]), (OneHotEncoder(), ["kind"])
        )
        linear = make_pipeline(columns, SimpleImputer(), LLPLogisticRegression())
        linear.fit(X, count, groups=district)

        boosting = LLPClassifier(
            HistGradientBoostingClassifier(
                max_iter=trees, categorical_features="from_dtype", early_stopping=False
            ),
            random_state=0,
        )
        search = GridSearchCV(
            boosting,
            {"estimator__max_leaf_nodes": [4, 16]},
            cv=GroupKFold(3),  # whole districts are held out; the score is their log-likelihood
        )
        search.fit(X, count, groups=district)
    finally:
        sklearn.set_config(enable_metadata_routing=False)

    model = search.best_estimator_
    print(f"held-out districts chose {search.best_params_}")
    phi = model.posterior(X, count, district)[:, 1]
    first = np.flatnonzero(district == 0)
    print(
        f"district 0 has {count[first[0]]} yes; posterior of each household: {phi[first].round(2)}"
    )
    supervised = HistGradientBoostingClassifier(max_iter=trees, categorical_features="from_dtype")
    supervised.fit(X, answers)
    models = {"linear": linear, "boosting": model, "boosting on answers": supervised}
    accuracy = {name: float((m.predict(fresh) == truth).mean()) for name, m in models.items()}
    print(accuracy)
    return accuracy


if __name__ == "__main__":
    main()
