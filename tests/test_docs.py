"""README and docs: every code block runs in an empty folder, every link leads somewhere.

Notebooks are run by the build of the pages, `make docs`.
"""

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from run_page import blocks, main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("[!_]*/*.md"))]
SLOW = (
    "check.md",
    "command-line.md",
    "export.md",
    "frames.md",
    "integrations.md",
    "known-labels.md",
    "large-data.md",
    "own-data.md",
    "own-method.md",
    "own-network.md",
    "private-reports.md",
    "reproduce.md",
    "several-machines.md",
)
"""Pages of several commands, each of which imports torch anew; the README has three."""


@pytest.fixture
def run_page(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    registries: None,  # noqa: ARG001
) -> Iterator[Callable[[Path], None]]:
    """Run a page in an empty folder, in this process: importing torch anew takes seconds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    before = set(sys.modules)

    def run(page: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            main(str(page))

    yield run
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def pages_with_code():
    for page in PAGES:
        if any(blocks(page.read_text("utf-8"))):
            slow = [pytest.mark.slow] if page.name in SLOW else []
            yield pytest.param(page, id=f"{page.parent.name}/{page.name}", marks=slow)


@pytest.mark.parametrize("page", [*pages_with_code()])
def test_code_blocks_run(run_page, page: Path):
    run_page(page)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("```python\n1 / 0\n```\n", "line 2: ZeroDivisionError"),
        ("```sh\nfalse\ntrue\n```\n", "line 2: RuntimeError"),
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "line 2 prints"),
        ("```console\nls\n```\n", "do not know how to run a block of console"),
        ("<!-- not run: -->\n```sh\nfalse\n```\n", "line 3: RuntimeError"),
    ],
    ids=["python", "sh", "output", "language", "no reason"],
)
def test_a_wrong_block_is_found(run_page, text: str, found: str, tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(text, "utf-8")
    with pytest.raises(SystemExit, match=re.escape(found)):
        run_page(page)


def test_blocks_of_a_page_share_names_and_a_folder(run_page, tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\n# mine.py\nx = 2\n```\n\n```python\nfrom mine import x\ny = x + 1\n```\n"
        "```sh\ncat mine.py\n```\n\n```text\n# mine.py\nx = ...\n```\n"
        "<!-- not run: wrong -->\n```python\n1 / 0\n```\n"
        "```python\nprint(y)\n```\n\n```text\n3\n```\n",
        "utf-8",
    )
    run_page(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_links_lead_to_files(page: Path):
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize(
    "page", sorted({*PAGES[1:]} - {DOCS / "index.md"}), ids=lambda p: f"{p.parent.name}/{p.name}"
)
def test_a_page_is_linked_from_its_index_and_an_index_from_the_readme(page: Path):
    if page.name == "index.md":
        assert f"]({page.relative_to(ROOT)})" in (ROOT / "README.md").read_text("utf-8")
    else:
        assert f"]({page.name})" in (page.parent / "index.md").read_text("utf-8")


def test_the_guide_for_contributors_names_every_module():
    guide = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    parts = [p for p in (ROOT / "src" / "llpkit").iterdir() if not p.name.startswith("_")]
    names = [
        p.name if p.suffix == ".py" else f"{p.name}/" for p in parts if p.suffix in ("", ".py")
    ]
    assert [name for name in names if f"`{name}" not in guide] == []
