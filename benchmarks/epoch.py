"""Epochs: every method against supervised training, the loop against a bare one, and the floors.

    python benchmarks/epoch.py [--device cuda] [--quick] [--out DIR]

On a CPU: a small CNN on digits and a linear model on a table of a million rows. On a CUDA device:
ConvLarge on CIFAR-10's birds and cats (one of ten folds, 10,800 images) and on group photos of
90 x 72 pixels, which need the data (see `llpkit datasets`).

All runs of a case share the inputs, the batch size and the network, except for LLP-GAN, which has
its own. They take turns in random order within one process, so that other load on the machine
affects all alike. The figure of a method is the median over rounds of the ratio of its epoch to the
supervised epoch of the same round. An epoch is its steps and what the method does after them. The
first epoch of a run and the metrics that `llpkit.fit` computes after an epoch are left out, as is
augmentation unless a row names it. The arithmetic floor is the number of operations in the
network's products, counted by torch, divided by the rate of a large product measured in the same
run; for the memory floor, every layer's output and its gradient go to memory and back once.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from estep import Report, seconds
from records import machine
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.flop_counter import FlopCounterMode

import llpkit
from llpkit import methods, networks
from llpkit.datasets import DataSet, load

LLP = ("mle", "direct", "amle", "dllp")
PAPERS = {"augment": "paper"}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "supervised, no graph": ("supervised", {"cuda_graph": False}),
    "supervised, compiled": ("supervised", {"compile": True}),
    "supervised, float32 (TF32 products)": ("supervised", {"precision": "32-true"}),
    "supervised, batches of 256": ("supervised", {"batch_size": 256}),
    "supervised, batches of 512": ("supervised", {"batch_size": 512}),
    "supervised, the paper's augmentation": ("supervised", PAPERS),
    "mle, the paper's augmentation": ("mle", PAPERS),
    "supervised, the paper's augmentation, compiled": ("supervised", PAPERS | {"compile": True}),
}


@dataclass
class Case:
    """One network on one set of bags."""

    name: str
    network: str
    bags: llpkit.Bags
    inputs: Tensor
    truth: Tensor
    batch_size: int
    epochs: int
    methods: tuple[str, ...] = ("supervised", *LLP)
    variants: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    """Other ways to train: a method, and options of `llpkit.fit`."""

    def epoch(self, method: str, device: str, **changed: Any) -> float:
        """Median seconds of some epochs of a fresh run, the first left out."""
        own = methods.METHODS[method].network_name
        labels = self.truth if methods.METHODS[method].needs_labels else None
        model = llpkit.fit(
            own or self.network,
            self.bags,
            self.inputs,
            method,
            epochs=self.epochs + 1,
            labels=labels,
            device=device,
            progress=False,
            **{"batch_size": self.batch_size} | changed,
        )
        return statistics.median(row["seconds"] for row in model.history[1:])


def cases(device: str, quick: bool) -> list[Case]:
    if device == "cuda":
        found = []
        for name, size, every in (
            ("cifar10", 32, ("supervised", *LLP, "llp-gan")),
            ("group-photos", 90, ("supervised", "mle")),
        ):
            data = load(name)
            train, _ = next(iter(data.bags.kfold(10, 0)))
            title = f"conv-large, {name}, {train.num_instances:,} images of {size} rows"
            found.append(_case(title, "conv-large", data, train, 128, 2 if quick else 4, every))
        found[0].variants = VARIANTS
        return found
    digits = load("digits")
    found = [_case("small-cnn, digits of 8 x 8", "small-cnn", digits, digits.bags, 64, 3)]
    rows = 100_000 if quick else 1_000_000
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 20, generator=generator)
    truth = (x[:, :5].sum(1) + torch.randn(rows, generator=generator) > 0).long()
    bags = llpkit.random_bags(truth, (1, 12), generator=0)
    title = f"linear, a table of {rows:,} rows x 20"
    found.append(Case(title, "linear", bags, x, truth, 1024, 2))
    return found


def _case(
    title: str,
    network: str,
    data: DataSet,
    bags: llpkit.Bags,
    batch: int,
    epochs: int,
    every: tuple[str, ...] = ("supervised", *LLP),
) -> Case:
    assert isinstance(data.inputs, Tensor)
    assert data.truth is not None
    return Case(title, network, bags, data.inputs, data.truth, batch, epochs, every)


def bare_loop(case: Case, device: str, record: bool = False) -> Callable[[], float]:
    """Seconds of an epoch of the plainest loop that trains the same network on labels.

    Inputs are on the device and steps have the same precision; nothing is compiled. With
    ``record`` the step is a CUDA graph, and the last batch is padded with instances of the first.
    """
    shape = tuple(case.inputs.shape[1:])
    network = networks.make(case.network, input_shape=shape, num_outputs=1).to(device)
    on_card = device == "cuda"
    if on_card and len(shape) == 3:
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=1e-3, weight_decay=0.0, fused=True, capturable=record
    )
    inputs = case.inputs[case.bags.rows].to(device)
    labels = case.truth[case.bags.rows].to(device).float()
    whole = 255 if inputs.dtype == torch.uint8 else 1
    mean, scale = (inputs[:4096] / whole).mean(), (inputs[:4096] / whole).std()
    replay: Callable[[Tensor], Any] | None = None

    def step(rows: Tensor) -> None:
        x = (inputs[rows].to(torch.float32) / whole - mean) / scale
        if on_card and x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device, torch.bfloat16, enabled=on_card):
            z = network(x)
        loss = binary_cross_entropy_with_logits(z.float(), labels[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    def epoch() -> float:
        nonlocal replay
        with torch.backends.cudnn.flags(True, benchmark=on_card):
            network.train()
            if record and replay is None:
                replay = recorded(step, torch.arange(case.batch_size, device=device))
            return steps(replay or step)

    def steps(run: Callable[[Tensor], Any]) -> float:
        start = time.perf_counter()
        order = torch.randperm(len(inputs))
        if record:
            order = torch.cat([order, order[: -len(order) % case.batch_size]])
        for rows in order.to(device).split(case.batch_size):
            run(rows)
        if on_card:
            torch.cuda.synchronize()
        return time.perf_counter() - start

    return epoch


def recorded(step: Callable[[Tensor], None], rows: Tensor) -> Callable[[Tensor], Any]:
    """A step on rows of one number as a CUDA graph, after three that are run as they are."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(rows)
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        step(rows)

    def run(new: Tensor) -> None:
        rows.copy_(new)
        graph.replay()

    return run


def floors(case: Case, device: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """Seconds that an epoch needs for its products and its memory traffic; the two rates."""
    shape = tuple(case.inputs.shape[1:])
    network = networks.make(case.network, input_shape=shape, num_outputs=1)
    sizes: list[int] = []
    kinds = (nn.Conv2d, nn.Linear)
    for layer in network.modules():
        if isinstance(layer, kinds):
            layer.register_forward_hook(lambda _m, _x, y: sizes.append(y.numel()))
    with FlopCounterMode(display=False) as counter:
        network(torch.randn(4, *shape)).sum().backward()
    each = counter.get_total_flops() / 4
    number = case.bags.num_instances
    dtype, width = (torch.bfloat16, 2) if device == "cuda" else (torch.float32, 4)
    product, copy = rates(device, dtype)
    # An output is written, read by the next layer, and read again on the way back, where its
    # gradient is written and read: five passes.
    moved = 5 * width * sum(sizes) / 4
    return (each * number / product, moved * number / copy), (product, copy)


def rates(device: str, dtype: torch.dtype) -> tuple[float, float]:
    """Operations per second of a large product, and bytes per second of a large copy."""
    n, length = (8192, 2**30) if device == "cuda" else (1024, 2**26)
    a, b = torch.randn(2, n, n, device=device).to(dtype)
    source = torch.zeros(length, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    out = torch.empty_like(a)

    def best(run: Callable[[], Any]) -> float:
        times = []
        for _ in range(12):
            if device == "cuda":
                torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(5):
                run()
            if device == "cuda":
                torch.cuda.synchronize()
            times.append((time.perf_counter() - begin) / 5)
        return min(times)

    product = best(lambda: torch.matmul(a, b, out=out))
    copy = best(lambda: target.copy_(source))
    return 2 * n**3 / product, 2 * length / copy


def measure(device: str, quick: bool, rounds: int, report: Report) -> None:
    """All cases; the ratios go to ``report.numbers``."""
    for case in cases(device, quick):
        compare(case, device, rounds, report)


BARE, RECORDED = "bare loop on labels", "bare loop on labels, recorded"


def compare(case: Case, device: str, rounds: int, report: Report) -> None:
    runs: dict[str, Callable[[], float]] = {
        name: (lambda name=name: case.epoch(name, device)) for name in case.methods
    }
    for title, (method, changed) in case.variants.items():
        runs[title] = lambda method=method, changed=changed: case.epoch(method, device, **changed)
    for name in (BARE, RECORDED) if device == "cuda" else (BARE,):
        bare = bare_loop(case, device, name == RECORDED)
        runs[name] = lambda bare=bare: statistics.median(bare() for _ in range(case.epochs))
    times: dict[str, list[float]] = {name: [] for name in runs}
    rng = random.Random(0)
    for turn in range(rounds + 1):
        for name in rng.sample(list(runs), len(runs)):
            spent = runs[name]()
            if turn:  # the first turn warms up
                times[name].append(spent)
    if device == "cpu":  # where the closest demand, that of mle, would drown in a few turns
        for turn in range(2 * rounds):
            pair = ("supervised", "mle") if turn % 2 else ("mle", "supervised")
            for name in pair:
                times[name].append(runs[name]())
    first = times["supervised"]
    (product, traffic), (rate, width) = floors(case, device)
    report.numbers |= {f"{case.name}: product, FLOP/s": rate, f"{case.name}: copy, bytes/s": width}
    report.say(f"### {case.name}; batches of {case.batch_size}\n")
    rows = []
    for name, values in times.items():
        ratio = statistics.median(a / b for a, b in zip(values, first, strict=False))
        report.numbers[f"{case.name}: {name} over supervised"] = ratio
        report.numbers[f"{case.name}: {name} epoch, s"] = statistics.median(values)
        spread = statistics.pstdev(values) / statistics.mean(values)
        rows.append([name, seconds(statistics.median(values)), f"{spread:.1%}", f"{ratio:.3f}"])
    report.table(["run", "epoch, median", "spread", "against supervised"], rows)
    typical = statistics.median(first)
    report.numbers[f"{case.name}: supervised over arithmetic floor"] = typical / product
    for name, number in ((BARE, "loop over bare loop"), (RECORDED, "loop over recorded bare loop")):
        if name in times:
            ratio = statistics.median(a / b for a, b in zip(first, times[name], strict=False))
            report.numbers[f"{case.name}: {number}"] = ratio
            report.say(f"The supervised epoch over a {name}: {ratio:.2f}.")
    report.say(
        f"Over the arithmetic floor of {seconds(product)} ({rate / 1e12:.3g} TFLOP/s): "
        f"{typical / product:.2f}; over the memory floor of {seconds(traffic)} "
        f"({width / 1e12:.3g} TB/s): {typical / traffic:.2f}.\n"
    )


def figure(numbers: dict[str, float], file: Path) -> None:
    """The epoch of every run over the supervised one of the same case."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    cases: dict[str, dict[str, float]] = {}
    for key, value in numbers.items():
        case, _, name = key.rpartition(": ")
        if name.endswith(" over supervised"):
            cases.setdefault(case, {})[name.removesuffix(" over supervised")] = value
    bars = [len(found) for found in cases.values()]
    fig, all_axes = plt.subplots(
        len(cases),
        figsize=(8, 0.9 * len(cases) + 0.26 * sum(bars)),
        height_ratios=bars,
        layout="constrained",
        squeeze=False,
    )
    for axes, (case, found) in zip(all_axes[:, 0], cases.items(), strict=True):
        names, ratios = list(found)[::-1], list(found.values())[::-1]
        colours = ["#2b6cb0" if name in methods.METHODS else "#9aa5b1" for name in names]
        marks = axes.barh(names, ratios, color=colours, height=0.7)
        plain = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        texts = [f"{ratio:.2f}" for ratio in ratios]
        axes.bar_label(marks, texts, padding=5, fontsize=8, bbox=plain)
        axes.axvline(1, color="#444444", linewidth=0.8)
        axes.set_xlim(0, 1.1 * max(ratios))
        axes.tick_params(labelsize=8, left=False)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.set_title(f"{case}: epoch over the supervised one", loc="left", fontsize=9)
    fig.savefig(file, dpi=150)
    plt.close(fig)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, a smaller table")
    parser.add_argument("--rounds", type=int, default=0, help="turns (default: 7, quick: 3)")
    parser.add_argument("--threads", type=int, default=2, help="torch's threads (default: 2)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for epoch.md, epoch.json")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    report = Report()
    report.say(f"# Epochs\n\n```text\npython benchmarks/epoch.py\n{machine()}\n```\n")
    rounds = options.rounds or (3 if options.quick else 7)
    measure(options.device, options.quick, rounds, report)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "epoch.md").write_text(report.text)
        (options.out / "epoch.json").write_text(json.dumps(report.numbers, indent=1))


if __name__ == "__main__":
    main()
