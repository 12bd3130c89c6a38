"""README and docs: every code block runs in an empty folder, every link leads somewhere.

Notebooks are run by the build of the pages, `make docs`.
"""

import multiprocessing
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from run_page import blocks, run_apart

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
PRELOADED = ["llpkit.estimators", "llpkit.runs", "llpkit.statistics", "llpkit.training", "pandas"]


class Done(NamedTuple):
    returncode: int | None
    stderr: str


@pytest.fixture(scope="module")
def run_page() -> Iterator[Callable[[Path, Path], Done]]:
    """Run a page in a folder, in a process of its own: a fork of one that only did the imports."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)

    def run(page: Path, folder: Path) -> Done:
        with tempfile.NamedTemporaryFile() as errors:
            process = context.Process(target=run_apart, args=(page, folder, errors.name))
            process.start()
            process.join()
            return Done(process.exitcode, Path(errors.name).read_text("utf-8"))

    yield run
    context.set_forkserver_preload([])


def pages_with_code():
    for page in PAGES:
        if any(blocks(page.read_text("utf-8"))):
            slow = [pytest.mark.slow] if page.name in SLOW else []
            yield pytest.param(page, id=f"{page.parent.name}/{page.name}", marks=slow)


@pytest.mark.parametrize("page", [*pages_with_code()])
def test_code_blocks_run(run_page, page: Path, tmp_path: Path):
    done = run_page(page, tmp_path)
    assert done.returncode == 0, done.stderr


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
    done = run_page(page, tmp_path)
    assert done.returncode == 1
    assert found in done.stderr


def test_blocks_of_a_page_share_names_and_a_folder(run_page, tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\n# mine.py\nx = 2\n```\n\n```python\nfrom mine import x\ny = x + 1\n```\n"
        "```sh\ncat mine.py\n```\n\n```text\n# mine.py\nx = ...\n```\n"
        "<!-- not run: wrong -->\n```python\n1 / 0\n```\n"
        "```python\nprint(y)\n```\n\n```text\n3\n```\n",
        "utf-8",
    )
    done = run_page(page, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_links_lead_to_files(page: Path):
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize(
    "page", sorted({*PAGES[1:]} - {DOCS / "index.md"}), ids=lambda p: f"{p.parent.name}/{p.name}"
)
def test_a_page_is_linked_from_the_readme_and_its_index(page: Path):
    assert f"]({page.relative_to(ROOT)})" in (ROOT / "README.md").read_text("utf-8")
    if page.name != "index.md":
        assert f"]({page.name})" in (page.parent / "index.md").read_text("utf-8")


def test_the_readme_names_every_module():
    readme = (ROOT / "README.md").read_text("utf-8")
    parts = [p for p in (ROOT / "src" / "llpkit").iterdir() if not p.name.startswith("_")]
    names = [
        p.name if p.suffix == ".py" else f"{p.name}/" for p in parts if p.suffix in ("", ".py")
    ]
    assert [name for name in names if f"`{name}" not in readme] == []
