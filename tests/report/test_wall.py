"""Walls of bags: what is shown of them."""

import base64
import io
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from llpkit import Bags, Evidence
from llpkit.report import (
    Example,
    Page,
    Wall,
    WallBag,
    WallInstance,
    styles,
    wall_bags,
    write_page,
)
from llpkit.report.instances import known_text


def bag(truths, name="a", **kwargs) -> WallBag:
    return WallBag(name, "?", [WallInstance("one", truth=t, **kwargs) for t in truths])


def one_bag(probability, truths=None, classes=("no", "yes"), **kwargs):
    truths = [None] * len(probability) if truths is None else truths
    [(_, [predicted])] = Wall([bag(truths)], classes, {"mle": [probability]}, **kwargs).shown
    return predicted


def render(wall: Wall, tmp_path, *before) -> str:
    page = Page("x", blocks=[*before, wall], look=styles(wall.methods))
    return write_page(page, tmp_path / "p.html").read_text(encoding="utf-8").partition("<body")[2]


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
def test_known_counts(evidence, text):
    assert known_text(Bags([0, 7], evidence)[0], ("even", "odd")) == text


def test_known_counts_of_several_classes():
    bag = Bags([0, 6], [[1, 2, 3]])[0]
    assert known_text(bag, ("cat", "dog", "bird")) == "1 cat, 2 dog, 3 bird"


def test_bags_follow_the_rows_of_the_table():
    bags = Bags([0, 1, 3], [0, 1], rows=[4, 2, 0], num_rows=5, ids=["x", "y"])
    images = torch.arange(5, dtype=torch.uint8)[:, None, None, None].expand(5, 1, 2, 2)
    truth = torch.tensor([1, 0, 0, 0, 0])
    _, shown = wall_bags(bags, images, truth=truth, class_names=("no", "yes"))
    assert (shown.id, shown.known) == ("y", "1 of 2 yes")
    assert [int(i.image[0, 0, 0]) for i in shown.instances] == [2, 0]
    assert [i.truth for i in shown.instances] == [0, 1]


def test_only_the_images_that_are_shown_are_loaded():
    asked = []

    class Files:
        def load(self, rows: list[int]) -> torch.Tensor:
            asked.append(rows)
            return torch.zeros(len(rows), 3, 4, 4, dtype=torch.uint8)

    [shown] = wall_bags(Bags([0, 2, 4], [1, 1])[1:], Files(), class_names=("no", "yes"))
    assert asked == [[2, 3]]
    assert shown.instances[0].image.shape == (3, 4, 4)


def test_rows_have_captions():
    features, words = torch.tensor([[1.0, -2.5]] * 2), {"captions": ["one", "two"]}
    shown = wall_bags(Bags([0, 1, 2], [1, 0]), features, class_names=("no", "yes"), **words)
    assert [bag.instances[0].caption for bag in shown] == ["one", "two"]
    assert shown[0].instances[0].image is None


def test_predictions_are_compared_with_the_truth():
    shown = one_bag([0.9, 0.8, 0.2], [0, 1, 0])
    assert [one.label for one in shown.instances] == ["yes", "yes", "no"]
    assert [one.right for one in shown.instances] == [False, True, True]
    assert shown.right == 2
    assert one_bag([0.9]).instances[0].right is None


def test_expected_counts_are_sums_of_probabilities():
    assert one_bag([0.4] * 100).expected == "40.0 of 100 yes"  # none is labelled yes
    many = one_bag([[0.7, 0.2, 0.1], [0.2, 0.3, 0.5]], classes=("cat", "dog", "bird"))
    assert many.expected == "0.9 cat, 0.5 dog, 0.6 bird"


def test_several_classes_name_the_likeliest():
    posterior = {"mle": [[[0.1, 0.8, 0.1]]]}
    shown = one_bag([[0.2, 0.3, 0.5]], [1], ("cat", "dog", "bird"), posterior=posterior)
    [prediction] = shown.instances
    assert (prediction.label, prediction.text, prediction.right) == ("bird", "bird 50%", False)
    assert prediction.posterior_text == "10%"  # of the class that is named


def test_two_columns_are_two_classes():
    [prediction] = one_bag([[0.7, 0.3]], [0]).instances
    assert (prediction.text, prediction.right) == ("yes 30%", True)


@pytest.mark.parametrize(
    ("p", "text"), [(1.0, ">99%"), (0.0, "<1%"), (0.991, ">99%"), (0.5, "50%")]
)
def test_no_number_claims_certainty(p, text):
    [prediction] = one_bag(np.float32([p])).instances
    assert prediction.text == f"yes {text}"


def test_large_bags_are_cut_and_counted(tmp_path):
    wall = Wall([bag([1] * 40)], ("no", "yes"), {"mle": [[0.9] * 40]})
    [(large, [predicted])] = wall.shown
    assert (len(large.shown), large.more, predicted.right) == (12, 28, 40)
    assert "and 28 more instances" in render(wall, tmp_path)


def test_empty_bags_are_an_ordinary_case(tmp_path):
    empty = wall_bags(Bags([0, 0], [0]), torch.zeros(0, 1, 4, 4), class_names=("no", "yes"))
    assert "0 of 0 yes" in render(Wall(empty, ("no", "yes"), {"mle": [[]]}), tmp_path)


def test_the_example_is_the_first_easy_bag_of_mixed_labels():
    bags = [bag([1] * 4, "pure"), bag([0, 0, 0, 1], "wrong"), bag([0, 0, 0, 1], "right")]
    predictions = [[0.9] * 4, [0.9] * 4, [0.1, 0.1, 0.1, 0.9]]
    example, [predicted] = Wall(bags, ("no", "yes"), {"mle": predictions}).example
    assert (example.id, predicted.right) == ("wrong", 1)  # not the flattering third bag


def test_supervised_alone_has_no_example(tmp_path):
    wall = Wall([bag([0, 1])], ("no", "yes"), {"supervised": [[0.1, 0.9]]}, bounds=["supervised"])
    assert 'class="example' not in render(wall, tmp_path, Example(wall))
    with_mle = replace(wall, probability={**wall.probability, "mle": [[0.1, 0.9]]})
    assert 'class="example' in render(with_mle, tmp_path, Example(with_mle))


def test_upper_bounds_are_last():
    methods = {key: [] for key in ("supervised", "mle", "dllp")}
    wall = Wall([], ("no", "yes"), methods, bounds=["supervised"])
    assert wall.methods == ["mle", "dllp", "supervised"]


def test_without_truth_nothing_is_marked(tmp_path):
    wall = Wall([bag([None, None])], ("no", "yes"), {"mle": [[0.9, 0.2]]})
    text = render(wall, tmp_path, Example(wall))
    assert 'class="mark' not in text
    assert "✗" not in text


@pytest.mark.parametrize(
    ("shape", "kind", "size"),
    [
        ((1, 8, 8), "png", (8, 8)),
        ((3, 32, 32), "png", (32, 32)),
        ((3, 90, 72), "jpeg", (72, 90)),
        ((1, 200, 400), "jpeg", (112, 56)),
    ],
)
def test_images_keep_their_form(tmp_path, shape, kind, size):
    image = np.full(shape, 200, np.uint8)
    wall = Wall([bag([None], image=image)], ("no", "yes"), {"mle": [[0.5]]})
    uri = re.search(rf'src="data:image/{kind};base64,([^"]+)"', render(wall, tmp_path))[1]
    with Image.open(io.BytesIO(base64.b64decode(uri))) as picture:
        assert picture.size == size
        assert picture.mode == ("L" if shape[0] == 1 else "RGB")


@pytest.mark.parametrize(
    "images", [torch.zeros(2, 1, 4, 4), torch.zeros(2, 4, 4, 4, dtype=torch.uint8)]
)
def test_images_that_cannot_be_shown_are_numbered(images):
    [shown] = wall_bags(Bags([0, 2], [1]), images, class_names=("no", "yes"))
    assert [(i.image, i.caption) for i in shown.instances] == [
        (None, "instance 1 of bag 0"),
        (None, "instance 2 of bag 0"),
    ]
