"""The E-step: the engine against enumeration, in one run and on the same bags.

The peers (in peers.py):

- enumeration, as published (Baručić & Kybic, ICIP 2022): every bag keeps its label space H, the
  C(n, y) label combinations with its count. The product of Bernoulli probabilities is evaluated
  combination by combination and normalised to alpha; the posterior is H' alpha. The label spaces
  are built beforehand and not timed.
- enumeration, vectorised: the same sum as two matrix products for all bags of one size and count;
  label spaces and groups are built beforehand.
- log-space recursion, torch: forward-backward over the counts, bags padded to the longest.

Times are wall-clock after a warm-up, with the engine's checks of its arguments; the methods take
turns, so that none has the quieter machine.
"""

import argparse
import json
import math
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from peers import METHODS, NUMBA, PUBLISHED, RECURSION, TORCH, VECTORISED, Run, Sample, draw
from records import machine

from llpkit.likelihood import posterior

Curves = dict[str, dict[int, float]]  # method -> n -> seconds per instance
ENGINE = (TORCH, NUMBA)
COLOURS = dict(zip(METHODS, ("#777777", "#777777", "#a8741a", "#2b6cb0", "#c0392b"), strict=True))
DEMANDS = [  # number, least, most
    (f"{NUMBA}: times faster than {PUBLISHED}", 3000, math.inf),
    (f"{TORCH}: times faster than {PUBLISHED}", 100, math.inf),
    (f"{NUMBA}: instances/s on 150,000 bags", 20_000_000, math.inf),
    *((f"{name}: steepest exponent of time per instance", -math.inf, 0.6) for name in ENGINE),
    *((f"{name}: seconds for a bag of 100,000", 0, 5) for name in ENGINE),
    *((f"{name}: GB for a bag of 100,000", 0, 1) for name in ENGINE),
]


class Pace(NamedTuple):
    """How long to measure: every run fills its budget in each round, or is called once."""

    rounds: int
    budget: float


def race(runs: Mapping[Any, Run], pace: Pace) -> dict[Any, list[float]]:
    """Seconds of every call, after one that is not counted."""
    times: dict[Any, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(pace.rounds):
        for name, run in runs.items():
            end = time.perf_counter() + pace.budget
            while True:
                begin = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - begin)
                if time.perf_counter() > end:
                    break
    return times


def agree(runs: Mapping[Any, Run], tolerance: float = 1e-10) -> float:
    """Largest difference of a posterior from the first; refuses to compare unlike things."""
    truth = next(iter(runs.values()))()
    gaps = {name: float(np.abs(run() - truth).max()) for name, run in runs.items()}
    for name, gap in gaps.items():
        if not gap <= tolerance:
            raise RuntimeError(f"{name} is off by {gap:.1e}; the bound is {tolerance:.0e}")
    return max(gaps.values())


class Report:
    """Markdown, printed as it grows, and the numbers that demands are made of."""

    def __init__(self) -> None:
        self.text = ""
        self.numbers: dict[str, float] = {}

    def say(self, line: str) -> None:
        print(line, flush=True)
        self.text += line + "\n"

    def table(self, header: list[str], rows: Iterable[list[str]]) -> None:
        for row in [header, ["---"] + ["---:"] * (len(header) - 1), *rows]:
            self.say("| " + " | ".join(row) + " |")
        self.say("")


def seconds(value: float) -> str:
    units = (("s", 1.0), ("ms", 1e3), ("µs", 1e6), ("ns", 1e9))
    unit, scale = next((u for u in units if value * u[1] >= 1), units[-1])
    return f"{value * scale:.3g} {unit}"


def side_by_side(report: Report, sample: Sample, names: list[str], pace: Pace) -> None:
    runs, building = {}, {}
    for name in names:
        begin = time.perf_counter()
        runs[name] = METHODS[name](sample)
        building[name] = time.perf_counter() - begin
    bags, instances = len(sample.y), len(sample.z)
    report.say(f"{bags:,} bags, {instances:,} instances; posteriors agree to {agree(runs):.0e}.\n")
    times = race(runs, pace)
    typical = {name: median(t) for name, t in times.items()}
    peers = [name for name in names if name not in ENGINE]
    rows = []
    for name, t in typical.items():
        report.numbers[f"{name}: instances/s on {bags:,} bags"] = instances / t
        report.numbers[f"{name}: seconds on {bags:,} bags"] = t
        rows.append([name, seconds(t), seconds(min(times[name])), f"{instances / t / 1e6:.2f}"])
        for peer in peers:
            ratio = report.numbers[f"{name}: times faster than {peer}"] = typical[peer] / t
            rows[-1].append(f"{ratio:,.0f}×" if ratio >= 10 else f"{ratio:.2g}×")
    against = [f"speed against {peer}" for peer in peers]
    report.table(["method", "median", "best", "million instances/s", *against], rows)
    if PUBLISHED in names:
        whole = typical[PUBLISHED] + building[PUBLISHED]
        report.say(
            f"Building the published label spaces takes {seconds(building[PUBLISHED])} more, once; "
            f"with it the numba path is {whole / typical[NUMBA]:,.0f} times faster.\n"
        )


def growth(report: Report, rng: np.random.Generator, last: int, total: int, pace: Pace) -> Curves:
    """Time per instance against the bag size, and how fast it grows."""
    runs: dict[tuple[str, int], Run] = {}
    instances: dict[tuple[str, int], int] = {}
    sizes = [2**k for k in range(1, last + 1)]
    for n in sizes:
        sample = draw(rng, np.full(total // n, n))
        sample = sample._replace(y=torch.full_like(sample.y, n // 2))  # the worst case for all
        # Peers get as many bags as they manage in a fraction of a second, if any.
        few = total // 4 // math.comb(n, n // 2)
        bags = {PUBLISHED: few, VECTORISED: 16 * few, RECURSION: 64 * total // n**2}
        for name, prepare in METHODS.items():
            some = sample.first(bags.get(name, total))
            if len(some.y):
                runs[name, n], instances[name, n] = prepare(some), len(some.z)
    curves: Curves = {name: {} for name in METHODS}
    for (name, n), t in race(runs, pace).items():
        curves[name][n] = statistics.median(t) / instances[name, n]
    report.table(
        ["n", *METHODS],
        ([f"{n:,}", *(seconds(c[n]) if n in c else "" for c in curves.values())] for n in sizes),
    )
    for name in ENGINE:
        n, t = np.log2([point for point in curves[name].items() if point[0] >= 64]).T
        slopes = [np.polyfit(n[i : i + 4], t[i : i + 4], 1)[0] for i in range(len(n) - 3)]
        report.numbers[f"{name}: steepest exponent of time per instance"] = float(max(slopes))
        report.say(
            f"{name}, n ≥ 64: time per instance grows as n^{np.polyfit(n, t, 1)[0]:.2f}; over the "
            f"steepest three octaves as n^{max(slopes):.2f}, over the steepest single one as "
            f"n^{np.diff(t).max():.2f}.\n"
        )
    return curves


def figure(curves: Curves, footer: str, file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    fig, axes = plt.subplots(figsize=(8, 5.4), layout="constrained")
    beside: dict[str, Any] = {"textcoords": "offset points", "xytext": (7, 0), "va": "center"}
    above: dict[str, Any] = {
        "textcoords": "offset points",
        "xytext": (0, 7),
        "va": "bottom",
        "ha": "center",
    }
    for name, curve in curves.items():
        n, t = np.array(list(curve.items())).T
        axes.loglog(n, t, "o-", color=COLOURS[name], markersize=3.5, linewidth=1.6)
        place = above if name.startswith("enumeration") else beside
        axes.annotate(name.replace(", ", ",\n"), (n[-1], t[-1]), color=COLOURS[name], **place)
    most = max(curves[TORCH])
    n = np.array([most / 16, most])
    slope = 12 * curves[TORCH][most] * (n / most) ** 0.6
    axes.loglog(n, slope, ":", color="#777777", linewidth=1)
    axes.annotate("steepest allowed,\n$n^{0.6}$", (n[1], slope[1]), color="#777777", **beside)
    axes.set_xlim(1.6, 10 * most)
    axes.set_ylim(top=6 * axes.get_ylim()[1])
    axes.set_xticks(ticks := [4**k for k in range(1, 8) if 4**k <= most], [f"{k:,}" for k in ticks])
    axes.yaxis.set_major_formatter(lambda t, _: seconds(t * 1.0001))
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("instances in a bag, n")
    axes.set_title("Time of the E-step per instance, count n / 2", loc="left")
    fig.supxlabel(footer, fontsize=6, color="#666666")
    fig.savefig(file, dpi=150)
    plt.close(fig)


def memory(field: Literal["VmHWM", "VmRSS"]) -> int:
    """Bytes of this process: the peak, or now."""
    status = Path("/proc/self/status")  # on Linux ru_maxrss begins with the parent's peak
    if status.exists():
        return 1024 * int(re.findall(rf"{field}:\s*(\d+)", status.read_text())[0])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def one_bag(backend: Literal["torch", "numba"], n: int) -> None:
    """Time and memory of one bag, for a separate process; prints JSON."""
    z = torch.from_numpy(np.random.default_rng(n).normal(0, 1.5, n))
    posterior(z[:1000], [500], [0, 1000], backend=backend)
    before = memory("VmRSS")
    times = race(
        {backend: lambda: posterior(z, [n // 2], [0, n], backend=backend).numpy()}, Pace(3, 0)
    )
    spent, peak = min(times[backend]), memory("VmHWM")
    print(json.dumps({"time": spent, "added": peak - before, "whole": peak}))


def large_bags(report: Report, sizes: list[int]) -> None:
    rows = []
    for name in ENGINE:
        for n in sizes:
            command = [sys.executable, __file__, "--one-bag", name.split()[1], str(n)]
            answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            megabytes = [f"{answer[key] / 1e6:,.0f} MB" for key in ("added", "whole")]
            rows.append([name, f"{n:,}", seconds(answer["time"]), *megabytes])
            report.numbers[f"{name}: seconds for a bag of {n:,}"] = answer["time"]
            report.numbers[f"{name}: GB for a bag of {n:,}"] = answer["added"] / 1e9
    report.table(["method", "instances", "time", "peak memory added", "whole process"], rows)


def classes(report: Report, rng: np.random.Generator, shrink: int, pace: Pace) -> None:
    rows = []
    for bags, n, k in ((200 // shrink, 16, 10), (1000 // shrink, 8, 4)):
        z = torch.from_numpy(rng.normal(size=(bags * n, k)))
        y = torch.from_numpy(rng.multinomial(n, np.full(k, 1 / k), bags))
        sample = Sample(z, y, torch.arange(0, bags * n + 1, n))
        runs = {name: METHODS[name](sample) for name in ENGINE}
        agree(runs)
        spent = {name: median(t) for name, t in race(runs, pace).items()}
        for name, t in spent.items():
            rows.append([name, f"{bags:,}", f"{n}", f"{k}", seconds(t), f"{bags * n / t:,.0f}"])
            rows[-1].append(f"{spent[TORCH] / t:.3g}×")
    header = ["method", "bags", "n", "K", "median", "instances/s", f"speed against {TORCH}"]
    report.table(header, rows)


def demands(report: Report, wanted: Iterable[tuple[str, float, float]]) -> bool:
    """Print every demand with the measured value; returns whether all are met."""
    rows, all_met = [], True
    for name, least, most in wanted:
        value = report.numbers.get(name, math.nan)
        bound = f"≥ {least:,.0f}" if least > 0 else f"≤ {most}"
        met = least <= value <= most
        all_met &= met
        shown = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
        rows.append([name, shown, bound, "yes" if met else "NO"])
    report.table(["demand", "measured", "bound", "met"], rows)
    return all_met


def processor() -> tuple[float, float, float]:
    """Seconds so far, times cores, of this process with its children, of all, and of idleness."""
    own, stat = sum(os.times()[:4]), Path("/proc/stat")
    if not stat.exists():
        return own, own, 0.0
    ticks = [int(x) / os.sysconf("SC_CLK_TCK") for x in stat.read_text().split()[1:9]]
    return own, sum(ticks), ticks[3] + ticks[4]


def measure(quick: bool, seed: int, out: Path, script: str = "estep.py") -> Report:
    flags = f"{' --quick' if quick else ''} --seed {seed}"
    made_by = f"python benchmarks/{script}{flags}\n{machine()}"
    rng, report, begin = np.random.default_rng(seed), Report(), processor()
    few, many, pace = (200, 2_000, Pace(3, 0.02)) if quick else (1_913, 150_000, Pace(7, 0.2))
    report.say(f"# E-step\n\n```text\n{made_by}\n```\n")
    report.say("## Bags of 1 to 12 instances\n")
    side_by_side(report, draw(rng, rng.integers(1, 13, few)), list(METHODS), pace)
    side_by_side(report, draw(rng, rng.integers(1, 13, many)), [VECTORISED, *ENGINE], pace)
    report.say("## Growth: time per instance against the bag size, y = n / 2, median\n")
    curves = growth(
        report, rng, *((10, 2**12) if quick else (14, 2**17)), pace=Pace(3 if quick else 15, 0.01)
    )
    report.say("## One bag, y = n / 2, in a process of its own, best of three calls\n")
    large_bags(report, [10_000] if quick else [25_000, 100_000, 400_000])
    report.say("## K classes, exact\n")
    classes(report, rng, 20 if quick else 1, pace)
    own, total, idle = np.subtract(processor(), begin)
    report.say(f"Other processes took {max(total - idle - own, 0) / total:.0%} of the processor.")
    out.mkdir(parents=True, exist_ok=True)
    figure(curves, made_by, out / "growth.png")
    return report


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few, small bags: a trial, no demands")
    parser.add_argument("--seed", type=int, default=0, help="seed of the bags (default: 0)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("llpkit-estep"),
        metavar="DIR",
        help="folder for estep.md and growth.png (default: llpkit-estep)",
    )
    parser.add_argument("--one-bag", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one_bag:
        one_bag(options.one_bag[0], int(options.one_bag[1]))
        return
    report = measure(options.quick, options.seed, options.out)
    if not options.quick:
        report.say("\n## Demands\n")
        demands(report, DEMANDS)
    (options.out / "estep.md").write_text(report.text)


if __name__ == "__main__":
    main()
