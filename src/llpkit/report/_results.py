"""The page of an experiment: chapters of figures and tables, in the same style as a run's page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from llpkit._files import write_bytes
from llpkit.report._data import BOUND
from llpkit.report._figures import Plot
from llpkit.report._page import files_of, template, write_figures
from llpkit.report._style import Style, css_variables
from llpkit.report._view import percent


@dataclass(frozen=True)
class Column:
    """The head of a column, and in small print what it is; ``text`` stands at its left."""

    head: str
    about: str = ""
    text: bool = False


@dataclass(frozen=True)
class Table:
    """A table whose rows belong to methods.

    Args:
        columns: What stands beside the method.
        rows: For each row its method and its cells.
        about: A sentence on how to read it.
    """

    columns: Sequence[Column]
    rows: Sequence[tuple[str, Sequence[str]]]
    about: str = ""

    def markdown(self) -> str:
        """The same as Markdown.

        >>> print(Table([Column("Accuracy")], [("mle", ["97.7"])]).markdown())
        | method | Accuracy |
        |---|---:|
        | mle | 97.7 |
        """
        head = ["method", *(column.head for column in self.columns)]
        rows = [head, *([method, *cells] for method, cells in self.rows)]
        lines = [f"| {' | '.join(row)} |" for row in rows]
        ends = "".join("|---" if column.text else "|---:" for column in self.columns)
        lines.insert(1, f"|---{ends}|")
        return "\n".join(lines)


@dataclass(frozen=True)
class ExampleBag:
    """One bag and what the methods say of its instances.

    Args:
        known: What is known of the bag, ``"3 of 7 odd"``.
        instances: For each instance its picture as a ``data:`` address, or ``None``, and its name.
        truth: The true label of each.
        right: For each method and instance, whether its label is the true one.
        probability: For each method, of each instance, the probability of the positive class.
        positive: The name of that class.
        hidden: Instances that are not shown.
    """

    known: str
    instances: Sequence[tuple[str | None, str]]
    truth: Sequence[str]
    probability: Mapping[str, Sequence[float]]
    right: Mapping[str, Sequence[bool]]
    positive: str
    hidden: int = 0


@dataclass(frozen=True)
class Section:
    """Figures, tables and a bag under one heading, with a sentence on how to read them."""

    title: str
    about: str = ""
    plots: Sequence[Plot] = ()
    tables: Sequence[Table] = ()
    bag: ExampleBag | None = None
    narrow: bool = False
    commands: Sequence[str] = ()
    """What made the records that it shows, where that is not the chapter's."""


@dataclass(frozen=True)
class Chapter:
    """What belongs together: a data set in one setting."""

    title: str
    facts: Mapping[str, object]
    sections: Sequence[Section]
    commands: Sequence[str] = ()


@dataclass(frozen=True)
class Results:
    """What the page of an experiment shows. Whatever is left empty takes no room."""

    title: str
    lead: Sequence[str] = ()
    chapters: Sequence[Chapter] = ()
    notes: Sequence[str] = ()
    environment: Mapping[str, object] = field(default_factory=dict)
    look: Mapping[str, Style] = field(default_factory=dict)
    """How each method is drawn, the same in every chapter."""
    commands: Sequence[str] = ()
    """What made the page itself."""


def figure_files(results: Results, folder: Path) -> list[Path]:
    """The files that :func:`write_results` makes of the figures."""
    sections = [section for chapter in results.chapters for section in chapter.sections]
    return [
        path for section in sections for plot in section.plots for path in files_of(plot, folder)
    ]


def write_results(results: Results, path: Path, *, figures_dir: Path | None = None) -> Path:
    """Write the page, whole or not at all, and say where it is.

    Args:
        results: What to show.
        path: The HTML file; missing folders are made.
        figures_dir: Where to put each figure as PNG and PDF as well.
    """
    if figures_dir is not None:
        for chapter in results.chapters:
            for section in chapter.sections:
                made = "\n".join([*(section.commands or chapter.commands), *results.commands])
                write_figures(section.plots, figures_dir, made)
    light, dark = css_variables()
    text = template("old/results.html").render(
        results=results,
        styles=results.look,
        light=light,
        dark=dark,
        threshold="50%",
        bound=BOUND,
        percent=percent,
    )
    return write_bytes(path, text.encode("utf-8"))
