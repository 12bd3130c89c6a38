"""The records of a page: runs, calibration, the summary, bags for the wall."""

import math

import numpy as np
import pytest
import torch

from llpkit import Bags, Evidence, evaluation
from llpkit.errors import LLPError
from llpkit.report import Calibration, Series, known_text, summarise, wall_bags


def run(method: str, seed: int, values: list[float], key: str = "test_accuracy", **kwargs):
    rows = [{"epoch": i + 1, "seconds": 2.0, key: value} for i, value in enumerate(values)]
    return Series(method, seed, rows, **kwargs)


def test_summary_takes_the_last_epoch_not_the_best():
    [row] = summarise([run("mle", 0, [0.9, 0.8])])
    assert row.accuracy == 0.8
    assert row.accuracy_sd is None
    assert row.gap is None


def test_summary_takes_the_epoch_that_was_kept():
    [row] = summarise([run("mle", 0, [0.7, 0.9, 0.8], selected_epoch=2)])
    assert row.accuracy == 0.9


def test_an_epoch_that_never_was_cannot_be_kept():
    with pytest.raises(LLPError, match="selected_epoch = 7, but the history of mle, run 3"):
        summarise([run("mle", 3, [0.7], selected_epoch=7)])


def test_history_without_epochs_is_refused():
    with pytest.raises(LLPError, match=r"history\[1\] of mle, run 0, has no 'epoch'"):
        Series("mle", 0, [{"epoch": 1}, {"loss": 0.5}])


def test_summary_means_and_gap():
    series = [run("supervised", s, [0.9 + 0.02 * s]) for s in range(2)]
    series += [run("mle", s, [0.8 + 0.1 * s]) for s in range(2)]
    bound, mle = summarise(series)
    assert (bound.method, bound.runs, bound.gap, bound.epoch_ratio) == ("supervised", 2, None, 1.0)
    assert mle.accuracy == pytest.approx(0.85)
    assert mle.accuracy_sd == pytest.approx(math.sqrt(0.005))
    assert mle.gap == pytest.approx(-0.06)


def test_summary_uses_held_out_bags_only_if_every_run_has_them():
    both = [{"epoch": 1, "log_likelihood": -1.0, "held_out_log_likelihood": -2.0}]
    [row] = summarise([Series("mle", 0, both)])
    assert (row.log_likelihood, row.log_likelihood_of) == (-2.0, "held-out")
    rows = summarise([Series("mle", 0, both), run("dllp", 0, [-3.0], "log_likelihood")])
    assert [(row.log_likelihood, row.log_likelihood_of) for row in rows] == [
        (-1.0, "training"),
        (-3.0, "training"),
    ]


def test_values_that_are_missing_or_not_finite_are_left_out():
    series = run("mle", 0, [0.5, math.nan, math.inf])
    assert series.points("test_accuracy") == {1: 0.5}
    assert series.value("test_accuracy") is None
    assert series.points("nothing") == {}
    assert Series("mle", 0, []).value("loss") is None
    assert summarise([]) == []


def test_epoch_time_leaves_out_the_first_epoch():
    rows = [{"epoch": i, "seconds": s} for i, s in enumerate([9.0, 1.0, 2.0, 3.0])]
    assert Series("mle", 0, rows).epoch_seconds() == 2.0
    assert Series("mle", 0, rows[:1]).epoch_seconds() == 9.0


def test_calibration_error_is_that_of_the_evaluation():
    generator = torch.Generator().manual_seed(0)
    probability = torch.rand(500, generator=generator)
    truth = (torch.rand(500, generator=generator) < probability).long()
    measured = evaluation.calibration(probability, truth)
    assert Calibration("mle", *measured).error == pytest.approx(measured.error)


def test_calibration_ignores_empty_bins_and_refuses_uneven_ones():
    curve = Calibration("mle", [0.2, math.nan], [0.2, math.nan], np.array([4, 0]))
    assert curve.error == 0.0
    assert Calibration("mle", [], [], []).error is None
    with pytest.raises(LLPError, match="mle has 2 mean predictions, 1 fractions and 2 counts"):
        Calibration("mle", [0.1, 0.2], [0.1], [1, 1])


@pytest.mark.parametrize(
    ("evidence", "text"),
    [
        (Evidence.exact([3]), "3 of 7 odd"),
        (Evidence.interval([2], [4]), "2 to 4 of 7 odd"),
        (Evidence.interval([0], [4]), "0 to 4 of 7 odd"),
        (Evidence.at_least([1]), "at least 1 of 7 odd"),
        (Evidence.unknown(1), "0 to 7 of 7 odd"),
    ],
)
def test_what_is_known_of_a_bag(evidence, text):
    assert known_text(Bags([0, 7], evidence)[0], ("even", "odd")) == text


def test_what_is_known_of_several_classes():
    bag = Bags([0, 6], [[1, 2, 3]])[0]
    assert known_text(bag, ("cat", "dog", "bird")) == "1 cat, 2 dog, 3 bird"
    with pytest.raises(LLPError, match="counts of 3 classes, but class_names has 2"):
        known_text(bag, ("cat", "dog"))


def test_wall_follows_the_rows_of_the_table():
    bags = Bags([0, 1, 3], [0, 1], rows=[4, 2, 0], num_rows=5, ids=["x", "y"])
    images = torch.arange(5, dtype=torch.uint8)[:, None, None, None].expand(5, 1, 2, 2)
    truth = torch.tensor([1, 0, 0, 0, 0])
    probability = torch.tensor([0.9, 0.0, 0.2, 0.0, 0.4])
    _, bag = wall_bags(
        bags, images, probability, posterior=probability, truth=truth, class_names=("no", "yes")
    )
    assert (bag.id, bag.known) == ("y", "1 of 2 yes")
    assert [int(i.image[0, 0, 0]) for i in bag.instances] == [2, 0]
    assert [i.probability for i in bag.instances] == pytest.approx([0.2, 0.9])
    assert [i.posterior for i in bag.instances] == pytest.approx([0.2, 0.9])
    assert [i.truth for i in bag.instances] == [0, 1]


def test_wall_loads_only_the_images_it_shows():
    asked = []

    class Files:
        def load(self, rows: list[int]) -> torch.Tensor:
            asked.append(rows)
            return torch.zeros(len(rows), 3, 4, 4, dtype=torch.uint8)

    bags = Bags([0, 2, 4], [1, 1])
    [bag] = wall_bags(bags[1:], Files(), np.full((4, 3), 1 / 3), class_names=("no", "yes"))
    assert asked == [[2, 3]]
    assert bag.instances[0].image.shape == (3, 4, 4)
    assert bag.instances[0].probability == pytest.approx([1 / 3] * 3)


def test_wall_names_features():
    [bag] = wall_bags(
        Bags([0, 1], [1]),
        torch.tensor([[1.0, -2.5]]),
        [0.5],
        class_names=("no", "yes"),
        feature_names=["age", "height"],
    )
    assert bag.instances[0].caption == "age 1\nheight -2.5"
    assert bag.instances[0].image is None
