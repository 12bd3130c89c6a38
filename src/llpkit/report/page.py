"""A page: sections of blocks in, one HTML file out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import jinja2

from llpkit.files import write_text
from llpkit.report.blocks import Block, Details, Figures
from llpkit.report.figure import Figure
from llpkit.report.style import Style, css_variables
from llpkit.report.wall import Wall


@dataclass(frozen=True)
class Section:
    """Blocks under a heading. Sections nest.

    Args:
        heading: Its heading.
        blocks: Its contents.
        text: How to read them, below the heading.
    """

    heading: str
    blocks: Sequence[Block]
    text: str = ""
    kind: ClassVar[str] = "section"


@dataclass(frozen=True)
class Page:
    """The contents of a page.

    Args:
        title: The heading.
        lead: Paragraphs below it.
        blocks: Sections and other blocks.
        look: The style of every method on the page; see :func:`llpkit.report.styles`.
    """

    title: str
    lead: Sequence[str] = ()
    blocks: Sequence[Block] = ()
    look: Mapping[str, Style] = field(default_factory=dict)

    def walk(self) -> Iterator[Block]:
        """All blocks, those inside other blocks included."""
        # A stack, reversed so that blocks come in reading order.
        waiting = list(self.blocks)[::-1]
        while waiting:
            block = waiting.pop()
            yield block
            if isinstance(block, Section | Details):
                waiting += list(block.blocks)[::-1]

    @property
    def figures(self) -> list[Figure]:
        """All figures, in order."""
        groups = (block.figures for block in self.walk() if isinstance(block, Figures))
        return [figure for group in groups for figure in group]


def write_page(page: Page, path: Path | str, *, figures_dir: Path | str | None = None) -> Path:
    """Write a page atomically and return its path.

    Args:
        page: The contents.
        path: The HTML file; missing folders are created.
        figures_dir: Where to write each figure as PNG and PDF as well.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = write_page(Page("First run"), f"{folder}/report.html")
    ...     print(written.name, "<h1>First run</h1>" in written.read_text(encoding="utf-8"))
    report.html True
    """
    if figures_dir is not None:
        for figure in page.figures:
            figure.write(Path(figures_dir))
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("llpkit.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    light, dark = css_variables()
    walls = [block for block in page.walk() if isinstance(block, Wall)]
    text = environment.get_template("page.html").render(
        page=page,
        look=page.look,
        light=light,
        dark=dark,
        methods=max((len(wall.methods) for wall in walls), default=0),
    )
    return write_text(Path(path), text)
