"""The cost of views: an epoch of `teacher` beside supervised ones, and weak beside strong views.

    python benchmarks/views.py --out results/views-cpu

Methods take turns in one process. On a CPU the time is that of the process, which other programs
do not disturb; on a GPU it is that of the clock, after waiting for the device.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

import llpkit
from llpkit.augment import Augment
from llpkit.methods import Batch, Learner, as_logits
from llpkit.methods.supervised import Supervised
from llpkit.training import Callback


class SupervisedTwice(Supervised):
    """Supervised training on both views: the same data as a step of `teacher`."""

    key = "supervised, two views"
    views = 2
    strong_augment = "strong"
    replayable = True

    def step(self, batch: Batch, learner: Learner, num_classes: int | None) -> Any:
        assert batch.strong is not None
        both = as_logits(learner.network(torch.cat([batch.inputs, batch.strong])), num_classes)
        weak, strong = both.chunk(2)
        loss = self.loss(weak, batch) + self.loss(strong, batch)
        learner.update(loss)
        return loss.detach(), weak.detach()


class Clock(Callback):
    """Times of epochs: of the process on a CPU, else of the wall."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now, self.seconds = now, list[float]()

    def on_start(self, session: Any) -> None:  # noqa: ARG002
        self.last = self.now()

    def on_epoch(self, session: Any, row: dict[str, Any]) -> None:  # noqa: ARG002
        now = self.now()
        self.seconds.append(now - self.last)
        self.last = now


def _clock(device: str) -> Callable[[], float]:
    if device == "cpu":
        return time.process_time

    def wait() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return wait


def epochs(device: str, images: int, network: str, turns: int, each: int) -> dict[str, float]:
    """Median seconds per epoch by method; the first epochs of a turn are not counted."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (images, 3, 32, 32), generator=draw, dtype=torch.uint8)
    truth = torch.randint(10, (images,), generator=draw)
    bags = llpkit.random_bags(truth, 64, generator=0, num_classes=10)
    now, found = _clock(device), dict[str, list[float]]()
    for _ in range(turns):
        for name, method in (
            ("supervised", "supervised"),
            ("supervised, two views", SupervisedTwice()),
            ("teacher", "teacher"),
        ):
            clock = Clock(now)
            # The start is left out: it is a part of the first epochs only.
            options = {"start": 0.0} if method == "teacher" else {}
            llpkit.fit(
                network, bags, x, method, epochs=each + 1, batch_size=128, augment="weak",
                method_options=options, labels=None if method == "teacher" else truth,
                measure="off", device=device, progress=False, callbacks=clock,
            )  # fmt: skip
            found.setdefault(name, []).extend(clock.seconds[1:])
    return {name: median(values) for name, values in found.items()}


def augmentations(device: str, images: int, turns: int) -> dict[str, float]:
    """Milliseconds per 1,000 images of 32 x 32 pixels, by preset."""
    x = torch.rand(images, 3, 32, 32, device=device)
    now, found = _clock(device), dict[str, list[float]]()
    for _ in range(turns):
        for name in ("weak", "geometric", "paper", "strong"):
            change = getattr(Augment, name)()
            change(x[:8])
            start = now()
            change(x)
            found.setdefault(name, []).append(1e6 * (now() - start) / images)
    return {name: median(values) for name, values in found.items()}


def main(
    device: str = "cpu",
    images: int = 2048,
    network: str = "small-cnn",
    turns: int = 3,
    each: int = 2,
    out: Path | None = None,
) -> dict[str, Any]:
    """Measure, print the ratios, and write them."""
    torch.set_num_threads(1)
    seconds = epochs(device, images, network, turns, each)
    cost = augmentations(device, min(images, 4096), 3 * turns)
    found: dict[str, Any] = {"device": device, "network": network, "images": images}
    found["seconds_per_epoch"] = {k: round(v, 4) for k, v in seconds.items()}
    for bound in ("supervised", "supervised, two views"):
        ratio = seconds["teacher"] / seconds[bound]
        found[f"teacher / {bound}"] = round(ratio, 2)
        print(f"an epoch of teacher takes {ratio:.2f} times that of {bound}")
    found["ms_per_1000_images"] = {k: round(v, 1) for k, v in cost.items()}
    print(", ".join(f"{k} {v:.1f} ms" for k, v in cost.items()), "per 1,000 images of 32 x 32")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "views.json").write_text(json.dumps(found, indent=1) + "\n")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=2048)
    parser.add_argument("--network", default="small-cnn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    main(given.device, given.images, given.network, given.turns, given.epochs, given.out)
