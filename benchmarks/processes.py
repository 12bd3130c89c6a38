"""Several processes against one: weights, bytes and times per epoch.

    python benchmarks/processes.py [--processes 1 2 4] [--device cuda] [--quick] [--out DIR]

Trains every method that several processes support, in double precision, on one process and on
several with the same global batches, and prints the largest relative difference of a weight tensor
(must be below 1e-6). Then, for one network, the bytes that a process sends per step and per epoch,
by the model of communication and as the system counted them, the epoch time, and how uneven the
parts of a step are. Processes share the cores, so the times say nothing about speed-up. On one card
they share it, and gloo carries the gradients, because NCCL refuses two processes on one card.
`make tables` then writes the tables of docs/how-to/several-machines.md.
"""

import argparse
import math
import sys
import time
import warnings
from pathlib import Path

import records
import torch
from torch import nn

import llpkit
from llpkit.errors import BaselineWarning
from llpkit.methods import METHODS
from llpkit.training import Callback
from llpkit.training.batches import plan_instances
from llpkit.training.shards import Shard

LIMIT = 1e-6


def data(rows: int, features: int = 8):
    x = torch.randn(rows, features, generator=torch.Generator().manual_seed(0))
    truth = (x.sum(1) > 0).long()
    return x, truth, llpkit.random_bags(truth, (1, 12), generator=0)


def train(network, given, method, **settings):
    x, truth, bags = given
    labels = truth if METHODS[method].needs_labels else None
    usual = {"epochs": 5, "lr": 0.02, "batch_size": 256, "seed": 1, "progress": False}
    return llpkit.fit(network, bags, x, method, labels=labels, **(usual | settings))


def difference(one, other) -> float:
    """The largest relative difference of a weight tensor."""
    pairs = zip(one.network.state_dict().values(), other.network.state_dict().values(), strict=True)
    return max(float((a - b).norm() / a.norm().clamp(min=1e-12)) for a, b in pairs)


class Sent(Callback):
    """Counts what the first process writes: to sockets, since these runs write no files."""

    def on_start(self, session):  # noqa: ARG002
        self.before = _written()

    def on_epoch(self, session, row):  # noqa: ARG002
        now = _written()
        row["sent"], self.before = now - self.before, now


def _written() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("wchar")).split()[1])


def weights(counts: list[int], quick: bool, device: str) -> list[dict]:
    given, found = data(600 if quick else 2000), []
    names = [name for name, method in METHODS.items() if vars(method).get("shardable")]
    for network in ["linear"] if quick else ["linear", "mlp"]:
        for name in names[:3] if quick else names:
            more = {"precision": "64-true", "device": device, "held_out": 0.2}
            one = train(network, given, name, **more)
            for number in counts:
                if number > 1:
                    other = train(network, given, name, devices=number, **more)
                    row = {"part": "weights", "network": network, "method": name}
                    row |= {"processes": number, "difference": difference(one, other)}
                    found.append(row)
                    print(row, flush=True)
    return found


def communication(counts: list[int], quick: bool, device: str) -> list[dict]:
    rows = 4000 if quick else 40_000
    given, found = data(rows), []
    bags = given[-1]
    steps = math.ceil(rows / 256)
    for number in counts:
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(8, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU())
        network.append(nn.Linear(512, 1))
        size = 4 * sum(p.numel() for p in network.parameters())
        model = train(
            network,
            given,
            "mle",
            devices=number,
            device=device,
            precision="32-true",
            epochs=3,
            callbacks=Sent(),
        )
        # A ring: every process passes on (R - 1) / R of the gradients twice.
        step = 2 * (number - 1) / number * size
        last = model.history[-1]
        row = {
            "part": "communication",
            "processes": number,
            "weights": size // 4,
            "bytes per step": round(step),
            "bytes per epoch": round(step * steps),
            "bytes per epoch, counted": last["sent"] if number > 1 else 0,
            "seconds per epoch": round(min(r["seconds"] for r in model.history[1:]), 3),
            "largest part of a step": uneven(bags, number),
        }
        found.append(row)
        print(row, flush=True)
    return found


def planning(rows: int) -> float:
    """Seconds that one of four processes takes to plan an epoch, per million instances."""
    sizes = torch.full((rows // 8,), 8)
    bags = llpkit.Bags(torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)]), 0 * sizes)
    shard = Shard.of(bags, 0, 4)
    start = time.process_time()
    shard.restrict(plan_instances(bags.num_instances, 4096))
    return round((time.process_time() - start) * 1e6 / rows, 2)


def uneven(bags: llpkit.Bags, number: int) -> float:
    """The mean over steps of the largest part, relative to an even one."""
    if number == 1:
        return 1.0
    generator = torch.Generator().manual_seed(0)
    plan = plan_instances(bags.num_instances, 256, generator=generator)
    parts = [Shard.of(bags, rank, number).restrict(plan) for rank in range(number)]
    largest = [max(len(part[i].positions) for part in parts) for i in range(len(plan))]
    even = [len(step.positions) / number for step in plan]
    return round(sum(largest) / sum(even), 3)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="a trial on little data")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for what is found")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", BaselineWarning)  # a few epochs on random data
    same = weights(options.processes, options.quick, options.device)
    cost = communication(options.processes, options.quick, options.device)
    plan = planning(10**5 if options.quick else 4 * 10**6)
    print(f"Planning an epoch: {plan} s of one core per million instances")
    machine = records.machine()
    if options.device == "cuda":
        machine += f", {torch.cuda.get_device_name()}"
    if options.out is not None:
        last = {"part": "planning", "seconds per million instances": plan}
        rows = [row | {"machine": machine} for row in (*same, *cost, last)]
        records.write(options.out / "processes.parquet", rows)
    return int(not max(row["difference"] for row in same) < LIMIT)


if __name__ == "__main__":
    sys.exit(main())
