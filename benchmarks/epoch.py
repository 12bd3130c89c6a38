"""Epoch times of every method against supervised training, and of the loop against a bare one.

    python benchmarks/epoch.py [--quick] [--out results/epoch]

All runs share the network, the images and the batch size, and take turns within one process, so
that whatever else the machine does falls on all of them alike. The figure of a method is the median
over rounds of the ratio of its epoch to the supervised epoch of the same round.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import nn

import llpkit
from llpkit import methods, networks
from llpkit.datasets import load

BATCH = 64


def bare_loop(images: torch.Tensor, labels: torch.Tensor, network: nn.Module) -> float:
    """Seconds of one epoch of the plainest loop that trains the same network on labels."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.0, fused=True)
    mean, scale = (images / 255.0).mean(), (images / 255.0).std()
    network.train()
    start = time.perf_counter()
    for rows in torch.randperm(len(images)).split(BATCH):
        x = (images[rows].to(torch.float32) / 255 - mean) / scale
        loss = nn.functional.binary_cross_entropy_with_logits(network(x), labels[rows].float())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return time.perf_counter() - start


class Runner:
    """One method, kept ready to train another epoch."""

    def __init__(self, key: str, options: dict[str, str], data: llpkit.datasets.DataSet) -> None:
        method = methods.METHODS[key]
        self.seconds: list[float] = []
        self.arguments = {
            "network": method.network_name or "small-cnn",
            "bags": data.bags,
            "inputs": data.inputs,
            "method": key,
            "labels": data.truth if method.needs_labels else None,
            "method_options": options,
            "batch_size": BATCH,
            "progress": False,
        }

    def epochs(self, number: int) -> float:
        """The median of some epochs, the first left out."""
        model = llpkit.fit(epochs=number + 1, **self.arguments)  # type: ignore[arg-type]
        return statistics.median(row["seconds"] for row in model.history[1:])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, without llp-gan")
    parser.add_argument("--no-gan", action="store_true", help="without llp-gan, the slowest")
    parser.add_argument("--rounds", type=int, default=7, help="turns of every method")
    parser.add_argument("--threads", type=int, default=1, help="torch's threads")
    parser.add_argument("--out", type=Path, help="folder for the table and the figures as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rounds = 3 if options.quick else options.rounds
    data = load("digits")
    runs: dict[str, Runner] = {
        "supervised": Runner("supervised", {}, data),
        "mle": Runner("mle", {}, data),
        "mle, refresh by a pass": Runner("mle", {"refresh": "pass"}, data),
        "direct": Runner("direct", {}, data),
        "amle": Runner("amle", {}, data),
        "dllp": Runner("dllp", {}, data),
    }
    if not (options.quick or options.no_gan):
        runs["llp-gan (its own network)"] = Runner("llp-gan", {}, data)
    plain = networks.make("small-cnn", input_shape=tuple(data.inputs.shape[1:]), num_outputs=1)

    times: dict[str, list[float]] = {name: [] for name in [*runs, "bare loop on labels"]}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            seconds = run.epochs(1 if "gan" in name else 5)
            if turn:  # the first turn warms up
                times[name].append(seconds)
        bare = statistics.median(
            bare_loop(data.inputs, data.truth[: len(data.inputs)], plain) for _ in range(5)
        )
        if turn:
            times["bare loop on labels"].append(bare)

    ratios = {}
    for name, values in times.items():
        pairs = zip(values, times["supervised"], strict=True)
        ratios[name] = statistics.median(a / b for a, b in pairs)
    overhead = statistics.median(
        a / b for a, b in zip(times["supervised"], times["bare loop on labels"], strict=True)
    )
    lines = [
        "| run | epoch, ms | against supervised |",
        "|---|---|---|",
        *(
            f"| {name} | {1e3 * statistics.median(v):.1f} | {ratios[name]:.2f} |"
            for name, v in times.items()
        ),
        "",
        f"The loop against a bare one: {overhead:.2f}",
        "",
        f"`python {' '.join(sys.argv)}`: small-cnn on {len(data.inputs)} digits of 8 x 8 pixels, "
        f"bags of 1 to 12, batches of {BATCH} instances; median of {rounds} rounds; "
        f"{options.threads} threads of {platform.processor() or platform.machine()}, "
        f"torch {torch.__version__}, Python {platform.python_version()}",
    ]
    print("\n".join(lines))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "epoch.md").write_text("\n".join(lines) + "\n")
        (options.out / "epoch.json").write_text(
            json.dumps({"ratios": ratios, "loop_over_bare": overhead, "seconds": times}, indent=1)
        )


if __name__ == "__main__":
    main()
