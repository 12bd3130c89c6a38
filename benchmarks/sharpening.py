"""How targets sharpen: the posteriors of one bag of digits at five moments of a `teacher` run.

    python benchmarks/sharpening.py --out docs/figures

The linear start is left out: with it the targets of these small bags are all but certain after one
epoch. It writes sharpening-1.png to sharpening-5.png and prints, for each, the mean probability
of the true label and the mean entropy of the targets of all instances. The labels are
used for these two numbers and for the frames in the pictures, never in training.
"""

import argparse
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.figure import Figure
from torch import Tensor

import llpkit
from llpkit import datasets
from llpkit.report.style import INK, MUTED, RC
from llpkit.training import Callback

SIZE = 16


class Keep(Callback):
    """Keeps the targets before the first epoch and after every epoch."""

    def __init__(self) -> None:
        self.targets: list[Tensor] = []

    def on_start(self, session: Any) -> None:
        self.targets.append(session.method.targets.clone())

    def on_epoch(self, session: Any, row: dict[str, Any]) -> None:  # noqa: ARG002
        self.targets.append(session.method.targets.clone())


def moments(epochs: int) -> list[int]:
    """Before training, and after each quarter of the epochs.

    >>> moments(30)
    [0, 8, 15, 22, 30]
    """
    return [round(epochs * quarter / 4) for quarter in range(5)]


def train(epochs: int, seed: int = 0) -> tuple[datasets.DataSet, list[Tensor]]:
    """The targets ``(N, 10)`` in engine order, before training and after every epoch."""
    data = datasets.load("digits", classes=10, bag_size=SIZE, seed=seed)
    keep = Keep()
    llpkit.fit(
        "small-cnn", data.bags, data.inputs, "teacher", epochs=epochs, batch_size=64, lr=2e-3,
        augment="weak-no-flip", strong_augment="strong-no-flip", seed=seed, measure="off",
        method_options={"start": 0.0},
        device="cpu", progress=False, callbacks=keep,
    )  # fmt: skip
    return data, keep.targets


def draw(data: datasets.DataSet, targets: Tensor, title: str, path: Path) -> None:
    """One picture: the images of the first bag, and the posterior of each label below."""
    assert isinstance(data.inputs, Tensor)
    assert data.truth is not None
    own = slice(0, int(data.bags.offsets[1]))
    rows = data.bags.rows[own]
    phi, truth = targets[own], data.truth[rows]
    with mpl.rc_context(RC):
        figure = Figure(figsize=(8, 4.3), dpi=110)
        grid = figure.add_gridspec(2, SIZE, height_ratios=(1, 8), hspace=0.02, wspace=0.1)
        for i, row in enumerate(rows.tolist()):
            axes = figure.add_subplot(grid[0, i])
            axes.imshow(data.inputs[row, 0].numpy(), cmap="gray_r")
            axes.set_axis_off()
        axes = figure.add_subplot(grid[1, :])
        axes.grid(False)
        axes.imshow(phi.T.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for i, label in enumerate(truth.tolist()):
            frame = mpl.patches.Rectangle(
                (i - 0.5, label - 0.5), 1, 1, fill=False, ec=INK, lw=1.4, clip_on=False
            )
            axes.add_patch(frame)
            for k in range(10):
                if phi[i, k] >= 0.005:
                    # Grey only where nearly nothing is behind it.
                    shade = "white" if phi[i, k] > 0.55 else INK if phi[i, k] >= 0.15 else MUTED
                    text = f"{100 * phi[i, k]:.0f}"
                    axes.text(i, k, text, ha="center", va="center", size=7, color=shade)
        counts = data.bags.counts[0].tolist()
        axes.set_xticks([])
        axes.set_yticks(range(10), [f"{n} × “{k}”" for k, n in enumerate(counts)])
        axes.spines[:].set_visible(False)
        figure.suptitle(title, x=0.125, y=0.95, ha="left", size=12, color=INK)
        figure.savefig(path, bbox_inches="tight")


def main(epochs: int = 30, out: Path = Path("docs/figures")) -> list[tuple[float, float]]:
    """Train, draw, and return the two numbers of each moment."""
    data, targets = train(epochs)
    assert data.truth is not None
    truth = data.truth[data.bags.rows]
    out.mkdir(parents=True, exist_ok=True)
    found = []
    print("epoch  probability of the true label  entropy, nats")
    for number, at in enumerate(moments(epochs), 1):
        phi = targets[at]
        right = float(phi[torch.arange(len(truth)), truth].mean())
        entropy = float(torch.special.entr(phi).sum(1).mean())
        title = "Before training: the counts alone" if at == 0 else f"After epoch {at}"
        draw(data, phi, title, out / f"sharpening-{number}.png")
        print(f"{at:5d}  {right:.3f}  {entropy:.3f}")
        found.append((right, entropy))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    given = parser.parse_args()
    main(given.epochs, given.out)
