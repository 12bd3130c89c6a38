"""The page as a file: written whole, escaped, offline, small; every part only where it applies."""

import base64
import io
import os
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from PIL import Image

from llpkit import Bags
from llpkit.errors import LLPError
from llpkit.report import (
    Calibration,
    Page,
    Series,
    WallBag,
    WallInstance,
    summarise,
    wall_bags,
    write_page,
)

VOID = {"meta", "img", "input", "br", "link"}


class Reader(HTMLParser):
    """Collects tags, addresses, ids and text; notices tags that do not close."""

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.addresses, self.ids, self.open, self.texts = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "action", "data", "srcset"):
                self.addresses.append(value)
            if name == "id":
                self.ids.append(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.texts.append(data.strip())


@pytest.fixture(scope="module")
def written(demo, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    path = write_page(demo, folder / "new" / "report.html", figures_dir=folder / "figures")
    return path, path.read_text(encoding="utf-8")


def render(page: Page, tmp_path) -> str:
    return write_page(page, tmp_path / "report.html").read_text(encoding="utf-8")


def instance(probability, image=None, **kwargs):
    return WallInstance(image, "some instance", probability, **kwargs)


def test_page_is_well_formed(written):
    reader = Reader(written[1])
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    assert reader.tags.count("h1") == 1


def test_page_asks_for_nothing_and_runs_nothing(written):
    reader = Reader(written[1])
    assert reader.addresses
    assert [a for a in reader.addresses if not re.match(r"data:image/(png|jpeg);|#", a)] == []
    assert not {"script", "link", "iframe", "object"} & set(reader.tags)
    assert re.findall(r"https?:|@import|url\((?!#)", written[1]) == []
    assert "default-src 'none'" in written[1]


def test_page_is_small(written):
    assert written[0].stat().st_size < 2_000_000


def test_page_escapes_what_users_wrote(written):
    assert "<script" not in written[1]
    assert "Bag &lt;script&gt;alert(&#39;bag&#39;)&lt;/script&gt; &amp; $\\frac" in written[1]
    assert "<h1>Odd digits &lt;learnt&gt; from counts</h1>" in written[1]


@pytest.mark.parametrize("field", ["title", "lead", "facts", "notes", "environment", "wall_note"])
def test_every_text_is_escaped(demo, tmp_path, field):
    bad = "<img src=x onerror=alert(1)>"
    value = {"title": bad, "wall_note": bad, "facts": {bad: bad}, "environment": {bad: bad}}
    small = replace(demo, series=(), calibrations=())
    text = render(replace(small, **{field: value.get(field, [bad])}), tmp_path)
    assert bad not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text


def test_methods_and_classes_are_escaped(tmp_path):
    bad = "</style><script>"
    series = [Series(bad, 0, [{"epoch": 1, "seconds": 1.0, "test_accuracy": 0.5}])]
    wall = {bad: [WallBag("a", bad, [instance(0.7, truth=0), instance(0.2, truth=1)])]}
    page = Page(
        "x", class_names=(bad, bad + "2"), summary=summarise(series), series=series, wall=wall
    )
    text = render(page, tmp_path)
    assert "<script" not in text
    assert text.count("</style>") == 1


def test_figures_are_files_too(written):
    names = {path.name for path in (written[0].parents[1] / "figures").iterdir()}
    assert {"accuracy.png", "accuracy.pdf", "epoch-time.png", "calibration-mle.pdf"} <= names
    with Image.open(written[0].parents[1] / "figures" / "accuracy.png") as image:
        assert image.width > 900
        assert image.getpixel((0, 0))[:3] == (255, 255, 255)


def test_file_names_of_figures_stay_in_their_folder(tmp_path):
    calibrations = [Calibration("../../up/ü", [0.2, 0.8], [0.3, 0.7], [5, 5])]
    write_page(
        Page("x", calibrations=calibrations),
        tmp_path / "deep" / "report.html",
        figures_dir=tmp_path / "deep" / "figures",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    assert len(list((tmp_path / "deep" / "figures").iterdir())) == 2


def test_a_failed_write_leaves_the_old_page(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    write_page(Page("old"), path)

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(LLPError, match="disk full"):
        write_page(Page("new"), path)
    assert "<h1>old</h1>" in path.read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == [path]


def test_the_same_page_gives_the_same_file(demo, written, tmp_path):
    assert render(demo, tmp_path) == written[1]


def test_summary_marks_the_best_learner_and_not_the_bound(written):
    table = re.search(r"<tbody>.*?</tbody>", written[1], re.S)[0]
    rows = re.findall(r"<tr.*?</tr>", table, re.S)
    assert [re.search(r"</i>(.*?)</th>", row)[1] for row in rows] == [
        "mle",
        "direct",
        "dllp",
        "llp-gan",
        "supervised",
    ]
    assert re.search(r'class="best">96\.\d ± 0\.\d %<', rows[0])
    assert "class=" not in rows[3].replace('class="swatch"', "")
    assert 'class="best"' not in rows[4]
    assert "Mean ± standard deviation over 3 seeds." in written[1]


def test_methods_equal_to_the_shown_digit_are_both_best(tmp_path):
    series = [
        Series(method, 0, [{"epoch": 1, "test_accuracy": value}])
        for method, value in (("mle", 0.90001), ("direct", 0.90004), ("dllp", 0.8))
    ]
    text = render(Page("x", summary=summarise(series)), tmp_path)
    assert text.count('<td class="best">90.0 %</td>') == 2


def test_one_run_needs_no_rivals(tmp_path):
    series = [Series("mle", 0, [{"epoch": 1, "seconds": 1.0, "loss": 0.5, "log_likelihood": -1.5}])]
    text = render(Page("One run", summary=summarise(series), series=series), tmp_path)
    assert "−1.50" in text
    assert "Values are those of the last epoch." in text
    for absent in ("Ratio", "Gap", "Accuracy", 'class="best"', "bound", "Calibration", "A wall"):
        assert absent not in text.partition("</style>")[2], absent


def test_kept_epoch_is_said(tmp_path):
    series = [Series("mle", 0, [{"epoch": 1, "loss": 0.5, "log_likelihood": -1}], selected_epoch=1)]
    text = render(Page("x", summary=summarise(series), series=series), tmp_path)
    assert "the epoch whose weights were kept" in text


def test_folds_are_called_folds(demo, tmp_path):
    text = render(replace(demo, series=(), calibrations=(), wall={}, repeats="fold"), tmp_path)
    assert "over 3 folds" in text


def test_example_is_the_first_easy_bag_of_mixed_labels(tmp_path):
    bags = [
        WallBag("pure", "4 of 4 odd", [instance(0.9, truth=1)] * 4),
        WallBag("wrong", "1 of 4 odd", [instance(0.9, truth=0)] * 3 + [instance(0.9, truth=1)]),
        WallBag("right", "1 of 4 odd", [instance(0.1, truth=0)] * 3 + [instance(0.9, truth=1)]),
    ]
    text = render(Page("x", wall={"mle": bags}), tmp_path)
    assert '<p class="told">1 of 4 right</p>' in text  # not the flattering third bag


def test_mle_opens_the_page(written):
    first = written[1].index('id="show-0"')
    assert written[1][first:].split("</label>")[0].endswith("mle")


def test_supervised_alone_claims_nothing_about_counts(tmp_path):
    bag = WallBag("a", "1 of 2 odd", [instance(0.9, truth=1), instance(0.2, truth=0)])
    text = render(Page("x", wall={"supervised": [bag]}), tmp_path)
    assert "What the learner was told" not in text
    assert "supervised was shown the labels" in text


def test_without_truth_nothing_is_marked(tmp_path):
    bag = WallBag("a", "1 of 2 odd", [instance(0.9), instance(0.2)])
    body = render(Page("x", wall={"mle": [bag]}), tmp_path).partition("</style>")[2]
    assert "The truth" not in body
    assert 'class="mark' not in body
    assert " right" not in body


def test_wrong_is_said_in_words_and_signs(tmp_path):
    bag = WallBag("a", "1 of 2 odd", [instance(0.9, truth=0), instance(0.8, truth=1)])
    page = Page("x", class_names=("even", "odd"), wall={"mle": [bag]})
    wall = render(page, tmp_path).partition('class="wall"')[2]
    assert "✗" in wall
    assert '<span class="unseen">wrong</span>' in wall
    assert "is even" in wall
    assert "1 of 2 right" in wall


def test_posterior_stands_beside_the_probability(tmp_path):
    bag = WallBag("a", "1 of 2 yes", [instance(0.4, posterior=0.85), instance(0.1, posterior=0.15)])
    text = render(Page("x", class_names=("no", "yes"), wall={"mle": [bag]}), tmp_path)
    assert "with count 85%" in text
    assert "yes 40%" in text


def test_threshold_decides_the_label(tmp_path):
    bag = WallBag("a", "?", [instance(0.4, truth=1), instance(0.2, truth=0)])
    for threshold, right in ((0.5, 1), (0.3, 2)):
        text = render(Page("x", wall={"mle": [bag]}, threshold=threshold), tmp_path)
        assert f"{right} of 2 right" in text


@pytest.mark.parametrize(
    ("p", "text"), [(1.0, "&gt;99%"), (0.0, "&lt;1%"), (0.991, "&gt;99%"), (0.5, "50%")]
)
def test_no_number_claims_certainty(tmp_path, p, text):
    page = Page("x", wall={"mle": [WallBag("a", "?", [instance(np.float32(p))])]})
    assert f"positive {text}" in render(page, tmp_path)


def test_several_classes_name_the_likeliest(tmp_path):
    bag = WallBag("a", "1 cat, 1 dog, 0 bird", [
        instance([0.7, 0.2, 0.1], posterior=[0.9, 0.05, 0.05], truth=0),
        instance([0.2, 0.3, 0.5], posterior=[0.1, 0.8, 0.1], truth=1),
    ])  # fmt: skip
    text = render(Page("x", class_names=("cat", "dog", "bird"), wall={"mle": [bag]}), tmp_path)
    assert "cat 70%" in text
    assert "bird 50%" in text
    assert "with count 10%" in text  # of the class that was named
    assert "expects: <b>0.9 cat, 0.5 dog, 0.6 bird</b>" in text  # sums, not hard labels


def test_two_columns_are_two_classes(tmp_path):
    page = Page("x", wall={"llp-gan": [WallBag("a", "?", [instance([0.7, 0.3], truth=0)])]})
    text = render(page, tmp_path)
    assert "positive 30%" in text
    assert "1 of 1 right" in text


def test_large_bags_are_cut_and_counted(tmp_path):
    bag = WallBag("a", "?", [instance(0.9, truth=1)] * 40)
    text = render(Page("x", wall={"mle": [bag]}), tmp_path)
    assert "and 16 more instances" in text
    assert "40 of 40 right" in text


def test_empty_bag_is_an_ordinary_case(tmp_path):
    [bag] = wall_bags(Bags([0, 0], [0]), torch.zeros(0, 1, 4, 4), [], class_names=("no", "yes"))
    assert "0 of 0 yes" in render(Page("x", wall={"mle": [bag]}), tmp_path)


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
    page = Page("x", wall={"mle": [WallBag("a", "?", [instance(0.5, image)])]})
    uri = re.search(rf'src="data:image/{kind};base64,([^"]+)"', render(page, tmp_path))[1]
    with Image.open(io.BytesIO(base64.b64decode(uri))) as picture:
        assert picture.size == size
        assert picture.mode == ("L" if shape[0] == 1 else "RGB")


@pytest.mark.parametrize(
    "image", [np.zeros((1, 4, 4)), np.zeros((4, 4), np.uint8), np.zeros((2, 4, 4), np.uint8)]
)
def test_strange_images_are_refused(tmp_path, image):
    page = Page("x", wall={"mle": [WallBag("b7", "?", [instance(0.5), instance(0.5, image)])]})
    with pytest.raises(LLPError, match=r"image of instance 2 of bag b7 has shape .*pass uint8"):
        render(page, tmp_path)


@pytest.mark.parametrize("p", [1.2, -0.1, float("nan")])
def test_impossible_probabilities_are_refused(tmp_path, p):
    page = Page("x", wall={"mle": [WallBag("b7", "?", [instance(p)])]})
    with pytest.raises(LLPError, match=r"probability of instance 1 of bag b7 is .*0 … 1"):
        render(page, tmp_path)


def test_labels_without_a_name_are_refused(tmp_path):
    page = Page("x", wall={"mle": [WallBag("b7", "?", [instance(0.5, truth=2)])]})
    with pytest.raises(LLPError, match="instance 1 of bag b7 has label 2, but there are 2 class"):
        render(page, tmp_path)


def test_walls_of_different_bags_are_refused(tmp_path):
    one, two = WallBag("a", "?", [instance(0.5)]), WallBag("b", "?", [instance(0.5)] * 2)
    with pytest.raises(
        LLPError, match="wall of dllp has bag 'b' of 2, that of mle has bag 'a' of 1;"
    ):
        render(Page("x", wall={"mle": [one], "dllp": [two]}), tmp_path)


def test_a_count_is_never_beside_a_sum_of_hard_labels(tmp_path):
    bag = WallBag("a", "40 of 100 yes", [instance(0.4) for _ in range(100)])
    text = render(Page("x", class_names=("no", "yes"), wall={"mle": [bag]}), tmp_path)
    assert "expects: <b>40.0 of 100 yes</b>" in text


def test_a_page_claims_nothing_of_how_likelihoods_were_measured_unless_told(tmp_path):
    rows = [{"epoch": 1, "log_likelihood": -1.5, "baseline_log_likelihood": -1.75}]
    summary = summarise([Series("mle", 0, rows)])
    assert "exact" not in render(Page("x", summary=summary), tmp_path)
    text = render(Page("x", summary=summary, measured="exact"), tmp_path)
    assert "exact, mean of training bags" in text
    assert "−1.75" in text
