"""Imprecise counts: bounds, rounded proportions, bags with unknown counts.

``Evidence`` holds what is known about each bag. Training works as before: the likelihood sums over
all possible counts.
"""

import torch

import llpkit
from llpkit import Bags, Evidence, datasets


def weaker(bags: Bags) -> dict[str, Bags]:
    """The same bags with less and less information."""
    y, n = bags.counts, bags.sizes
    groups = torch.empty_like(bags.rows)
    groups[bags.rows] = bags.bag_index  # the bag of every row

    any_positive, every_third = y > 0, torch.arange(len(bags)) % 3 == 0
    evidence = {
        "the count": Evidence.exact(y),
        "the count, give or take one": Evidence.interval((y - 1).clamp(min=0), (y + 1).minimum(n)),
        "whether there is any": Evidence.interval(any_positive.long(), n.where(any_positive, 0)),
        "the count of every third bag": Evidence.interval(
            y.where(every_third, 0), y.where(every_third, n)
        ),
    }
    known = {name: Bags.from_groups(groups, each) for name, each in evidence.items()}
    rounded = (y / n).to(torch.float64).round(decimals=1)
    known["the proportion, to one decimal"] = Bags.from_proportions(groups, rounded, decimals=1)
    return known


def main(epochs: int = 30) -> dict[str, float]:
    """Accuracy by what is known about the bags."""
    data = datasets.load("synthetic", rows=2000, features=2, bag_size=(4, 12), separation=3.0)
    print(*data.notes, sep="\n")
    accuracies = {}
    for name, bags in weaker(data.bags).items():
        model = llpkit.fit(
            "linear", bags, data.inputs, "direct", epochs=epochs, lr=0.03, progress=False
        )
        right = model.predict(data.inputs) == data.truth
        accuracies[name] = right.to(torch.float64).mean().item()
        print(f"{name:32} accuracy {100 * accuracies[name]:.1f} %")
    return accuracies


if __name__ == "__main__":
    main()
