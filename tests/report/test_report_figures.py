"""The figures: what is drawn, that it is drawn for both themes, that labels do not collide."""

import math
import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg

from llpkit.report import (
    Calibration,
    Interval,
    Series,
    SizePoint,
    fold_curves,
    intervals,
    size_curves,
    summarise,
)
from llpkit.report._figures import (
    epoch_times,
    learning_curves,
    mean_line,
    reliability,
    spread,
    time_curves,
)
from llpkit.report._style import DARK, LIGHT, css_variables, styles, to_bytes, to_svg


def runs(method: str, *histories: list[float], key: str = "test_accuracy") -> list[Series]:
    return [
        Series(method, i, [{"epoch": e + 1, "seconds": 1.0, key: v} for e, v in enumerate(values)])
        for i, values in enumerate(histories)
    ]


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_every_colour_can_be_read_on_its_page():
    light, dark = css_variables()
    assert light.keys() == dark.keys()
    for name in light.keys() - {"grid"}:
        assert contrast(light[name], "#ffffff") >= 4.5, name
        assert contrast(dark[name], "#1b1f24") >= 4.5, name


def test_no_two_colours_are_equal():
    light, _ = css_variables()
    assert len(set(light.values())) == len(light)  # else the SVG would take the wrong variable


def test_methods_keep_their_look_and_unknown_ones_take_turns():
    alone, among = styles(["mle"]), styles(["new", "supervised", "mle", "newer"])
    assert alone["mle"] == among["mle"]
    assert len({style.light for style in among.values()}) == 4
    assert among["mle"].width == max(style.width for style in among.values())
    assert len(styles(f"method {i}" for i in range(9))) == 9


def test_band_is_the_standard_deviation_over_runs():
    line = mean_line(
        "mle", styles(["mle"])["mle"], runs("mle", [0.5, 0.8], [0.7, 0.8]), "test_accuracy", "epoch"
    )
    assert line.y == pytest.approx([0.6, 0.8])
    assert line.sd == pytest.approx([math.sqrt(0.02), 0])


def test_means_are_taken_where_all_runs_have_a_value():
    uneven = runs("mle", [0.5, 0.6, 0.7], [0.5, math.nan])
    line = mean_line("mle", styles(["mle"])["mle"], uneven, "test_accuracy", "epoch")
    assert line.x == [1.0]


def test_time_adds_up_over_epochs():
    line = mean_line(
        "mle", styles(["mle"])["mle"], runs("mle", [0.5, 0.6, 0.7]), "test_accuracy", "seconds"
    )
    assert line.x == [1.0, 2.0, 3.0]


def test_one_method_shows_training_beside_held_out():
    rows = [
        {"epoch": e, "seconds": 0.1, "loss": 1 / e, "log_likelihood": -1 / e,
         "held_out_log_likelihood": -2 / e}
        for e in range(1, 5)
    ]  # fmt: skip
    plots = learning_curves([Series("mle", 0, rows, selected_epoch=3)], styles(["mle"]))
    assert [plot.name for plot in plots] == ["log-likelihood", "loss"]
    assert "training ends at -0.25; held out ends at -0.5" in plots[0].alt
    assert "epoch 3 were kept" in plots[0].alt


def test_several_methods_are_compared():
    series = runs("mle", [0.5, 0.9], [0.6, 0.9]) + runs("dllp", [0.5, 0.8])
    [plot] = learning_curves(series, styles(["mle", "dllp"]))
    assert plot.name == "accuracy"
    assert "mle ends at 90.0 %; dllp ends at 80.0 %" in plot.alt


@pytest.mark.parametrize("value", [0.5, math.nan, 0.0])
def test_a_single_epoch_is_drawn(value):
    series = runs("mle", [value]) + runs("dllp", [value])
    look = styles(["mle", "dllp"])
    assert len(learning_curves(series, look)) == (not math.isnan(value))
    assert (time_curves(series, look) is None) == math.isnan(value)


def test_times_name_the_ratio():
    series = runs("supervised", [0.9, 0.9]) + runs("mle", [0.9, 0.9])
    plot = epoch_times(summarise(series), styles(["supervised", "mle"]))
    assert "mle 1.00 s · 1.00×" in plot.alt
    assert epoch_times([], {}) is None


def test_reliability_says_its_numbers():
    look = styles(["mle"])["mle"]
    plot = reliability(Calibration("mle", [0.1, 0.9], [0.2, 0.9], [30, 10]), look)
    assert "calibration error 0.075: predicted 0.10 observed 0.20" in plot.alt
    assert reliability(Calibration("mle", [], [], []), look) is None


@given(
    st.lists(st.floats(-50, 250), max_size=9),
    st.floats(0.1, 40),
)
def test_labels_never_touch_and_keep_their_order(wanted, gap):
    placed = spread(wanted, gap, 0.0, 200.0)
    room = min(gap, 200.0 / max(len(wanted) - 1, 1))
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    at = [placed[i] for i in order]
    assert all(b - a >= room - 1e-6 for a, b in pairwise(at))
    assert all(-1e-6 <= place <= 200 + 1e-6 for place in placed)


def test_labels_with_room_stay_where_they_are():
    assert spread([10.0, 100.0, 50.0], 12, 0, 200) == [10.0, 100.0, 50.0]


@pytest.fixture(scope="module")
def svg() -> str:
    hostile = 'a<b>&"$x_1$'
    series = runs(hostile, [0.5, 0.9], [0.6, 0.9]) + runs("mle", [0.5, 0.8])
    [plot] = learning_curves(series, styles([hostile, "mle"]))
    return str(to_svg(plot.figure, plot.name, plot.alt))


def test_svg_takes_its_colours_from_the_page(svg):
    assert "var(--m-mle)" in svg
    assert "var(--ink)" in svg
    assert re.findall(r"#[0-9a-f]{6}\b", svg) == []
    assert set(LIGHT) == set(DARK)


def test_svg_text_is_text_and_escaped(svg):
    texts = [element.text for element in _elements(svg, "text")]
    assert 'a<b>&"$x_1$' in texts
    assert "mle" in texts
    assert "<b>" not in svg


def test_svg_has_a_name_and_asks_for_nothing(svg):
    root = _elements(svg, "svg")[0]
    assert root.get("role") == "img"
    assert root.get("aria-label").startswith("Accuracy on test instances by epoch")
    assert "http" not in svg


def test_svg_ids_do_not_clash_between_figures():
    look = styles(["mle"])
    ids = []
    for curve in (Calibration("mle", [0.1], [0.2], [3]), Calibration("mle", [0.5], [0.2], [3])):
        plot = reliability(curve, look["mle"])
        ids += set(re.findall(r'id="([^"]+)"', to_svg(plot.figure, str(curve), plot.alt)))
    assert len(ids) == len(set(ids)) > 0


def test_the_same_figure_gives_the_same_bytes():
    look = styles(["mle"])
    curve = Calibration("mle", [0.1, 0.9], [0.2, 0.8], [3, 4])
    first, second = (reliability(curve, look["mle"]).figure for _ in range(2))
    assert to_svg(first, "a", "") == to_svg(second, "a", "")
    for kind in ("png", "pdf"):
        assert to_bytes(first, kind) == to_bytes(second, kind)


def _elements(svg: str, name: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(svg.replace("<svg ", '<svg xmlns:xlink="x" ', 1))
    return [element for element in root.iter() if element.tag == name]


def test_bands_are_within_the_frame():
    series = runs("mle", [0.5, 0.6, 0.95], [0.5, 0.6, 0.65])  # 0.80 ± 0.21 at the end
    [plot] = learning_curves(series, styles(["mle"]))[:1]
    low, high = plot.figure.axes[0].get_ylim()
    assert low < 0.6
    assert 1.0 <= high < 1.1  # a band of accuracy is cut at 100 %


def test_a_size_with_one_fold_has_no_band():
    def bands(points):
        plot = size_curves([SizePoint("mle", *p) for p in points], styles(["mle"]), "name", "title")
        paths = [path for each in plot.figure.axes[0].collections for path in each.get_paths()]
        return sorted({round(x) for path in paths for x in path.vertices[:, 0]})

    assert bands([(2, 0.9, 0.1), (4, 0.8, 0.1), (8, 0.7, None)]) == [2, 4]
    assert bands([(2, 0.9, None), (4, 0.8, None)]) == []


def test_a_single_size_has_an_error_bar():
    plot = size_curves([SizePoint("mle", 16, 0.8, 0.1)], styles(["mle"]), "name", "title")
    [bar] = plot.figure.axes[0].containers
    [[low, high]] = bar.lines[2][0].get_segments()
    assert (low[1], high[1]) == pytest.approx((0.7, 0.9))


def test_the_last_epoch_has_a_tick():
    for last in (1, 2, 8, 40, 100, 120):
        history = [{"epoch": e + 1, "test_accuracy": 0.5} for e in range(last)]
        [plot] = fold_curves([Series("mle", 0, history)], styles(["mle"]), "x")
        ticks = plot.figure.axes[0].get_xticks().tolist()
        assert ticks[-1] == last
        assert ticks == sorted(set(ticks))


def test_one_unlike_fold_in_the_first_half_does_not_flatten_the_curves():
    even = [-1.0 + 0.005 * e for e in range(100)]
    wild = [-60.0 if e == 30 else value for e, value in enumerate(even)]
    series = runs("mle", *[even] * 9, wild, key="test_log_likelihood")
    [plot] = fold_curves(series, styles(["mle"]), "x")
    low, high = plot.figure.axes[0].get_ylim()
    assert -2.2 < low < -1.0  # the first epoch is in sight; the mean of epoch 30, -6.8, is not
    assert -0.51 < high < -0.3


def test_bars_of_equal_bins_stand_in_the_middle_of_them():
    curve = Calibration("mle", [0.02, 0.49, 1.0], [0.1, 0.5, 1.0], [1234, 10, 5])
    plot = reliability(curve, styles(["mle"])["mle"], 10)
    below = plot.figure.axes[1]
    centres = [bar.get_x() + bar.get_width() / 2 for bar in below.patches]
    assert centres == pytest.approx([0.05, 0.45, 0.95])
    FigureCanvasAgg(plot.figure).draw()
    assert min(t.get_window_extent().x0 for t in below.get_yticklabels()) > 0
    assert below.yaxis.label.get_window_extent().x0 >= 0


def test_intervals_of_any_length_are_written_in_full():
    rows = [Interval("mle", -0.04, -1.0, 1.0), Interval("llp-gan", 15.0, -13.5, 116.5)]
    plot = intervals(rows, styles(["mle", "llp-gan"]), "name", "title")
    FigureCanvasAgg(plot.figure).draw()
    ends = {text.get_text(): text.get_window_extent().x1 for text in plot.figure.axes[0].texts}
    assert {"+0.0 (−1.0 to +1.0)", "+15.0 (−13.5 to +116.5)"} < set(ends)
    assert max(ends.values()) <= plot.figure.bbox.x1
