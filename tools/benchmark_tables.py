"""The tables of classical.md, table-results.md, which-method.md and many-classes.md."""

from collections.abc import Sequence
from statistics import fmean, stdev

import which_method
from estep import seconds
from records import Row
from scipy.stats import spearmanr
from table_kit import Rows, code, recorded, table

from llpkit.report.spread import Spread

# Classical estimators and tables


@table
def classical() -> Rows:
    """Accuracy of the classical estimators."""
    found = {
        (row["data"], row["estimator"], row.get("n")): f"{row['accuracy']:.3f}"
        for row in recorded("classical/classical.parquet")
    }
    sets, sizes = ("breast cancer", "digits, 3 or 8"), (2, 8, 32, 64)
    rows = [[""]]
    for name in ("breast cancer", "digits 3 or 8"):
        rows[0] += [f"{name}, n = {sizes[0]}", *map(str, sizes[1:])]
    for name in (
        "LLPLogisticRegression",
        "DLLPClassifier",
        "MeanMapClassifier",
        "InvCalClassifier",
        "AlterSVMClassifier",
    ):
        rows.append([code(name), *(found[data, name, size] for data in sets for size in sizes)])
    bounds = [[found[data, "supervised logistic regression", None], "", "", ""] for data in sets]
    return [*rows, ["supervised", *bounds[0], *bounds[1]]]


def adult_auc() -> dict[tuple[str, str], Spread]:
    """AUC on Adult over seeds, by estimator and bags."""
    found: dict[tuple[str, str], list[float]] = {}
    for run in recorded("adult/runs.parquet"):
        found.setdefault((run["estimator"], run["bags"]), []).append(run["auc"])
    return {key: Spread(fmean(values), stdev(values)) for key, values in found.items()}


@table
def adult() -> Rows:
    """AUC on Adult by bag size."""
    found = adult_auc()
    bags = ["2", "4", "8", "16", "32", "64", "128", "occupation, education"]
    names = ["EM, boosting", "EM, forest", "EM, logistic", "exact logistic"]
    names += ["DLLP", "mean map", "InvCal", "alter-∝SVM"]
    rows = [["estimator", "n = 2", *bags[1:-1], "by key"]]
    return [*rows, *([n, *(f"{found[n, each].mean:.3f}" for each in bags)] for n in names)]


@table
def adult_out_of_fold() -> Rows:
    """AUC with and without out-of-fold predictions at n = 8."""
    found = adult_auc()
    rows = [["classifier inside EM", "out of fold", "in-sample"]]
    for title, name in (
        ("forest, fully grown, started from the proportions", "EM, whole trees, from proportions"),
        ("forest, fully grown", "EM, whole trees"),
        ("forest, five rows per leaf", "EM, forest"),
        ("boosting, 100 trees", "EM, boosting"),
        ("boosting, 100 trees, from 2,000 rows of the table", "EM, boosting, 2,000 rows"),
    ):
        rows.append([title, *(f"{found[each, '8']:.3f}" for each in (name, f"{name}, in-sample"))])
    return rows


@table
def selection() -> Rows:
    """Selection without labels: test AUC of each choice, of the best, and of all candidates."""
    cells: dict[tuple[str, int], list[Row]] = {}
    for cell in recorded("selection/cells.parquet"):
        cells.setdefault((cell["data"], cell["size"]), []).append(cell)
    rows = [["data", "n", "bags", "proportions", "labels", "best", "average", "rank"]]
    last = ""
    for (data, size), here in cells.items():
        found = [
            fmean(cell["test_auc"][best(cell[mark])] for cell in here)
            for mark in ("bags", "proportion", "labels", "test_auc")
        ]
        found.append(fmean(fmean(cell["test_auc"]) for cell in here))
        rank = fmean(spearmanr(cell["bags"], cell["labels"]).statistic for cell in here)
        name = "" if data == last else data
        rows.append([name, str(size), *(f"{value:.4f}" for value in found), f"{rank:.2f}"])
        last = data
    return rows


def best(values: Sequence[float]) -> int:
    """The place of the largest value."""
    return max(range(len(values)), key=values.__getitem__)


@table
def table_scale() -> Rows:
    """Seconds of EM around boosting by number of rows."""
    rows = [["rows", "bags", "M-step", "predictions", "engine and bookkeeping", "start"]]
    rows[0] += ["all but the M-step, relative to it", "peak memory, GB"]
    parts = ("m_step", "prediction", "rest", "start")
    for row in recorded("table-scale/table_scale.parquet"):
        share = sum(row[part] for part in parts[1:]) / row["m_step"]
        cells = [f"{row['rows']:,}", f"{row['bags']:,}", *(f"{row[part]:.2f}" for part in parts)]
        rows.append([*cells, f"{100 * share:.0f} %", f"{row['peak_gb']:.1f}"])
    return rows


# Which method


def distances(fresh: bool) -> Rows:
    """One row per problem: what `auto` picks, what is best, and the distance."""
    every = recorded("which-method/runs.parquet")
    runs = [which_method.Run(**row) for row in every]
    picks = {run.problem: run for run in runs if run.auto}
    rows = [["problem", "measure", "`auto` picks", "its score", "best", "score"]]
    rows[0] += ["below the best", "seeds"]
    for name, problem in which_method.PROBLEMS.items():
        if problem.fresh != fresh or name not in picks:
            continue
        pick, found = picks[name], which_method.scores(runs, name)
        other, top, mine = which_method.best_beside(found, pick.method)
        scale, digits = (1, 3) if pick.measure == "AUC" else (100, 1)
        gap = scale * (top - mine)
        far = "" if gap <= scale * which_method.LIMIT else " (too far)"
        measure = "AUC" if pick.measure == "AUC" else "accuracy, %"
        row = [problem.title, measure, code(pick.method), f"{scale * mine:.{digits}f}"]
        row += [code(other), f"{scale * top:.{digits}f}", f"{gap:.{digits}f}{far}"]
        rows.append([*row, str(len(found[pick.method].keys() & found[other].keys()))])
    return rows


@table
def which_method_fresh() -> Rows:
    """Problems whose scores changed no rule."""
    return distances(fresh=True)


@table
def which_method_used() -> Rows:
    """Problems that the rules were chosen by."""
    return distances(fresh=False)


# K classes


@table
def classes_error() -> Rows:
    """Errors of posteriors and log-likelihoods against the exact ones."""
    found = {
        (row["n"], row["K"], row["sd"], row["approximation"]): row
        for row in recorded("classes/classes.parquet", part="error")
    }
    rows = [["", "sd", '`"sinkhorn"`, mean / largest', '`"saddlepoint"`, mean / largest']]
    rows[0] += [
        'log-likelihood off by, `"sinkhorn"`, nats',
        '`"saddlepoint"`, mean / largest, nats',
    ]
    for n, classes, spreads in (
        (16, 10, (1, 3, 6)),
        (24, 4, (1, 3, 6)),
        (64, 4, (1, 6)),
        (256, 3, (1, 6)),
    ):
        for sd in spreads:
            bound, near = (found[n, classes, sd, name] for name in ("sinkhorn", "saddlepoint"))
            title = f"n = {n}, K = {classes}" if sd == 1 else ""
            cells = [few(row["mean"], row["largest"]) for row in (bound, near)]
            cells += [few(bound["nats"]), few(near["nats"], near["most nats"])]
            rows.append([title, str(sd), *cells])
    return rows


def few(*values: float) -> str:
    """Numbers with two digits."""
    return " / ".join(f"{value:#.2g}".replace("e-0", "e-") for value in values)


@table
def classes_cost() -> Rows:
    """Time of an E-step of 50,000 instances."""
    found = {
        (row["approximation"], row["backend"], row["n"], row["sd"]): seconds(row["ms"] / 1e3)
        for row in recorded("classes/classes.parquet", part="cost")
    }
    rows = [["E-step of 50,000 instances, ten classes, one core", "n = 16", "64", "256"]]
    for title, name, backend, confident in (
        ('`"sinkhorn"` (torch)', "sinkhorn", "torch", False),
        ('`"saddlepoint"` (Numba)', "saddlepoint", "numba", False),
        (
            '`"saddlepoint"` (Numba), confident logits (sd n / 4)',
            "saddlepoint",
            "numba",
            True,
        ),
        ("exact (Numba)", "exact, extrapolated", "numba", False),
    ):
        keys = [(name, backend, n, n / 4 if confident else 1.5) for n in (16, 64, 256)]
        rows.append([title, *(found.get(key, "intractable") for key in keys)])
    return rows
