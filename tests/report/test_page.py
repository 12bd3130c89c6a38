"""The page as a file: whole, escaped, offline, small."""

import os
import re
from html.parser import HTMLParser

import pytest
from PIL import Image

from llpkit import evaluation
from llpkit.errors import LLPError
from llpkit.report import (
    Figures,
    Page,
    PageTable,
    Section,
    Wall,
    WallBag,
    WallInstance,
    reliability,
    styles,
    write_page,
)

VOID = {"meta", "img", "input", "br", "link"}


class Reader(HTMLParser):
    """Collects tags, addresses and ids; fails on tags that do not close."""

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.addresses, self.ids, self.open, self.headings = [], [], [], [], []
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
        if self.open and re.fullmatch("h[1-6]", self.open[-1]):
            self.headings.append((self.open[-1], data.strip()))


@pytest.fixture(scope="module")
def path(full, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    return write_page(full, folder / "new" / "report.html", figures_dir=folder / "figures")


@pytest.fixture(scope="module")
def text(path):
    return path.read_text(encoding="utf-8")


def test_page_is_well_formed(text):
    reader = Reader(text)
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    levels = {name: tag for tag, name in reader.headings if name}
    assert levels["A chapter"] == "h2"
    assert levels["Curves"] == "h3"


def test_page_asks_for_nothing_and_runs_nothing(path, text):
    reader = Reader(text)
    assert [a for a in reader.addresses if not re.match(r"data:image/(png|jpeg);|#", a)] == []
    assert not {"script", "link", "iframe", "object"} & set(reader.tags)
    assert re.findall(r"https?:|@import|url\((?!#)", text) == []
    assert "default-src 'none'" in text
    assert path.stat().st_size < 1_000_000


def test_everything_users_wrote_is_escaped(text):
    assert "<script" not in text
    # The bag, twice in the facts, and once in each other kind of block.
    assert text.count("&lt;script&gt;alert(&#39;x&#39;)") >= 9
    assert "<h1>Odd digits &lt;learnt&gt; from counts</h1>" in text


def test_methods_and_classes_are_escaped(tmp_path):
    bad = "</style><script>"
    bag = WallBag("a", bad, [WallInstance(bad, None, 0), WallInstance(bad, None, 1)])
    look = styles([bad])
    figure = reliability(bad, evaluation.calibration([0.5], [1]), look[bad], bad)
    wall = Wall([bag], (bad, bad + "2"), {bad: [[0.7, 0.2]]})
    page = Page("x", blocks=[wall, PageTable([], [(bad, [])]), Figures([figure])], look=look)
    text = write_page(page, tmp_path / "p.html").read_text(encoding="utf-8")
    assert "<script" not in text
    assert text.count("</style>") == 1


def test_figures_are_files_too(path, full):
    folder = path.parents[1] / "figures"
    names = {p.name for p in folder.iterdir()}
    assert names == {p.name for figure in full.figures for p in figure.files(folder)}
    assert {"accuracy.png", "accuracy.pdf", "calibration-mle.pdf"} <= names
    with Image.open(folder / "accuracy.png") as image:
        assert image.width > 900


def test_figure_files_stay_in_their_folder(tmp_path):
    look = styles(["mle"])["mle"]
    figure = reliability("mle", evaluation.calibration([0.2], [0]), look, "../../up/ü")
    folder = tmp_path / "deep" / "figures"
    page = Page("x", blocks=[Section("s", [Figures([figure])])])
    write_page(page, tmp_path / "deep" / "p.html", figures_dir=folder)
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    assert len(list(folder.glob("*.png"))) == 1


def test_a_failed_write_leaves_the_old_page(tmp_path, monkeypatch):
    path = write_page(Page("old"), tmp_path / "report.html")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(LLPError, match="disk full"):
        write_page(Page("new"), path)
    assert "<h1>old</h1>" in path.read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == [path]


def test_the_same_page_gives_the_same_file(full, text, tmp_path):
    assert write_page(full, tmp_path / "again.html").read_text(encoding="utf-8") == text
