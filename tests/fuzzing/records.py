"""Records with junk in one place, and the check that they are drawn or refused by name."""

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from llpkit.errors import LLPError
from llpkit.experiments import Run, Store, write_report

JUNK: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2.5, 10**30, -1e300, 1e300, float("nan"), float("inf")),
    *("", "abc", "\x1b[31m", "$x_{", "<b>", [], [None], ["a"], [1, 2], {}, {"a": {}}),
)
GONE = object()
"""In place of junk: the value is removed."""


def places(content: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in a record, those of lists and mappings included."""
    items: Any = ()
    if isinstance(content, dict):
        items = content.items()
    elif isinstance(content, list):
        items = list(enumerate(content))[-1:]  # all are of one kind
    found = []
    for key, value in items:
        found += [(*before, key), *places(value, (*before, key))]
    return found


def damaged(record: dict[str, Any], place: tuple[Any, ...], junk: Any) -> dict[str, Any]:
    """The record with junk in one place; its id is that of its run wherever it has one."""
    changed = copy.deepcopy(record)
    target: Any = changed
    for key in place[:-1]:
        target = target[key]
    if junk is GONE:
        del target[place[-1]]
    else:
        target[place[-1]] = copy.deepcopy(junk)
    if place[0] == "run":  # as someone would who wrote the record on purpose
        with suppress(TypeError, ValueError, KeyError, AttributeError):
            changed["id"] = Run.of(changed).id
    return changed


def junk_record(rng: Random, record: dict[str, Any]) -> dict[str, Any]:
    """A record with one to three damages."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        record = damaged(record, rng.choice(places(record)), rng.choice((*JUNK, GONE)))
    return record


def check(path: Path, record: Any, folder: Path) -> bool:
    """Draw a folder with a record in place of another: whether it was. It is left as it was."""
    before = path.read_bytes()
    name = record.get("id", path.stem) if isinstance(record, dict) else path.stem
    named = path.with_name(f"{name}.json") if str(name).isalnum() else path
    named = path if named.exists() else named
    path.unlink()
    named.write_text(json.dumps(record))
    try:
        write_report(Store([folder]), folder / "report")
    except LLPError:
        return False
    finally:
        named.unlink()
        path.write_bytes(before)
    return True


@contextmanager
def without_figures() -> Iterator[None]:
    """Figures take most of the time of a page."""

    def page(_: Any, out: Path, **__: Any) -> Path:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text("")
        return out

    home = "llpkit.experiments._page"
    with patch(f"{home}.write_results", page), patch(f"{home}.figure_files", lambda *_: []):
        yield
