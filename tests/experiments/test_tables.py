"""The tables in README.md and docs/ are those that the records in results/ give."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from llpkit.experiments import Results, load

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tables() -> Iterator[ModuleType]:
    # By its path: the tests have a module of the same name.
    spec = importlib.util.spec_from_file_location("tables_of_pages", ROOT / "tools" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(ROOT / "tools"))
    spec.loader.exec_module(found)
    yield found
    sys.path.remove(str(ROOT / "tools"))


def test_tables_are_current(tables):
    for page in tables.PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert tables.current(text) == text, f"{page}: run make tables"


def test_every_table_is_on_a_page_and_a_changed_number_is_noticed(tables):
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in tables.PAGES)
    assert {name for _, name in tables.MARKER.findall(text)} == set(tables.TABLES)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = tables.MARKER.search(readme)
    assert table is not None
    at = table.end() - len(" |\n")  # inside the last cell
    assert tables.current(f"{readme[:at]}0{readme[at:]}") == readme


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in ROOT.glob("results/*/protocol.yaml"))
)
def test_committed_results_are_packed_and_of_one_protocol(folder):
    found = Results.read(folder)
    assert all(record.diverged for record in found.failures)
    assert sum(map(len, found.records.values()))
    assert not (folder / "runs").exists()


def test_presets_are_those_of_the_committed_results():
    for name in ("bird-cat", "group-photos"):
        assert load(name) == Results.read(ROOT / "results" / name).protocol
