import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from llpkit import Bags, evaluation, random_bags
from llpkit.report import Calibration, Page, Series, summarise, wall_bags

FINAL = {"mle": 0.97, "direct": 0.96, "dllp": 0.93, "llp-gan": 0.88, "supervised": 0.99}
HOSTILE = "<script>alert('bag')</script> & $\\frac"


def history(final: float, epochs: int = 8, rng: np.random.Generator | None = None) -> list[dict]:
    rng = rng or np.random.default_rng(0)
    rows = []
    for epoch in range(1, epochs + 1):
        accuracy = final - (final - 0.5) * math.exp(-epoch / 2) + rng.normal(0, 0.004)
        rows.append(
            {
                "epoch": epoch,
                "seconds": 0.2 + 0.01 * rng.random(),
                "loss": 0.7 * math.exp(-epoch / 4),
                "log_likelihood": -0.3 - 3 * (1 - accuracy),
                "held_out_log_likelihood": -0.4 - 4 * (1 - accuracy),
                "proportion_error": 0.5 * (1 - accuracy),
                "test_accuracy": accuracy,
                "lr": 1e-3,
            }
        )
    return rows


@pytest.fixture(scope="session")
def digits() -> tuple[torch.Tensor, torch.Tensor, Bags]:
    pixels, digit = load_digits(return_X_y=True)
    images = torch.tensor(pixels.reshape(-1, 1, 8, 8) * 255 / 16).to(torch.uint8)
    odd = torch.tensor(digit % 2)
    return images, odd, random_bags(odd, (1, 12), generator=0)


@pytest.fixture(scope="session")
def demo(digits) -> Page:
    """A page of five methods, three seeds each, with made-up histories and real images."""
    images, odd, bags = digits
    rng = np.random.default_rng(1)
    ids = [HOSTILE, *range(1, 6)]
    shown = Bags(bags[:6].offsets, bags[:6].counts, rows=bags[:6].rows, ids=ids)
    series, calibrations, wall = [], [], {}
    for method, final in FINAL.items():
        series += [Series(method, seed, history(final, rng=rng)) for seed in range(3)]
        wrong = torch.tensor(rng.random(len(odd)) > final)
        probability = torch.sigmoid(
            torch.tensor(rng.gamma(3, 1.5, len(odd))) * (2 * odd - 1) * (1 - 1.5 * wrong)
        )
        calibrations.append(Calibration(method, *evaluation.calibration(probability, odd)))
        wall[method] = wall_bags(shown, images, probability, class_names=("even", "odd"), truth=odd)
    return Page(
        title="Odd digits <learnt> from counts",
        lead=["Of each bag the learner is told how many digits are odd."],
        class_names=("even", "odd"),
        facts={"Data": "digits", "Epochs": 8},
        summary=summarise(series, calibrations),
        series=series,
        calibrations=calibrations,
        wall=wall,
        wall_note="Six training bags.",
        notes=["Histories are made up."],
        environment={"Command": "llpkit demo", "Seed": 0},
    )
