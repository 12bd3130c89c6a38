"""The answers in an SQLite file, written before they are acknowledged."""

import reprlib
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from llpkit._validation import option, whole
from llpkit.errors import LLPError
from llpkit.files import writing

LONGEST_NAME = 40

_SCHEMA = """
create table if not exists setting (name text primary key, value text not null);
create table if not exists item (id integer primary key, name text not null unique);
create table if not exists bag (id integer primary key, name text not null unique);
create table if not exists member (
    bag integer not null references bag, item integer not null references item,
    position integer not null, primary key (bag, item)
);
create table if not exists answer (
    id integer primary key, bag integer not null references bag,
    person text not null, low integer not null, high integer not null,
    seconds real not null, at real not null, undone integer not null default 0
);
create table if not exists label (
    id integer primary key, item integer not null references item,
    person text not null, value integer, at real not null, undone integer not null default 0
);
"""


# Answers and labels are numbered together, so that undo finds the later of the two.
_NEXT = """(1 + max((select coalesce(max(id), 0) from answer),
                  (select coalesce(max(id), 0) from label)))"""


class Answer(NamedTuple):
    """One person's count of one bag, or a range if they were not sure."""

    bag: int
    person: str
    low: int
    high: int
    seconds: float


class Undone(NamedTuple):
    """An action that was taken back: a count of a bag, or a label of an item."""

    kind: str
    """``"count"`` or ``"label"``."""
    which: int
    """The bag, or the item."""
    low: int | None
    high: int | None
    """The range of a count; twice the label, ``None`` where the action took a label away."""


class Store:
    """The items, bags, counts and labels of one counting project.

    A call returns only after its change is on disk, so a killed server loses no answer. Answers are
    never overwritten: the latest answer of a person to a bag is the one that counts, and
    :meth:`undo` brings the earlier one back. The same holds for labels.

    >>> store = Store(":memory:")
    >>> store.set_items(["a.jpg", "b.jpg", "c.jpg"])
    >>> bag = store.add_bag("first", [0, 2])
    >>> store.answer(bag, "Ada", low=1, high=1, seconds=2.5)
    >>> [(a.person, a.low, a.high) for a in store.answers()]
    [('Ada', 1, 1)]
    """

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self._lock = threading.RLock()
        with writing(Path(path)), _readable(path):
            self._base = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            # A write-ahead log survives a kill at any moment; FULL waits for the disk, so that
            # nothing is lost in a power failure either.
            self._base.execute("pragma journal_mode = wal")
            self._base.execute("pragma synchronous = full")
            self._base.execute("pragma foreign_keys = on")
            self._base.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._base.close()

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """A transaction: at the end of the block, either all of it is on disk or nothing."""
        with self._lock, writing(Path(self.path)):
            try:
                self._base.execute("begin immediate")
                yield self._base
                self._base.execute("commit")
            except BaseException as error:
                if self._base.in_transaction:
                    self._base.execute("rollback")
                if isinstance(error, sqlite3.Error):
                    raise LLPError(f"{self.path} cannot be written: {error}") from error
                raise

    def _rows(self, query: str, *values: object) -> list[tuple]:  # type: ignore[type-arg]
        with self._lock:
            return self._base.execute(query, values).fetchall()

    # Settings and items

    def setting(self, name: str, value: str | None = None) -> str | None:
        """The stored value of a setting; ``value`` is stored if there is none yet."""
        if value is not None:
            with self._change() as base:
                base.execute("insert or ignore into setting values (?, ?)", (name, value))
        found = self._rows("select value from setting where name = ?", name)
        return found[0][0] if found else None

    def set_items(self, names: Sequence[str]) -> None:
        """Add the items that are new; later calls may add items in any place, but not remove any.

        An item keeps its number, so new ones get the next numbers.
        """
        known = self.items()
        missing = sorted(set(known) - set(names))
        if missing:
            first = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" * (len(missing) > 3))
            raise LLPError(
                f"{self.path} has items that are missing now: {first}; put them back, or count the "
                f"others in another project with {option('project')}"
            )
        old = set(known)
        new = [name for name in names if name not in old]
        with self._change() as base:
            base.executemany("insert into item values (?, ?)", enumerate(new, len(known)))

    def items(self) -> list[str]:
        """The names of all items, by number."""
        return [name for (name,) in self._rows("select name from item order by id")]

    # Bags

    def add_bag(self, name: str, items: Sequence[int]) -> int:
        """Add a bag of items and return its number."""
        with self._change() as base:
            return _insert(base, name, items)

    def add_bags(self, bags: Mapping[str, Sequence[int]]) -> None:
        """Add bags by name, all or none."""
        with self._change() as base:
            for name, items in bags.items():
                _insert(base, name, items)

    def bags(self) -> dict[int, list[int]]:
        """The items of every bag, by its number."""
        found: dict[int, list[int]] = {}
        for bag, item in self._rows("select bag, item from member order by bag, position"):
            found.setdefault(bag, []).append(item)
        return found

    def items_in_no_bag(self) -> list[int]:
        """The items that no bag holds."""
        query = "select id from item where id not in (select item from member) order by id"
        return [item for (item,) in self._rows(query)]

    def bag_names(self) -> dict[int, str]:
        """The name of every bag."""
        return dict(self._rows("select id, name from bag"))

    # Answers

    def answer(self, bag: int, person: str, low: int, high: int, seconds: float) -> None:
        """Store a person's count of a bag, or a range."""
        size = self._rows("select count(*) from member where bag = ?", whole("bag", bag, 0))[0][0]
        if not size:
            raise LLPError(f"there is no bag {bag}; ask for the next one")
        low, high = whole("low", low, 0, size), whole("high", high, 0, size)
        if low > high:
            raise LLPError(f"low = {low} is above high = {high}; swap them")
        row = (bag, checked_person(person), low, high, float(seconds), time.time())
        with self._change() as base:
            columns = "id, bag, person, low, high, seconds, at"
            base.execute(f"insert into answer ({columns}) values ({_NEXT}, ?, ?, ?, ?, ?, ?)", row)

    def undo(self, person: str) -> Undone | None:
        """Take back a person's last answer or label; ``None`` if there is none."""
        query = (
            "select id, 'count', bag, low, high from answer where person = :person and not undone "
            "union select id, 'label', item, value, value from label "
            "where person = :person and not undone order by id desc limit 1"
        )
        with self._change() as base:
            found = base.execute(query, {"person": checked_person(person)}).fetchone()
            if found is None:
                return None
            table = "answer" if found[1] == "count" else "label"
            base.execute(f"update {table} set undone = 1 where id = ?", (found[0],))
        return Undone(*found[1:])

    def answers(self) -> list[Answer]:
        """The answers that count: each person's latest to each bag, oldest first."""
        query = (
            "select bag, person, low, high, seconds from answer where id in "
            "(select max(id) from answer where not undone group by bag, person) order by id"
        )
        return [Answer(*row) for row in self._rows(query)]

    def recounted(self) -> set[int]:
        """The bags that were counted more than once, by the same person or by several."""
        query = "select bag from answer where not undone group by bag having count(*) > 1"
        return {bag for (bag,) in self._rows(query)}

    # Labels of single items

    def set_label(self, item: int, person: str, value: int | None) -> None:
        """Store the label of an item: 0, 1, or ``None`` to take it back."""
        if not self._rows("select 1 from item where id = ?", whole("item", item, 0)):
            raise LLPError(f"there is no item {item}")
        if value is not None:
            value = whole("value", value, 0, 1)
        with self._change() as base:
            row = (item, checked_person(person), value, time.time())
            columns = "id, item, person, value, at"
            base.execute(f"insert into label ({columns}) values ({_NEXT}, ?, ?, ?, ?)", row)

    def labels(self) -> dict[int, int]:
        """The latest label of every labelled item."""
        query = (
            "select item, value from label where id in "
            "(select max(id) from label where not undone group by item) "
            "and value is not null order by item"
        )
        return dict(self._rows(query))

    def opinions(self) -> dict[int, list[int]]:
        """The latest label that each person gave to each item."""
        query = (
            "select item, value from label where id in "
            "(select max(id) from label where not undone group by item, person) "
            "and value is not null order by id"
        )
        found: dict[int, list[int]] = {}
        for item, value in self._rows(query):
            found.setdefault(item, []).append(value)
        return found


def _insert(base: sqlite3.Connection, name: str, items: Sequence[int]) -> int:
    bag = base.execute("insert into bag (name) values (?)", (name,)).lastrowid
    assert bag is not None
    rows = [(bag, item, position) for position, item in enumerate(items)]
    base.executemany("insert into member values (?, ?, ?)", rows)
    return bag


def checked_person(name: object) -> str:
    """A person's name, trimmed; it must be printable and not too long."""
    if not isinstance(name, str) or not name.strip():
        raise LLPError(f"person = {reprlib.repr(name)}; give a name")
    name = name.strip()
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise LLPError(f"person: give a name of at most {LONGEST_NAME} printable characters")
    return name


@contextmanager
def _readable(path: Path | str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise LLPError(
            f"{path} is not a counting project: {error}; choose another folder"
        ) from error
