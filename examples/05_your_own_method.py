"""A method of your own: one class that trains like the others.

A whole-bag method computes one loss per bag from the logits of its instances. This one is the
squared error of the expected count, divided by the bag size. Once registered, it is compared with
``mle`` on the same bags, network and seeds.
"""

import torch
from torch import Tensor

import llpkit
from llpkit import Evidence, datasets
from llpkit.likelihood import pmf
from llpkit.methods import METHODS, BagMethod, register
from llpkit.ragged import segment_sum


class SquaredError(BagMethod):
    """Squared error of the expected count, divided by the bag size."""

    key = "squared-error"
    summary = "squared error of the expected count"
    needs_exact_counts = True
    lr = 1e-2

    def bag_loss(self, logits: Tensor, evidence: Evidence, offsets: Tensor) -> Tensor:
        """The loss of every bag, ``(B,)``."""
        expected = segment_sum(logits.sigmoid(), offsets)
        return (expected - evidence.counts) ** 2 / offsets.diff()


def accuracy(method: str, seed: int, epochs: int) -> float:
    """Accuracy on the digits of test bags."""
    data = datasets.load("digits", bag_size=(1, 12), seed=seed)
    train, test = data.bags.split(0.7, generator=seed)
    model = llpkit.fit(
        "small-cnn",
        train,
        data.inputs,
        method,
        epochs=epochs,
        batch_size=32,
        lr=METHODS["squared-error"].lr,
        seed=seed,
        progress=False,
    )
    right = model.predict(data.inputs[test.rows]) == data.truth[test.rows]
    return right.to(torch.float64).mean().item()


def main(epochs: int = 15, seeds: int = 2) -> dict[str, float]:
    """Mean accuracy of the new method and of ``mle``."""
    register(SquaredError)

    # The loss only sees the expected count, which is the same for these two bags.
    sure, unsure = torch.tensor([9.0, -9.0]), torch.tensor([0.0, 0.0])
    for name, z in (("sure", sure), ("unsure", unsure)):
        p = pmf(z, torch.tensor([0, 2])).probability
        print(f"{name:7} P(count = 0, 1, 2) = {[round(x, 2) for x in p.tolist()]}")

    accuracies = {}
    for method in ("squared-error", "mle"):
        runs = [accuracy(method, seed, epochs) for seed in range(seeds)]
        accuracies[method] = sum(runs) / len(runs)
        print(f"{method:14} accuracy {100 * accuracies[method]:.1f} %, mean of {seeds} seeds")
    return accuracies


if __name__ == "__main__":
    main()
