"""How did each group vote? 500 precincts, four groups, three outcomes, against other methods.

    python benchmarks/precincts.py [--quick] [--effect 0.3] [--out results/precincts]
    OTHER/bin/python benchmarks/precincts.py --pyei [--effect 0.3] [--out results/precincts]

Precincts have 50 to 2,000 voters, 257,000 in all. Each method gets the number of voters per group
and the votes per outcome of every precinct, or one row per voter, and returns the share of every
outcome in every group with 95 % intervals. Compared: the error, whether the truth is inside, and
the time with the fit. ``--pyei`` runs PyEI's multinomial-Dirichlet model on the same data; it needs
an environment with PyEI and pyarrow and without llpkit. `make tables` then writes the table of
docs/how-to/shares.md.
"""

import argparse
import resource
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import records

GROUPS = ["18-34", "35-49", "50-64", "65+"]
OUTCOMES = ["left", "right", "abstained"]
LOGITS = np.array([[0, -0.8, 0.5], [0, -0.2, -0.3], [0, 0.3, -0.8], [0, 0.7, -1.0]])


class Data(NamedTuple):
    cells: np.ndarray  # (B, G) voters
    votes: np.ndarray  # (B, K)
    truth: np.ndarray  # (G, K) shares


def draw(precincts: int, effect: float, seed: int = 0) -> Data:
    """Precincts whose voters differ by group and, with an effect, by precinct."""
    random = np.random.default_rng(seed)
    sizes = (50 + 1950 * np.linspace(0, 1, precincts) ** 3.2).round().astype(int)
    mix = random.dirichlet([1.2, 1.0, 0.8, 0.6], precincts)
    cells = np.stack([random.multinomial(n, p) for n, p in zip(sizes, mix, strict=True)])
    z = LOGITS + effect * random.normal(size=(precincts, 1, len(OUTCOMES)))
    p = np.exp(z) / np.exp(z).sum(2, keepdims=True)  # (B, G, K)
    each = random.multinomial(cells, p)
    return Data(cells, each.sum(1), each.sum(0) / cells.sum(0)[:, None])


def cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def judged(data: Data, share: Any, low: Any, high: Any, start: tuple[float, float]) -> dict:
    """The measures of a method."""
    inside = (low <= data.truth) & (data.truth <= high)
    return {
        "error": float(np.abs(share - data.truth).mean()),
        "inside": int(inside.sum()),
        "cells": inside.size,
        "width": float((high - low).mean()),
        "seconds": time.perf_counter() - start[0],
        "cpu_seconds": cpu() - start[1],
    }


def llpkit_methods(data: Data) -> dict[str, dict]:
    from llpkit.estimators import LLPLogisticRegression, LLPMixedLogisticRegression
    from llpkit.statistics import goodman, shares

    bags, groups = data.cells.shape
    X = np.tile(np.eye(groups)[:, 1:], (bags, 1))  # one row per precinct and group
    precinct, by = np.repeat(np.arange(bags), groups), np.tile(np.arange(groups), bags)
    times, y = data.cells.ravel(), data.votes[precinct]
    few = X[: 2 * groups], y[: 2 * groups], precinct[: 2 * groups]
    warm = LLPLogisticRegression().fit(*few, multiplicity=times[: 2 * groups])  # compiles kernels
    shares(warm, *few, by=by[: 2 * groups], multiplicity=times[: 2 * groups])
    found: dict[str, dict] = {}
    start = time.perf_counter(), cpu()
    line = goodman(data.cells, data.votes)
    half = 1.96 * line.standard_error
    ends = line.share - half, line.share + half
    found["Goodman's regression"] = judged(data, line.share, *ends, start)
    for name, kind in (
        ("aggregated rows", LLPLogisticRegression),
        ("aggregated rows, random effect", LLPMixedLogisticRegression),
    ):
        start = time.perf_counter(), cpu()
        model = kind(C=np.inf).fit(X, y, precinct, multiplicity=times)
        part = shares(model, X, y, precinct, by=by, multiplicity=times)
        found[f"llpkit, {name}"] = judged(data, part.share, part.low, part.high, start)
    row = np.repeat(np.arange(len(X)), times)
    start = time.perf_counter(), cpu()
    model = LLPLogisticRegression(C=np.inf).fit(X[row], y[row], precinct[row])
    part = shares(model, X[row], y[row], precinct[row], by=by[row])
    found["llpkit, one row per voter"] = judged(data, part.share, part.low, part.high, start)
    start = time.perf_counter(), cpu()
    model = LLPMixedLogisticRegression(C=np.inf).fit(X[row], y[row], precinct[row])
    part = shares(model, X[row], y[row], precinct[row], by=by[row])
    found["llpkit, one row per voter, random effect"] = judged(
        data, part.share, part.low, part.high, start
    )
    return found


def pyei_method(data: Data, draws: int) -> dict[str, dict]:
    from pyei.r_by_c import RowByColumnEI

    start = time.perf_counter(), cpu()
    sizes = data.cells.sum(1)
    model = RowByColumnEI(model_name="multinomial-dirichlet")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(
            (data.cells / sizes[:, None]).T,
            (data.votes / sizes[:, None]).T,
            sizes,
            demographic_group_names=GROUPS,
            candidate_names=OUTCOMES,
            draws=draws,
            tune=draws,
            chains=2,
            cores=1,
            target_accept=0.9,
            random_seed=0,
            progressbar=False,
        )
    ends = np.asarray(model.credible_interval_95_mean_voting_prefs)
    mean = np.asarray(model.posterior_mean_voting_prefs)
    measures = judged(data, mean, ends[:, :, 0], ends[:, :, 1], start)
    return {f"PyEI, multinomial-Dirichlet, 2 chains of {draws} draws": measures}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--effect", type=float, default=0.0, help="deviation between precincts")
    parser.add_argument("--quick", action="store_true", help="20 precincts")
    parser.add_argument("--pyei", action="store_true")
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path("results/precincts"))
    given = parser.parse_args(argv)
    data = draw(20 if given.quick else 500, given.effect)
    about = f"{len(data.cells)} precincts, {data.cells.sum():,} voters"
    about += f", effect {given.effect:g}" if given.effect else ""
    found = pyei_method(data, given.draws) if given.pyei else llpkit_methods(data)
    rows = [{"data": about, "method": name} | measures for name, measures in found.items()]
    file = given.out / "precincts.parquet"
    new = {(about, name) for name in found}
    old = [row for row in records.read(file) if (row["data"], row["method"]) not in new]
    records.write(file, [*old, *rows])
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
