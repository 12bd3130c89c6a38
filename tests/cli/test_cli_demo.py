"""``llpkit demo``: a table and a page, from nothing but the installation."""

import re
from pathlib import Path

from llpkit import experiments
from llpkit.methods import METHODS


def test_the_quick_demo_shows_every_method(llpkit):
    methods = experiments.load("digits").methods
    done = llpkit("demo", "--quick", "--out", "shown")
    assert done.code == 0, done.err
    for method in methods:
        assert f"{method}, fold 0: accuracy" in done.err
        assert method in done.out
    # Only the gap to supervised training has a sign and one decimal.
    gaps = re.findall(r"^(\S+).* [+-]\d+\.\d ", done.out, re.MULTILINE)
    assert gaps == [method for method in methods if method != "supervised"]
    page = Path(done.out.splitlines()[-1])
    text = page.read_text()
    assert all(method in text for method in methods)
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "data:image/png" in text

    again = llpkit("demo", "--quick", "--out", "shown", "--quiet")
    assert again == (0, f"{page}\n", "")


def test_a_folder_that_is_no_demo_is_left_alone(llpkit):
    Path("mine").mkdir()
    Path("mine", "thesis.txt").touch()
    done = llpkit("demo", "--quick", "--out", "mine")
    assert done.code == 2
    assert "mine has no protocol.yaml and is not empty" in done.err


def test_the_methods_of_the_paper_take_part():
    paper = {"supervised", "mle", "mle-pass", "direct", "amle", "amle-paper", "dllp", "llp-gan"}
    assert paper <= set(experiments.load("digits").methods) <= set(METHODS)
