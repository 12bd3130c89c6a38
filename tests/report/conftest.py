import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from llpkit import Bags, evaluation, random_bags
from llpkit.report import (
    Column,
    Details,
    Example,
    Facts,
    Figures,
    Notes,
    Page,
    PageTable,
    Paragraph,
    Section,
    Spread,
    Wall,
    epoch_curves,
    present,
    reliability,
    styles,
    wall_bags,
)

FINAL = {"mle": 0.97, "direct": 0.96, "dllp": 0.93, "llp-gan": 0.88, "supervised": 0.99}
HOSTILE = "<script>alert('x')</script> & $\\frac"


def history(final: float, epochs: int = 8) -> list[dict]:
    accuracies = [final - (final - 0.5) * math.exp(-epoch / 2) for epoch in range(1, epochs + 1)]
    return [
        {"epoch": epoch, "test_accuracy": accuracy} for epoch, accuracy in enumerate(accuracies, 1)
    ]


@pytest.fixture(scope="session")
def wall() -> Wall:
    """Six bags of digits; every method is wrong about some of them."""
    pixels, digit = load_digits(return_X_y=True)
    images = torch.tensor(pixels.reshape(-1, 1, 8, 8) * 255 / 16).to(torch.uint8)
    odd = torch.tensor(digit % 2)
    bags = random_bags(odd, (1, 12), generator=0)[:6]
    named = Bags(bags.offsets, bags.counts, rows=bags.rows, ids=[HOSTILE, *range(1, 6)])
    rng = np.random.default_rng(1)
    probability = {
        method: [
            np.abs(odd[bag.rows].numpy() - np.where(rng.random(bag.size) > final, 0.9, 0.1))
            for bag in named
        ]
        for method, final in FINAL.items()
    }
    shown = wall_bags(named, images, class_names=("even", "odd"), truth=odd)
    note = "Six training bags."
    return Wall(shown, ("even", "odd"), probability, note=note, bounds=["supervised"])


@pytest.fixture(scope="session")
def full(wall) -> Page:
    """A page with every kind of block, and methods with three runs each."""
    look = styles(FINAL)
    runs = {m: [history(final + run / 100) for run in range(3)] for m, final in FINAL.items()}
    curve = evaluation.calibration([0.1, 0.1, 0.9], [0, 1, 1])
    columns = [
        Column("Accuracy", "%, of test instances", ".1f", "higher"),
        Column("Gap", "points from supervised", "+.1f"),
        *(Column(f"Measure {i}", "a long explanation of it", ".3f") for i in range(6)),
        Column("Options"),
    ]
    rows = [(m, [Spread(100 * f, 0.4), 100 * f - 99, *[f] * 6, "-"]) for m, f in FINAL.items()]
    return Page(
        "Odd digits <learnt> from counts",
        lead=[f"Bags of digits. {HOSTILE}"],
        look=look,
        blocks=[
            Example(wall),
            Facts({"Data": "digits", HOSTILE: HOSTILE}),
            Section("The methods", [PageTable(columns, rows, HOSTILE, apart=["supervised"])]),
            Section(
                "A chapter",
                [
                    Paragraph(HOSTILE),
                    Section(
                        "Curves",
                        [
                            Figures(
                                present(
                                    [epoch_curves(runs, look, "accuracy", "A", "test_accuracy")]
                                )
                            )
                        ],
                        HOSTILE,
                    ),
                    Section(
                        "Calibration",
                        [
                            Figures(
                                present(
                                    reliability(m, curve, look[m], f"calibration-{m}")
                                    for m in FINAL
                                ),
                                narrow=True,
                            )
                        ],
                    ),
                ],
            ),
            Section("A wall of bags", [wall]),
            Section("Notes", [Notes([HOSTILE]), Details(HOSTILE, [Paragraph(HOSTILE)])]),
        ],
    )
