"""The tables of speed.md."""

from datetime import datetime
from statistics import fmean, median, stdev

from estep import seconds
from paper_tables import BIRDS, METHODS, results
from scipy import stats
from speed import BIRDS as CASE
from table_kit import Rows, code, numbers, recorded, table

from llpkit.experiments import Record
from llpkit.report.spread import true_minus

CPU, GPU = "speed-cpu/speed.json", "speed-gpu/speed.json"


@table
def speed_e_step() -> Rows:
    """The E-step against enumeration."""
    found, peer = numbers(CPU), "enumeration, as published"
    rows = [["1,913 bags of 1 to 12 instances", "time"]]
    rows[0].append("speed relative to the published enumeration")
    for title, name in (
        ("enumeration of label combinations, as published", peer),
        ("the same, vectorised over bags of the same size and count", "enumeration, vectorised"),
        ("engine, torch backend", "engine, torch path"),
        ("engine, compiled backend", "engine, numba path"),
    ):
        time = seconds(found[f"{name}: seconds on 1,913 bags"])
        rows.append([title, time, f"{found[f'{name}: times faster than {peer}']:,.0f}"])
    return rows


@table
def speed_by_size() -> Rows:
    """Instances per second of the kernels by bag size."""
    found = numbers(GPU)
    rows = [["n", "billion instances per second, float32", "float64"]]
    for size in ("1 to 12", "1", "2", "4", "8", "16", "32", "64", "128", "16,384"):
        each = (found[f"{size}: triton, {kind}, instances/s"] for kind in ("float32", "float64"))
        rows.append([size, *(f"{pace / 1e9:.3g}" for pace in each)])
    return rows


@table
def speed_methods() -> Rows:
    """Epochs relative to a supervised one, on one H200."""
    found = numbers(GPU)
    rows = [["method", "epoch relative to supervised, bird/cat"]]
    names = ("mle", "direct", "amle", "dllp", "llp-gan")
    return [*rows, *([code(n), f"{found[f'{CASE}: {n} over supervised']:.3f}"] for n in names)]


@table
def speed_versions() -> Rows:
    """What was tried to make an epoch fast, what was predicted, and what came out."""
    found = numbers(GPU)
    usual = found[f"{CASE}: supervised epoch, s"]
    bound = usual / found[f"{CASE}: supervised over arithmetic floor"]
    rows = [["version", "epoch, s", "relative to the bound", "predicted", "what we learned"]]
    for title, name, predicted, learned in (
        (
            "a plain loop (bfloat16, channels-last, fused Adam)",
            "bare loop on labels",
            "",
            "a hundred short kernels per step: the GPU waits for the host",
        ),
        (
            "batches of one shape, inputs prepared for many batches at once",
            "supervised, no graph",
            "0.3 to 0.5",
            "still limited by the host",
        ),
        (
            "the step captured as a CUDA graph (**the default**)",
            "supervised",
            "0.17",
            "the host no longer matters: the kernels' own times add up to the same. Batch norm's "
            "sums over small images reach only a fraction of the bandwidth, which the prediction, "
            "scaled from large images, missed",
        ),
        (
            "… and compiled (`compile=True`)",
            "supervised, compiled",
            "0.19",
            "batch norm, ReLU, pooling and dropout are fused; the products take 0.089 s of it. "
            "Compilation takes 20 s",
        ),
        (
            "… captured, not compiled, in float32 (TF32 products)",
            "supervised, float32 (TF32 products)",
            "",
            "",
        ),
        ("… captured, batches of 256", "supervised, batches of 256", "", ""),
        ("… captured, batches of 512", "supervised, batches of 512", "", ""),
    ):
        time = found[f"{CASE}: {name} epoch, s"]
        rows.append([title, f"{time:.3f}", f"{time / bound:.1f}", predicted, learned])
    return rows


def calls() -> list[list[Record]]:
    """The runs of each call of `llpkit reproduce` at equal rates, in the order of their start."""
    found: dict[str, list[Record]] = {}
    for record in results(f"{BIRDS}-equal-rates").records["convergence"]:
        found.setdefault(record.environment["command"], []).append(record)
    return sorted(found.values(), key=lambda records: min(map(began, records)))


def began(record: Record) -> float:
    """When a run began, in seconds."""
    return datetime.fromisoformat(record.environment["started"]).timestamp()


@table
def speed_side_by_side() -> Rows:
    """Epochs of runs that share a GPU; a call lasts from its first start to its last end."""
    every = calls()
    rows = [["runs at once", "epoch of `supervised` and `mle`, s", "GPU seconds per epoch", "gain"]]
    rows[0].append("wall seconds per run, all methods")
    service = "multi-process service"  # the records do not have it
    alone = 0.0
    for jobs, title, places in (
        (1, "", (0,)),
        (4, ", taking turns", (1,)),
        (4, f", {service}", (2,)),
        (7, f", {service}", (3,)),
        (5, f" of `mle-pass`, {service}", (4, 5)),
    ):
        some = [every[place] for place in places]
        runs = [run for call in some for run in call]
        usual = [run for run in runs if run.method in ("supervised", "mle")]
        epoch = median(median(run.history["seconds"]) for run in usual or runs)
        each = epoch / jobs
        alone = alone or each
        gain = f"{alone / each:.2f}" if usual and jobs > 1 else ""
        walls = [max(began(r) + r.seconds for r in call) - min(map(began, call)) for call in some]
        wall = f"{sum(walls) / len(runs):.1f}" if jobs > 1 else ""
        rows.append([f"{jobs}{title}", f"{epoch:.3f}", f"{each:.3f}", gain, wall])
    return rows


@table
def speed_accuracy() -> Rows:
    """Accuracy with each speed-up undone: differences by fold, with a 95 % interval."""
    ways = {way: way for way in ("float32", "no graph", "no graph, batches of any shape")}
    ways |= {"compiled": "compiled", "E-step by a pass": "`mle-pass`"}
    found: dict[str, dict[str, dict[tuple[int, int], float]]] = {}
    for run in recorded("speed-gpu/accuracy.parquet"):
        own = found.setdefault(run["method"], {}).setdefault(run["arm"], {})
        own[run["fold"], run["seed"]] = 100 * run["accuracy"]
    rows = [["method", "fast, % (sd over folds)", *ways.values()]]
    for name in METHODS:
        if name not in found:
            continue
        fast = found[name]["fast"]
        row = [code(name), f"{fmean(fast.values()):.2f} ({stdev(fast.values()):.2f})"]
        for way in ways:
            gaps = [v - fast[key] for key, v in found[name].get(way, {}).items() if key in fast]
            reach = stats.t.ppf(0.975, len(gaps) - 1) * stats.sem(gaps) if gaps else 0.0
            row.append(true_minus(f"{fmean(gaps):+.2f} ± {reach:.2f}") if gaps else "")
        rows.append(row)
    return rows
