"""The figures: what is drawn, in both themes, with labels that do not collide."""

import math
import re
import xml.etree.ElementTree as ElementTree
from importlib.resources import files
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg

from llpkit import evaluation
from llpkit.report import (
    Spread,
    epoch_curves,
    importance_bars,
    present,
    reliability,
    run_curves,
    size_curves,
    styles,
)
from llpkit.report.curves import mean_line, points
from llpkit.report.lines import spread
from llpkit.report.style import css_variables

MLE = styles(["mle"])["mle"]


def runs(method: str, *curves: list[float], key: str = "test_accuracy") -> dict[str, list]:
    return {method: [[{"epoch": e, key: v} for e, v in enumerate(its, 1)] for its in curves]}


def accuracy(every: dict[str, list], key: str = "test_accuracy", percent: bool = True):
    return epoch_curves(every, styles(every), "accuracy", "Accuracy", key, percent=percent)


# Styles


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_every_colour_is_readable_and_unique():
    light, dark = css_variables()
    page = files("llpkit.report").joinpath("templates/page.css").read_text(encoding="utf-8")
    on_light, on_dark = re.findall(r"--card: (#\w{6})", page)
    assert light.keys() == dark.keys()
    assert len(set(light.values())) == len(light)  # else the SVG would take the wrong variable
    for name in light.keys() - {"grid"}:
        assert contrast(light[name], on_light) >= 4.5, name
        assert contrast(dark[name], on_dark) >= 4.5, name


def test_methods_keep_their_look_and_unknown_ones_take_turns():
    among = styles(["new", "supervised", "mle", "newer"])
    assert among["mle"] == MLE
    assert len({style.light for style in among.values()}) == 4
    assert len(styles(f"method {i}" for i in range(9))) == 9


# Runs


def test_values_that_are_not_finite_are_left_out():
    [history] = runs("mle", [0.7, 0.9, math.nan])["mle"]
    assert points(history, "test_accuracy") == {1: 0.7, 2: 0.9}
    assert points(history, "nothing") == {}


# Curves


def test_a_line_is_the_mean_over_runs():
    line = mean_line("mle", MLE, runs("mle", [0.5, 0.8], [0.7, 0.8])["mle"], "test_accuracy")
    assert line.y == pytest.approx([0.6, 0.8])
    assert line.sd == pytest.approx([math.sqrt(0.02), 0])
    uneven = runs("mle", [0.5, 0.6, 0.7], [0.5, math.nan])
    assert mean_line("mle", MLE, uneven["mle"], "test_accuracy").x == [1]


def test_a_run_shows_training_beside_held_out():
    rows = [
        {"epoch": e, "loss": 1 / e, "log_likelihood": -1 / e, "held_out_log_likelihood": -2 / e}
        for e in range(1, 5)
    ]
    figures = present(run_curves("mle", rows, MLE, selected=3))
    assert [figure.name for figure in figures] == ["log-likelihood", "loss"]
    assert "training ends at -0.25; held out ends at -0.5" in figures[0].alt
    assert "Epoch 3 was selected" in figures[0].alt


@pytest.mark.parametrize(("selected", "side"), [(1, "left"), (6, "left"), (20, "right")])
def test_the_mark_of_the_selected_epoch_leaves_the_axis_free(selected, side):
    [history] = runs("mle", [e / 20 for e in range(1, 21)])["mle"]
    [figure] = present(run_curves("mle", history, MLE, selected=selected))
    [mark] = [text for text in figure.drawing.axes[0].texts if text.get_text() == "selected"]
    assert mark.get_ha() == side


def test_methods_are_compared():
    figure = accuracy(runs("mle", [0.5, 0.9], [0.6, 0.9]) | runs("dllp", [0.5, 0.8]))
    assert "mle ends at 90.0%; dllp ends at 80.0%" in figure.alt


@pytest.mark.parametrize("value", [0.5, math.nan, 0.0])
def test_a_single_epoch_is_drawn(value):
    series = runs("mle", [value]) | runs("dllp", [value])
    assert (accuracy(series) is None) == math.isnan(value)


def test_bands_are_within_the_frame():
    figure = accuracy(runs("mle", [0.5, 0.6, 0.95], [0.5, 0.6, 0.65]))  # 0.80 ± 0.21 at the end
    low, high = figure.drawing.axes[0].get_ylim()
    assert low < 0.6
    assert 1.0 <= high < 1.1  # a band of accuracy is cut at 100 %


def test_one_unusual_fold_in_the_first_half_does_not_flatten_the_curves():
    even = [-1.0 + 0.005 * e for e in range(100)]
    wild = [-60.0 if e == 30 else value for e, value in enumerate(even)]
    series = runs("mle", *[even] * 9, wild, key="test_log_likelihood")
    figure = accuracy(series, "test_log_likelihood", percent=False)
    low, high = figure.drawing.axes[0].get_ylim()
    assert -2.2 < low < -1.0  # the first epoch is in sight; the mean of epoch 30, -6.8, is not
    assert -0.51 < high < -0.3


@pytest.mark.parametrize("last", [1, 2, 8, 40, 100, 120])
def test_the_last_epoch_has_a_tick(last):
    ticks = accuracy(runs("mle", [0.5] * last)).drawing.axes[0].get_xticks().tolist()
    assert ticks[-1] == last
    assert ticks == sorted(set(ticks))


def test_a_size_with_one_fold_has_no_band():
    def bands(*points):
        accuracies = {size: Spread(mean, sd) for size, mean, sd in points}
        figure = size_curves({"mle": accuracies}, {"mle": MLE}, "name", "title")
        paths = [path for each in figure.drawing.axes[0].collections for path in each.get_paths()]
        return sorted({round(x) for path in paths for x in path.vertices[:, 0]})

    assert bands((2, 90, 10), (4, 80, 10), (8, 70, None)) == [2, 4]
    assert bands((2, 90, None), (4, 80, None)) == []


def test_a_single_size_has_an_error_bar():
    figure = size_curves({"mle": {16: Spread(80, 10)}}, {"mle": MLE}, "name", "title")
    [bar] = figure.drawing.axes[0].containers
    [[low, high]] = bar.lines[2][0].get_segments()
    assert (low[1], high[1]) == pytest.approx((0.7, 0.9))


@given(st.lists(st.floats(-50, 250), max_size=9), st.floats(0.1, 40))
def test_labels_never_touch_and_keep_their_order(wanted, gap):
    placed = spread(wanted, gap, 0.0, 200.0)
    room = min(gap, 200.0 / max(len(wanted) - 1, 1))
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    at = [placed[i] for i in order]
    assert all(b - a >= room - 1e-6 for a, b in pairwise(at))
    assert all(-1e-6 <= place <= 200 + 1e-6 for place in placed)


def test_labels_with_room_stay_where_they_are():
    assert spread([10.0, 100.0, 50.0], 12, 0, 200) == [10.0, 100.0, 50.0]


# Bars and calibration


def test_importances_beyond_the_first_fifteen_are_counted():
    figure = importance_bars([(f"c{i}", 1.0, 0.1) for i in range(20)], MLE)
    assert "c14 1.000; 5 more columns are not shown" in figure.alt


def test_calibration_without_instances_has_no_figure():
    nothing = torch.empty(0)
    assert reliability("mle", evaluation.Calibration(nothing, nothing, nothing), MLE, "c") is None


def test_bars_stand_in_the_middle_of_their_bins():
    p = torch.tensor([0.02, 0.49, 1.0]).repeat_interleave(torch.tensor([1234, 10, 5]))
    drawing = reliability("mle", evaluation.calibration(p, p.round().long()), MLE, "c").drawing
    below = drawing.axes[1]
    centres = [bar.get_x() + bar.get_width() / 2 for bar in below.patches]
    assert centres == pytest.approx([0.05, 0.45, 0.95])
    FigureCanvasAgg(drawing).draw()
    assert min(t.get_window_extent().x0 for t in below.get_yticklabels()) > 0
    assert below.yaxis.label.get_window_extent().x0 >= 0


# Files


@pytest.fixture(scope="module")
def svg() -> str:
    return str(accuracy(runs('a<b>&"$x_1$', [0.5, 0.9], [0.6, 0.9]) | runs("mle", [0.5])).svg())


def test_svg_is_escaped_named_and_takes_its_colours_from_the_page(svg):
    root = ElementTree.fromstring(svg.replace("<svg ", '<svg xmlns:xlink="x" ', 1))
    texts = [element.text for element in root.iter() if element.tag == "text"]
    assert {'a<b>&"$x_1$', "mle"} <= set(texts)
    assert root.get("role") == "img"
    assert root.get("aria-label").startswith("Accuracy by epoch")
    assert re.findall(r"#[0-9a-f]{6}\b", svg) == []
    assert "http" not in svg
    assert "<b>" not in svg


def test_svg_ids_do_not_clash_between_figures():
    curves = [evaluation.calibration([p], [0]) for p in (0.1, 0.5)]
    figures = [reliability("mle", curve, MLE, f"c{i}") for i, curve in enumerate(curves)]
    ids = [i for figure in figures for i in set(re.findall(r'id="([^"]+)"', figure.svg()))]
    assert len(ids) == len(set(ids)) > 0


def test_the_same_figure_gives_the_same_bytes():
    curve = evaluation.calibration([0.1, 0.9], [0, 1])
    first, second = (reliability("mle", curve, MLE, "c") for _ in range(2))
    assert first.svg() == second.svg()
    for kind in ("png", "pdf"):
        assert first.contents(kind) == second.contents(kind)
