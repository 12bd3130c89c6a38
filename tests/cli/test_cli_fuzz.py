"""Whatever a table holds, the command line ends with an answer or with one message."""

import contextlib
import io
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from llpkit.cli import main

GOOD = "b,y,x,k\n" + "".join(f"{i // 3},1,{i % 7},{'uvw'[i % 3]}\n" for i in range(24))
ENDLESS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def ends_well(*arguments: object) -> int:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    assert code in (0, 2)
    assert "Traceback" not in err.getvalue()
    assert code == 0 or err.getvalue().strip()
    return code


def fit(content: bytes, name: str = "t.csv", *options: object) -> int:
    Path(name).write_bytes(content)
    return ends_well(
        *("fit", name, "--bag", "b", "--count", "y", "--network", "linear", "--epochs", 1),
        *("--quiet", "--force", "--out", "run", *options),
    )


@pytest.fixture(autouse=True)
def _no_page(monkeypatch):
    """Pages take most of the time of a small run and see nothing of the table but its features."""
    monkeypatch.setattr(
        "llpkit.runs.page.write_report", lambda work, *_: (work / "report.html").touch()
    )


NUMBERS = ("0", "1", "-1", "2.5", "1e400", "nan", "inf", "9" * 30, "0x10", "1,000")
TEXTS = ("", " ", "a", "é", "😀", '"', '"x,y"', "\0", "=1+1", "TRUE", "NULL")
CELLS = st.sampled_from(NUMBERS + TEXTS)


@st.composite
def tables(draw) -> bytes:
    """A good table with some of its cells, lines or bytes replaced."""
    lines = [line.split(",") for line in GOOD.splitlines()]
    for _ in range(draw(st.integers(0, 6))):
        row = draw(st.integers(0, len(lines) - 1))
        column = draw(st.integers(0, len(lines[row]) - 1)) if lines[row] else 0
        if lines[row]:
            lines[row][column] = draw(CELLS)
    if draw(st.booleans()):
        row = draw(st.integers(0, len(lines) - 1))
        lines[row] = lines[row] * draw(st.integers(0, 2))
    content = draw(st.sampled_from(["\n", "\r\n"])).join(",".join(line) for line in lines).encode()
    if draw(st.integers(0, 3)) == 0:
        place = draw(st.integers(0, len(content)))
        content = content[:place] + draw(st.binary(max_size=4)) + content[place:]
    return content[: draw(st.integers(0, len(content)))] if draw(st.booleans()) else content


@settings(max_examples=40, suppress_health_check=ENDLESS)
@given(tables())
@example(b"")
@example(b"b,y\n")
@example(b"b,y,x\n1,1,1\n")
@example(GOOD.encode())
@example(GOOD.replace("b,y,x,k", "b,b,x,k").encode())
@example(("b,y,x\n" + "1,0,5\n" * 20).encode())
def test_a_fuzzed_table_never_ends_in_a_traceback(content):
    fit(content)


@settings(max_examples=20, suppress_health_check=ENDLESS)
@given(tables())
def test_a_fuzzed_table_is_predicted_or_refused(content):
    if not Path("run").exists():  # made by the first example
        assert fit(GOOD.encode(), "good.csv") == 0
    Path("t.csv").write_bytes(content)
    ends_well("predict", "run", "t.csv", "--out", "p.csv", "--quiet")
    ends_well("evaluate", "run", "t.csv")


@settings(max_examples=20, suppress_health_check=ENDLESS)
@given(st.binary(max_size=80))
def test_bytes_that_are_no_table(content):
    for name in ("t.csv", "t.parquet", "t.csv.gz", "t.yaml"):
        fit(content, name)


def test_many_bags_of_one(tmp_path):
    draw = random.Random(0)
    rows = "".join(f"{i},{draw.random() < 0.5:d},{draw.random():.3f}\n" for i in range(20000))
    assert fit(f"b,y,x\n{rows}".encode(), "t.csv", "--batch-size", 4096) == 0
    assert (tmp_path / "run" / "weights.safetensors").exists()
