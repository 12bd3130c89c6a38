"""The E-step on a GPU: the engine's kernels against its torch path and two peers, in one run.

The peers (in peers.py):

- enumeration, as published (Baručić & Kybic, ICIP 2022): NumPy on the CPU, which is where it runs;
  a few bags, label spaces built beforehand.
- log-space recursion, torch: forward-backward over the counts on the card, bags padded to the
  longest, in float32.

The kernels get 2^26 instances, a quarter for bags of more than 32. The torch path and the
recursion, which are made of many small operations, are tried on 2^21 and on 2^24 instances (the
recursion on as many as fit four gigabytes) and shown at the better of the two.

Every method gives log-probability and posterior of all instances, or the posterior where it gives
no more, and is compared with the torch path before it is timed. Times on the card are between
CUDA events, after warm-up, median over the calls; the calls take turns on several sets of logits,
which together are larger than the card's cache.
"""

import argparse
import json
import math
import re
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from estep import Report, seconds
from peers import Sample, padded_recursion, published
from records import machine
from torch import Tensor

from llpkit.likelihood import Evidence, log_prob, log_prob_and_posterior

TRITON32, TRITON64 = "triton, float32", "triton, float64"
TORCH, RECURSION, PUBLISHED = "torch path", "padded recursion", "enumeration, as published"
TOLERANCE = {TRITON32: 2e-5, TRITON64: 1e-12, TORCH: 1e-12, RECURSION: 1e-2, PUBLISHED: 1e-10}
SPREADS = (6, 15)
"""Standard deviations of logits besides 1.5: in a trained network they are far apart."""
Run = Callable[[], Any]


class Scale(NamedTuple):
    """How much to measure."""

    instances: int
    """For the kernels, a quarter for large bags; the torch path gets two million at most."""
    largest: int
    """Bags of ``2^0 … 2^largest``."""
    calls: int
    sets: int
    """Sets of logits that take turns."""
    huge: int
    """Instances of a bag that is alone."""


def draw(
    sizes: Tensor, generator: torch.Generator, half: bool = False, spread: float = 1.5
) -> Sample:
    """Float32 logits of a standard deviation; counts of labels drawn from them, or ``n / 2``."""
    offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    number, device = int(offsets[-1]), sizes.device
    z = spread * torch.randn(number, device=device, generator=generator)
    if half:
        return Sample(z, sizes // 2, offsets)
    labels = (torch.rand(number, device=device, generator=generator) < z.sigmoid()).float()
    counts = torch.segment_reduce(labels, "sum", offsets=offsets, initial=0)
    return Sample(z, counts.long(), offsets)


def engine(backend: str, dtype: torch.dtype, sample: Sample, sets: int) -> tuple[Run, Run]:
    """The call to be checked, on the sample; and that to be timed, on logits that take turns."""
    evidence = Evidence.exact(sample.y)

    def call(z: Tensor) -> tuple[Tensor, Tensor]:
        options: Any = {"backend": backend, "validate": False}
        return log_prob_and_posterior(z, evidence, sample.offsets, **options)

    turns: Iterator[Tensor] = cycle([sample.z.to(dtype).roll(i) for i in range(sets)])
    return lambda: call(sample.z.to(dtype)), lambda: call(next(turns))


def clock(run: Run, calls: int, on_card: bool) -> float:
    """Median seconds of a call."""
    run(), run()
    if not on_card:
        spent = []
        for _ in range(calls):
            begin = time.perf_counter()
            run()
            spent.append(time.perf_counter() - begin)
        return median(spent)
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(calls)]
    torch.cuda.synchronize()
    for begin, end in marks:
        begin.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return median(begin.elapsed_time(end) / 1e3 for begin, end in marks)


def check(name: str, actual: Tensor, expected: Tensor, n: int) -> None:
    """Refuse to time what is wrong; ``n`` is the size of the largest bag."""
    actual, expected = actual.double().cpu(), expected.double().cpu()
    gap = float(((actual - expected).abs() / expected.abs().clamp(min=1)).max())
    # A log-probability is the small difference of sums over the bag, whose rounding grows with it.
    bound = TOLERANCE[name] * max(1, n / 10_000)
    if not gap <= bound:
        raise RuntimeError(f"{name} is off by {gap:.1e}; the bound is {bound:.0e}")


def paces(sample: Sample, scale: Scale, few: int) -> dict[str, float]:
    """Instances per second of every method that can take these bags; ``few`` for enumeration."""
    on_card, n = sample.z.is_cuda, int(sample.offsets.diff().max())
    mean = len(sample.z) / len(sample.y)
    sizes = sorted({min(2**k, len(sample.z)) for k in (21, 24)})
    parts = [sample.first(max(1, int(size / mean))) for size in sizes]
    check_part = parts[0].first(max(1, int(2**18 / mean)))
    evidence = Evidence.exact(check_part.y)
    truth = log_prob_and_posterior(
        check_part.z.double(), evidence, check_part.offsets, backend="torch"
    )
    rows = len(check_part.z)
    runs: list[tuple[str, Run, int]] = []
    kinds: list[tuple[str, str, torch.dtype, Sample]]
    kinds = [(TORCH, "torch", torch.float32, part) for part in parts]
    if on_card:
        kinds.append((TRITON32, "triton", torch.float32, sample))
        kinds.append((TRITON64, "triton", torch.float64, sample))
    for name, backend, dtype, some in kinds:
        checked, timed = engine(backend, dtype, some, scale.sets)
        log_p, phi = checked()
        tolerant = TRITON32 if dtype == torch.float32 else name  # rounded to float32 at the end
        check(tolerant, log_p[: len(check_part.y)], truth[0], n)
        check(tolerant, phi[:rows], truth[1], n)
        runs.append((name, timed, len(some.z)))

    fit = 2**31 // n**2 if n <= 2048 else 0
    for part in parts if fit else []:
        some = part.first(fit)
        recursion = padded_recursion(*some)
        both = min(rows, len(some.z))
        check(RECURSION, recursion()[:both], truth[1][:both], n)
        runs.append((RECURSION, recursion, len(some.z)))
    found: dict[str, float] = {}
    for name, run, number in runs:
        slow = name in (TORCH, RECURSION)
        pace = number / clock(run, max(3, scale.calls // (4 if slow else 1)), on_card)
        found[name] = max(found.get(name, 0.0), pace)
    if few:
        some = Sample(*(x.cpu() for x in check_part.first(few)))
        enumerate_ = published(some._replace(z=some.z.double()))
        phi = torch.from_numpy(enumerate_())
        check(PUBLISHED, phi, truth[1][: len(phi)], n)
        found[PUBLISHED] = len(some.z) / clock(enumerate_, 1, on_card=False)
    return found


def step_times(device: torch.device, generator: torch.Generator, calls: int) -> dict[str, float]:
    """Seconds of log-probability and gradient of a training step's batch."""
    sizes = torch.tensor([12, 1, 6, 3, 9, 10, 4, 7, 2, 5, 11, 8, 6, 6, 3, 9, 4, 10, 7, 5])
    z, counts, offsets = draw(sizes.to(device), generator)
    z.requires_grad_()
    evidence = Evidence.exact(counts)

    def step(backend: Any) -> Run:
        def run() -> Tensor:
            loss = -log_prob(z, evidence, offsets, backend=backend, validate=False).mean()
            return torch.autograd.grad(loss, z)[0]

        return run

    times = {f"{TORCH}, called": clock(step("torch"), calls, device.type == "cuda")}
    if device.type == "cuda":
        run = step("triton")
        times["triton, called"] = clock(run, calls, on_card=True)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            held = run()
        graph.replay()
        torch.testing.assert_close(held, step("torch")(), rtol=0, atol=2e-5)

        def replays() -> None:
            for _ in range(100):
                graph.replay()

        times["triton, graph replayed"] = clock(replays, max(3, calls // 10), on_card=True) / 100
    return times


def times_faster(ratio: float) -> str:
    """Rounded to two digits: one call of a slow peer is not more precise."""
    digits = max(0, math.floor(math.log10(ratio)) - 1)
    return f"{round(ratio, -digits):,.0f}×" if ratio >= 10 else f"{ratio:.1f}×"


def sizes_of_small(number: int, device: torch.device, generator: torch.Generator) -> Tensor:
    return torch.randint(1, 13, (number,), device=device, generator=generator)


def measure(device: torch.device, scale: Scale, seed: int, made_by: str) -> Report:
    generator, report = torch.Generator(device).manual_seed(seed), Report()
    report.say(f"# E-step on {device.type}\n\n```text\n{made_by}\n```\n")
    begin = time.perf_counter()
    names = [*([TRITON32, TRITON64] if device.type == "cuda" else []), TORCH, RECURSION, PUBLISHED]
    header = [*names, f"{names[0]} against {RECURSION}", f"against {PUBLISHED}"]

    def row(label: str, found: dict[str, float]) -> list[str]:
        for name, pace in found.items():
            report.numbers[f"{label}: {name}, instances/s"] = pace
        cells = [f"{found[name]:.3g}" if name in found else "" for name in names]
        for peer in (RECURSION, PUBLISHED):
            cells.append(times_faster(found[names[0]] / found[peer]) if peer in found else "")
        return [label, *cells]

    report.say("Instances per second.\n\n## Bags of 1 to 12 instances\n")
    bags = scale.instances * 2 // 13
    sizes = sizes_of_small(bags, device, generator)
    rows = [row("1 to 12", paces(draw(sizes, generator), scale, few=min(bags, 300)))]
    for spread in SPREADS:
        sample = draw(sizes, generator, spread=spread)
        rows.append(row(f"1 to 12, logits of sd {spread}", paces(sample, scale, few=0)))
    report.table(["n", *header], rows)
    report.say("## Bags of one size, y = n / 2\n")
    rows = []
    for k in range(scale.largest + 1):
        n = 2**k
        instances = scale.instances // (1 if n <= 32 else 4)
        sizes = torch.full((max(1, instances // n),), n, device=device)
        few = min(len(sizes), 2**13 // math.comb(n, n // 2)) if n <= 16 else 0
        found = paces(draw(sizes, generator, half=True), scale, max(few, n <= 16))
        rows.append(row(f"{n:,}", found))
    report.table(["n", *header], rows)

    report.say(f"## One bag of {scale.huge:,}\n")
    one = torch.tensor([scale.huge], device=device)
    both = torch.cat([one, sizes_of_small(scale.huge // 10, device, generator)])
    rows = [
        row(f"one bag of {scale.huge:,}", paces(draw(one, generator), scale, few=0)),
        row("and small ones beside it", paces(draw(both, generator), scale, few=0)),
    ]
    report.table(["n", *header], rows)

    report.say("## A training step: 128 instances in 20 bags, log-probability and gradient\n")
    times = step_times(device, generator, scale.calls)
    slowest = times[f"{TORCH}, called"]
    report.table(
        ["method", "time", f"speed against {TORCH}, called"],
        [[name, seconds(t), f"{slowest / t:,.1f}×"] for name, t in times.items()],
    )
    report.numbers |= {f"step: {name}, seconds": t for name, t in times.items()}
    report.say(f"Measured in {time.perf_counter() - begin:.0f} s, compilation included.")
    return report


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda", help="cuda, or cpu for a trial of the script")
    parser.add_argument("--quick", action="store_true", help="few, small bags: a trial")
    parser.add_argument("--seed", type=int, default=0, help="seed of the bags (default: 0)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for estep_gpu.md and .json")
    options = parser.parse_args(arguments)
    made_by = (
        f"python benchmarks/estep_gpu.py --device {options.device}{' --quick' * options.quick}"
    )
    report = on(options.device, options.quick, options.seed, f"{made_by} --seed {options.seed}")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "estep_gpu.md").write_text(report.text)
        (options.out / "estep_gpu.json").write_text(json.dumps(report.numbers, indent=1) + "\n")
        figure(report.numbers, options.out / "estep_gpu.png")


def on(device: str, quick: bool, seed: int, command: str) -> Report:
    """Everything, on a device by name."""
    where = torch.device(device)
    scale = Scale(2**12, 6, 3, 2, 1000) if quick else Scale(2**26, 14, 12, 3, 100_000)
    made_by = f"{command}\n{machine()}"
    if where.type == "cuda":
        import triton

        card = torch.cuda.get_device_name(where)
        made_by += f"\n{card}, CUDA {torch.version.cuda}, triton {triton.__version__}"
    return measure(where, scale, seed, made_by)


def figure(numbers: dict[str, float], file: Path) -> None:
    """Instances per second against the bag size."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    fig, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
    colours = {
        TRITON32: "#c0392b",
        TRITON64: "#e08a7d",
        TORCH: "#2b6cb0",
        RECURSION: "#a8741a",
        PUBLISHED: "#777777",
    }
    for name, colour in colours.items():
        found = re.compile(rf"([\d,]+): {re.escape(name)}, instances/s")
        points = [
            (int(m[1].replace(",", "")), v) for k, v in numbers.items() if (m := found.match(k))
        ]
        if not points:
            continue
        n, pace = zip(*sorted(points), strict=True)
        axes.loglog(n, pace, "o-", color=colour, markersize=3.5, linewidth=1.6)
        axes.annotate(
            name,
            (n[-1], pace[-1]),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            color=colour,
        )
    axes.set_xlim(0.8, 3e5)
    ticks = [4**k for k in range(8)]
    axes.set_xticks(ticks, [f"{k:,}" for k in ticks])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("instances in a bag, n")
    axes.set_title("E-step: instances per second, count n / 2", loc="left")
    fig.savefig(file, dpi=150)
    plt.close(fig)


if __name__ == "__main__":
    main()
