"""Answers are kept, whatever happens to the process."""

import os
import signal
import sqlite3
import subprocess
import sys

import pytest

from llpkit.errors import LLPError
from llpkit.label import Store


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "counts.sqlite")
    made.set_items(["a", "b", "c", "d", "e"])
    made.add_bags({"left": [0, 1, 2], "right": [4, 3]})
    yield made
    made.close()


def answers_of(store):
    return [(a.bag, a.person, a.low, a.high) for a in store.answers()]


def test_bags_keep_the_order_of_their_items(store):
    assert store.bags() == {1: [0, 1, 2], 2: [4, 3]}
    assert store.bag_names() == {1: "left", 2: "right"}
    assert store.add_bag("more", [2]) == 3


def test_the_latest_answer_of_a_person_counts(store):
    store.answer(1, "Ada", 1, 1, 2.0)
    store.answer(1, "Bob", 2, 2, 2.0)
    store.answer(1, "Ada", 3, 3, 2.0)
    assert sorted(answers_of(store)) == [(1, "Ada", 3, 3), (1, "Bob", 2, 2)]


def test_undo_brings_the_earlier_answer_back(store):
    store.answer(1, "Ada", 1, 1, 2.0)
    store.answer(1, "Ada", 3, 3, 2.0)
    store.answer(2, "Bob", 0, 1, 2.0)
    assert store.undo("Ada") == ("count", 1, 3, 3)
    assert answers_of(store) == [(1, "Ada", 1, 1), (2, "Bob", 0, 1)]
    assert store.undo("Ada") == ("count", 1, 1, 1)
    assert store.undo("Ada") is None
    assert answers_of(store) == [(2, "Bob", 0, 1)]


def test_undo_takes_back_the_last_action_of_the_person(store):
    store.set_label(0, "Ada", 1)
    store.set_label(0, "Ada", None)
    store.answer(1, "Ada", 1, 2, 2.0)
    store.set_label(4, "Ada", 0)
    store.answer(2, "Bob", 0, 0, 2.0)
    store.set_label(4, "Bob", 1)
    assert store.undo("Ada") == ("label", 4, 0, 0)
    assert store.labels() == {4: 1}
    assert store.undo("Ada") == ("count", 1, 1, 2)
    assert store.undo("Ada") == ("label", 0, None, None)
    assert store.labels() == {0: 1, 4: 1}
    assert store.undo("Ada") == ("label", 0, 1, 1)
    assert store.undo("Ada") is None
    assert store.undo("Bob") == ("label", 4, 1, 1)
    assert store.labels() == {}
    assert answers_of(store) == [(2, "Bob", 0, 0)]


def test_labels_can_be_changed_and_taken_back(store):
    for item, value in ((0, 1), (1, 0), (0, 0), (1, None)):
        store.set_label(item, "Ada", value)
    assert store.labels() == {0: 0}


@pytest.mark.parametrize(
    ("bag", "low", "high", "message"),
    [
        (1, 0, 4, "high = 4"),
        (1, -1, 1, "low = -1"),
        (2, 2, 1, "low = 2 is above high = 1"),
        (9, 0, 0, "there is no bag 9"),
    ],
)
def test_impossible_counts_are_refused(store, bag, low, high, message):
    with pytest.raises(LLPError, match=message):
        store.answer(bag, "Ada", low, high, 1.0)
    assert answers_of(store) == []


@pytest.mark.parametrize("name", ["", "  ", "x" * 41, "a\x1b[31m", None, 3])
def test_names_are_checked(store, name):
    with pytest.raises(LLPError, match="person"):
        store.answer(1, name, 1, 1, 1.0)


def test_items_may_be_added_anywhere_and_keep_their_numbers(store):
    store.set_items(["0", "a", "b", "bb", "e", "d", "c"])
    assert store.items() == ["a", "b", "c", "d", "e", "0", "bb"]


def test_missing_items_are_named(store):
    with pytest.raises(LLPError, match=r"missing now: a, d;"):
        store.set_items(["b", "c", "e", "f"])
    assert store.items() == ["a", "b", "c", "d", "e"]


def test_a_file_that_is_no_project_is_refused(tmp_path):
    path = tmp_path / "counts.sqlite"
    path.write_text("something else, and long enough to be no empty file\n" * 40)
    with pytest.raises(LLPError, match="not a counting project"):
        Store(path)
    assert path.read_text().startswith("something else")


KILLED = """
import os, signal, sys
from llpkit.label import Store
store = Store(sys.argv[1])
for count in range(int(sys.argv[2]), 10**6):
    store.answer(1, f"person {count}", count % 4, count % 4, 1.0)
    print(count, flush=True)
"""


def test_what_was_acknowledged_survives_a_kill(store):
    path, done = store.path, 0
    for _ in range(2):
        command = [sys.executable, "-c", KILLED, str(path), str(done)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                done = int(line) + 1
                if done % 20 == 0:
                    os.kill(process.pid, signal.SIGKILL)
                    break
            # Lines that were printed before the kill arrived were acknowledged too.
            done += len(process.stdout.read().split())
    # At most one more answer was written than acknowledged in each round.
    assert done <= len(store.answers()) <= done + 2
    assert store._base.execute("pragma integrity_check").fetchone() == ("ok",)


def test_a_full_disk_is_an_error_and_loses_nothing(store, monkeypatch):
    store.answer(1, "Ada", 1, 1, 2.0)

    class Full:
        in_transaction = False

        def execute(self, *_):
            raise sqlite3.OperationalError("database or disk is full")

    whole = store._base
    monkeypatch.setattr(store, "_base", Full())
    monkeypatch.setattr(store, "_rows", lambda *_: [(3,)])
    with pytest.raises(LLPError, match="disk is full"):
        store.answer(1, "Ada", 2, 2, 2.0)
    monkeypatch.undo()
    store._base = whole
    assert answers_of(store) == [(1, "Ada", 1, 1)]
