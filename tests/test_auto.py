"""The default method: the rules, and that a fit follows them."""

import pytest
import torch

import llpkit
from llpkit import Evidence, LLPError, methods
from llpkit.auto import (
    FEW_BAGS,
    LONG,
    MANY_COUNTS,
    MANY_ROWS,
    look_random,
    pick_estimator,
    pick_method,
)
from llpkit.estimators.registry import make
from llpkit.recipe import Recipe


def bags(number, size, num_classes=None):
    counts = [size // 2] * number
    if num_classes:
        counts = [[size - num_classes + 1] + [1] * (num_classes - 1)] * number
    return llpkit.Bags(torch.arange(number + 1) * size, counts)


@pytest.mark.parametrize(
    ("number", "size", "expected"),
    [
        (FEW_BAGS - 1, 50, "logistic"),
        (FEW_BAGS, 50, "ensemble"),
        (1000, 8, "ensemble"),
        (MANY_ROWS // 100, 100, "hist-gradient-boosting"),
    ],
)
def test_estimators_by_the_number_of_bags_and_rows(number, size, expected):
    pick = pick_estimator(bags(number, size))
    assert pick.name == expected
    assert f"{number:,} bag" in pick.reason or f"{number * size:,} row" in pick.reason
    make(pick.name, {}, seed=0)


def test_methods_by_the_length_of_training_and_the_room_in_a_step():
    some = bags(100, 8)
    short, long = Recipe(epochs=2), Recipe(epochs=-(-LONG * 128 // 800))
    assert pick_method(some, short, of_images=True).name == "direct"
    assert pick_method(some, long, of_images=True).name == "mle"
    assert pick_method(some, long, of_images=False).name == "direct"
    large = pick_method(bags(10, 100), short, of_images=True)
    assert large.name == "teacher"
    assert "two bags of 100" in large.reason


def test_large_bags_by_their_number_and_whether_they_look_random():
    labels = torch.arange(3000) % 3
    how = Recipe(epochs=2, batch_size=512)
    classes = llpkit.random_bags(labels, 50, generator=0, num_classes=3)
    by_class = llpkit.Bags.from_labels((labels.sort().values > 0).long(), torch.arange(3000) // 50)
    binary = llpkit.random_bags((labels > 0).long(), 50, generator=0)
    assert look_random(classes)
    assert look_random(binary)
    assert not look_random(by_class)
    half = MANY_COUNTS // 2
    few = ((classes[:half], "teacher"), (binary[:half], "dsq"), (by_class[10:30], "direct"))
    for some, expected in (*few, (classes[: half - 1], "dsq"), (binary, "teacher")):
        assert pick_method(some, how, of_images=True).name == expected
    small = llpkit.random_bags((labels > 0).long(), 8, generator=0)
    assert pick_method(small, how, of_images=True).name == "direct"
    # Random bags look random nearly always.
    draws = [
        look_random(llpkit.random_bags(labels, 20, generator=s, num_classes=3)) for s in range(50)
    ]
    assert sum(draws) >= 48


@pytest.mark.parametrize("size", [4, 50, 100])
@pytest.mark.parametrize("num_classes", [None, 3])
@pytest.mark.parametrize("of_images", [True, False])
def test_several_processes_get_a_method_that_they_can_share(size, num_classes, of_images):
    labels = torch.arange(600) % (num_classes or 2)
    some = llpkit.random_bags(labels, size, generator=0, num_classes=num_classes)
    pick = pick_method(some, Recipe(epochs=2), of_images, many_processes=True)
    assert methods.METHODS[pick.name].shardable


def test_a_fit_without_a_method_follows_the_pick(capfd):
    x = torch.randn(80, 3)
    some = llpkit.random_bags((x[:, 0] > 0).long(), 4, generator=0)
    how = {"epochs": 2, "device": "cpu"}
    model = llpkit.fit("linear", some, x, **how)
    name = model.details["settings"]["method"]
    assert model.details["picked"].startswith(f"{name}: ")
    assert f"method: {model.details['picked']}" in capfd.readouterr().err
    same = llpkit.fit("linear", some, x, name, progress=False, **how)
    assert torch.equal(model.predict_proba(x), same.predict_proba(x))
    assert "picked" not in same.details
    recipe = Recipe(method="auto", epochs=2)
    again = llpkit.fit("linear", some, x, recipe=recipe, progress=False, device="cpu")
    assert torch.equal(model.predict_proba(x), again.predict_proba(x))


def test_a_stopped_fit_resumes_with_the_method_that_was_picked(tmp_path):
    x = torch.randn(80, 3)
    some = llpkit.random_bags((x[:, 0] > 0).long(), 4, generator=0)
    how = {"epochs": 2, "device": "cpu", "progress": False, "run_dir": tmp_path}
    first = llpkit.fit("linear", some, x, **how)
    again = llpkit.fit("linear", some, x, resume=True, **how)
    assert again.history == first.history


@pytest.mark.parametrize("of_images", [True, False])
def test_the_pick_takes_imprecise_counts(of_images):
    some = bags(20, 4)
    wide = Evidence.interval(some.counts, some.counts + 1)
    imprecise = llpkit.Bags(some.offsets, wide)
    pick = pick_method(imprecise, Recipe(), of_images)
    assert not methods.METHODS[pick.name].needs_exact_counts
    assert pick_estimator(imprecise).name == "ensemble"


def test_options_go_to_the_method_that_is_picked():
    x = torch.randn(8, 3)
    with pytest.raises(LLPError, match="has no option 'speed'"):
        llpkit.fit("linear", bags(2, 4), x, method_options={"speed": 1}, progress=False)
