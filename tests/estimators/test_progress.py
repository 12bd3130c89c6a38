"""Progress of estimators: the same fit, with steps for whoever watches."""

import contextlib
import os
import pty
import re
import subprocess
import sys

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from llpkit.estimators import (
    AlterSVMClassifier,
    LLPClassifier,
    LLPEnsembleClassifier,
    LLPLogisticRegression,
    LLPMixedLogisticRegression,
    LLPNetworkClassifier,
    MeanMapClassifier,
    progress,
)
from llpkit.progress import seconds_left, task, watch
from llpkit.statistics import bootstrap


def toy(rows=240):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 3))
    labels = rng.random(rows) < 1 / (1 + np.exp(-2 * X[:, 0]))
    groups = np.arange(rows) // 4
    return X, np.bincount(groups, labels).astype(int)[groups], groups


class Seen:
    """A watcher that notes what it saw, as the tasks change."""

    def __init__(self):
        self.all = []

    def __call__(self, tasks):
        self.all.append([(t.name, t.done, t.total, t.kind, t.figures, t.ended) for t in tasks])

    def names(self):
        return {one[0] for stack in self.all for one in stack}

    def outermost(self, name):
        return [stack[0] for stack in self.all if stack[0][0] == name and len(stack) == 1]


TREES = HistGradientBoostingClassifier(max_iter=3, early_stopping=False)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (LLPClassifier(GaussianNB()), "EM"),
        (LLPClassifier(TREES, max_iter=3, tol=1e-9), "EM"),
        (LLPLogisticRegression(), "logistic regression"),
        (LLPMixedLogisticRegression(), "random effect"),
        (LLPNetworkClassifier(hidden_layer_sizes=(3,)), "network"),
        (MeanMapClassifier(), "mean map"),
        (AlterSVMClassifier(n_init=3), "start"),
    ],
)
@pytest.mark.filterwarnings("ignore:EM did not converge")
def test_every_iteration_is_a_step_and_the_fit_is_the_same(model, name):
    X, y, groups = toy()
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    alone = model.fit(X, y, groups).decision_function(X)
    seen = Seen()
    with progress(seen):
        model.fit(X, y, groups)
    np.testing.assert_array_equal(model.decision_function(X), alone)
    ends = [one for one in seen.outermost(name) if one[-1]]
    assert len(ends) == 1
    if hasattr(model, "n_iter_") and name != "random effect":  # which adds both of its parts
        assert ends[0][1] == model.n_iter_


def test_an_ensemble_counts_the_fits_of_its_members():
    X, y, groups = toy()
    members = [LLPLogisticRegression(), LLPClassifier(LogisticRegression())]
    seen = Seen()
    with progress(seen):
        LLPEnsembleClassifier(members, random_state=0).fit(X, y, groups)
    fits = seen.outermost("fit")
    assert fits[-1][1:3] == (8, 8)  # three folds and all bags, twice
    assert {"LLPLogisticRegression", "LogisticRegression"} <= {one[3] for one in fits}
    assert max(len(stack) for stack in seen.all) == 2  # the iterations of a fit are inside it


def test_a_bootstrap_counts_its_refits():
    X, y, groups = toy()
    model = LLPLogisticRegression().fit(X, y, groups)
    seen = Seen()
    with progress(seen):
        bootstrap(model, X, y, groups, replicates=5)
    assert seen.outermost("refit")[-1][1:3] == (5, 5)


def test_nobody_watches_after_the_block_or_a_failure_in_it():
    X, y, groups = toy()
    seen = Seen()
    with pytest.raises(ZeroDivisionError), progress(seen):
        1 / 0  # noqa: B018
    LLPLogisticRegression().fit(X, y, groups)
    assert seen.all == []


class Clock:
    """The time, which passes only when it is asked to."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)


def test_the_time_left_counts_each_kind_of_step(monkeypatch):
    clock = Clock(monkeypatch)
    found = []
    with (
        watch(lambda tasks: found.append(seconds_left(tasks))),
        task("fit", kinds=["quick", "slow"] * 2) as steps,
    ):
        for seconds in (1, 9, 1, 9):
            clock.now += seconds
            steps.step()
    # Nothing is known, then one kind, then both; at the end nothing is left.
    assert found == [None, 3, 10, 9, 0, 0]


def test_the_time_left_leaves_out_the_start_of_workers(monkeypatch):
    clock = Clock(monkeypatch)
    found = []
    with (
        watch(lambda tasks: found.append(seconds_left(tasks))),
        task("runs", 5, warm_up=2) as runs,
    ):
        for seconds in (20, 1, 3, 3, 3):
            clock.now += seconds
            runs.step()
    assert found == [None, None, None, 6, 3, 0, 0]


def test_the_time_left_is_not_that_of_preparations(monkeypatch):
    clock = Clock(monkeypatch)
    found = []
    with watch(lambda tasks: found.append(seconds_left(tasks))), task("epoch", 10) as epochs:
        clock.now += 100
        epochs.begin(done=4)
        clock.now += 2
        epochs.step()
    assert found[1] == 2 * 5


def test_the_time_left_includes_the_task_within(monkeypatch):
    clock = Clock(monkeypatch)
    found = []
    with (
        watch(lambda tasks: found.append(seconds_left(tasks))),
        task("fit", 3),
        task("EM") as inner,
    ):
        clock.now += 2
        inner.step(left=4)
    # 8 s are left of a fit of 10 s, and two more fits follow.
    assert found[2] == 8 + 2 * 10


def test_a_log_gets_few_lines_however_long_the_work_is(monkeypatch, capsys):
    clock = Clock(monkeypatch)
    with progress(title="boosting"), task("EM", 3600) as steps:
        for _ in range(3600):
            clock.now += 1
            steps.step()
    lines = capsys.readouterr().err.splitlines()
    assert 5 <= len(lines) <= 15
    assert re.fullmatch(r"boosting: EM 2/3600  2 s  about 59 min 58 s left", lines[0])
    assert lines[-1] == "boosting: done in 1 h 0 min"


def test_work_that_pauses_is_not_called_done(monkeypatch, capsys):
    clock = Clock(monkeypatch)
    with progress(title="runs"), task("convergence", 4) as runs:
        clock.now += 5
        runs.step()
        runs.paused = True
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "runs: stopped after 5 s"


@pytest.mark.parametrize("width", [60, 100])
def test_in_a_terminal_lines_stand_above_the_bar_and_only_its_text_is_cut_off(width):
    script = """
import time
from llpkit.cli.printing import shown
from llpkit.progress import task

with shown("title", quiet=False) as log, task("a long name, " * 8, 3) as steps:
    for i in range(3):
        time.sleep(0.3)
        log(f"line {i}")
        steps.step()
"""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(width), "TERM": "xterm"}
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment):
        os.close(theirs)
        text = ""
        with contextlib.suppress(OSError):  # Linux's way to say that the other end is closed
            while part := os.read(ours, 4096):
                text += part.decode()
    os.close(ours)
    drawn = re.sub(r"\x1b\[[0-9;]*m", "", text)
    for i in range(3):
        assert re.search(rf"(\n|\r|\x1b\[\d*[A-Z])line {i}\r\n", drawn), drawn
    bars = [line for line in re.split(r"\r|\n|\x1b\[2K", drawn) if line.startswith("title ")]
    assert bars
    assert all("━" in bar and "0:00:0" in bar and len(bar) <= width for bar in bars)


def test_short_work_prints_nothing(monkeypatch, capsys):
    Clock(monkeypatch)
    with progress(), task("EM", 5) as steps:
        for _ in range(5):
            steps.step()
    assert capsys.readouterr().err == ""
