"""Command lines with junk options: each ends with an answer or with one message."""

import functools
import os
import random
import shutil
import tempfile
from pathlib import Path

import numpy as np

from fuzzing.scoring import Score, fail

LINES = 5
"""Command lines in one round."""


@functools.cache
def _prepared() -> Path:
    """A folder with a table and a run, made once; rounds work in copies of it."""
    from fuzzing import command_line

    folder = Path(tempfile.mkdtemp(prefix="llpkit-fuzz-"))
    before = Path.cwd()
    os.chdir(folder)
    try:
        command_line.prepare(folder)
    finally:
        os.chdir(before)
    return folder


def case(rng: np.random.Generator, score: Score) -> None:
    """One round."""
    from fuzzing import command_line

    draw = random.Random(int(rng.integers(2**62)))
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="llpkit-fuzz-") as place:
        folder = Path(place) / "work"
        shutil.copytree(_prepared(), folder)
        os.chdir(folder)
        try:
            for _ in range(LINES):
                arguments = command_line.junk_command_line(draw)
                try:
                    with command_line.without_pages():
                        code = command_line.check(arguments)
                except Exception as error:
                    fail(f"{type(error).__name__}: {error}", arguments=arguments)
                if code == 0:
                    score.confirm()
                else:
                    score.refuse()
        finally:
            os.chdir(before)
