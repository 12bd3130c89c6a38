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
    tenths = (10 * y / n).round() / 10
    groups = bags.bag_index.tolist()
    rounded = Bags.from_proportions(groups, tenths.tolist(), decimals=1).evidence
    every_third = torch.arange(len(bags)) % 3 == 0
    mixed = Evidence.concat(
        [Evidence.exact(y[every_third]), Evidence.unknown(int((~every_third).sum()))]
    )
    order = torch.cat([torch.where(every_third)[0], torch.where(~every_third)[0]])
    return {
        "the count": bags,
        "the proportion, to one decimal": _with(bags, rounded),
        "the count, give or take one": _with(
            bags, Evidence.interval((y - 1).clamp(min=0), torch.minimum(y + 1, n))
        ),
        "whether there is any": _with(
            bags, Evidence.interval((y > 0).long(), torch.where(y > 0, n, 0))
        ),
        "the count of every third bag": _with(bags, mixed[order.argsort()]),
    }


def _with(bags: Bags, evidence: Evidence) -> Bags:
    return Bags(bags.offsets, evidence, rows=bags.rows, ids=bags.ids, num_rows=bags.num_rows)


def main(epochs: int = 30) -> dict[str, float]:
    """Accuracy by what is known about the bags."""
    data = datasets.load("synthetic", rows=2000, features=2, bag_size=(4, 12), separation=3.0)
    print(*data.notes, sep="\n")
    found = {}
    for known, bags in weaker(data.bags).items():
        model = llpkit.fit(
            "linear", bags, data.inputs, "direct", epochs=epochs, lr=0.03, progress=False
        )
        right = model.predict(data.inputs) == data.truth
        found[known] = right.to(torch.float64).mean().item()
        print(f"{known:32} accuracy {100 * found[known]:.1f} %")
    return found


if __name__ == "__main__":
    main()
