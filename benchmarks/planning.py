"""Does planning predict what happens? Predicted against simulated standard errors by bag size.

    python benchmarks/planning.py                  # writes results/planning/standard_errors.parquet
    python benchmarks/planning.py --bags 100 --replicates 20 --sizes 1,8 --out DIR

For every bag size, data sets are drawn from a logistic model, fitted without penalty, and the
standard deviation of the estimates is compared with the prediction of llpkit.statistics.plan. Sizes
that the file has already are not repeated. `make tables` then writes the table of
docs/how-to/planning.md.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import records

from llpkit.estimators import LLPLogisticRegression
from llpkit.statistics import Model, plan

WEIGHTS = np.array([1.0, -0.7, -0.4])  # of two features, and the intercept
SIZES = (1, 2, 4, 8, 16, 32, 64)


class Row(NamedTuple):
    """One bag size; standard errors and accuracies, predicted and simulated."""

    size: int
    bags: int
    replicates: int
    predicted_0: float
    simulated_0: float
    predicted_1: float
    simulated_1: float
    predicted_intercept: float
    simulated_intercept: float
    predicted_accuracy: float
    simulated_accuracy: float
    efficiency: float

    @property
    def ratio(self) -> float:
        """Simulated over predicted standard errors of the slopes, geometric mean."""
        pairs = ((self.simulated_0, self.predicted_0), (self.simulated_1, self.predicted_1))
        return float(np.exp(np.mean([np.log(s / p) for s, p in pairs])))


def population(rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Features, one of them skewed, and the probability of every instance."""
    X = np.stack([rng.normal(size=rows), rng.gamma(2.0, 0.7, size=rows) - 1.4], 1)
    return X, 1 / (1 + np.exp(-(X @ WEIGHTS[:-1] + WEIGHTS[-1])))


def simulate(size: int, bags: int, replicates: int, seed: int) -> Row:
    rng = np.random.default_rng([seed, size])
    X, p = population(20_000, rng)
    model = Model(np.column_stack([X, np.ones(len(X))]), WEIGHTS, ("normal", "skewed"))
    found = plan(X, [size], model=model, seed=seed)[size]
    new, p_new = population(20_000, rng)
    estimates, accuracy = [], []
    for _ in range(replicates):
        X, p = population(size * bags, rng)
        labels = rng.random(len(p)) < p
        groups = np.repeat(np.arange(bags), size)
        counts = np.bincount(groups, labels).astype(int)
        fitted = LLPLogisticRegression(C=1e8, tol=1e-6).fit(X, counts[groups], groups)
        estimates.append(np.append(fitted.coef_[0], fitted.intercept_[0]))
        # The expected accuracy, without the noise of new labels.
        accuracy.append(np.where(fitted.predict(new) == 1, p_new, 1 - p_new).mean())
    predicted = found.standard_errors(bags)
    simulated = np.std(estimates, axis=0, ddof=1)
    pairs = [float(v) for pair in zip(predicted, simulated, strict=True) for v in pair]
    return Row(
        size,
        bags,
        replicates,
        *pairs,
        found.accuracy(bags),
        float(np.mean(accuracy)),
        found.efficiency,
    )


def main(argv: list[str] | None = None) -> list[Row]:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--bags", type=int, default=400)
    parser.add_argument("--replicates", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/planning"))
    options = parser.parse_args(argv)
    path = options.out / "standard_errors.parquet"
    rows = [Row(**row) for row in records.read(path)]
    for size in map(int, options.sizes.split(",")):
        done = {(r.size, r.bags, r.replicates) for r in rows}
        if (size, options.bags, options.replicates) not in done:
            rows.append(simulate(size, options.bags, options.replicates, options.seed))
            records.write(path, (row._asdict() for row in sorted(rows)))
            print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    main()
