"""The page: records in, one HTML file out."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jinja2

from llpkit._files import write_bytes
from llpkit.report._data import BOUND, Calibration, Series, SummaryRow
from llpkit.report._figures import Plot, epoch_times, learning_curves, reliability, time_curves
from llpkit.report._style import css_variables, styles, to_bytes, to_svg
from llpkit.report._table import table
from llpkit.report._view import view_wall
from llpkit.report._wall import WallBag


@dataclass(frozen=True)
class Page:
    """What a page shows. Whatever is left empty takes no room.

    Args:
        title: The heading.
        lead: Plain sentences below it, one paragraph each.
        class_names: Names of the labels; negative, then positive, for two.
        facts: Names and values: data set, bags, network, epochs.
        summary: Rows of the table, see :func:`summarise`.
        measured: How the log-likelihoods of the table were measured, such as ``"exact"``.
        series: Runs, for the learning curves.
        calibrations: One reliability curve a method.
        wall: For each method the same bags in the same order, with its own probabilities. The
            first bag of mixed labels opens the page as the example.
        wall_note: Which bags these are.
        example: Whether one of them opens the page.
        threshold: From which probability on an instance is called positive.
        repeats: What the runs of one method are: ``"seed"`` or ``"fold"``.
        sections: Further figures under headings of their own, before the wall.
        notes: Sentences on how to read the numbers.
        environment: Names and values: versions, hardware, seed, command.
    """

    title: str
    lead: Sequence[str] = ()
    class_names: Sequence[str] = ("negative", "positive")
    facts: Mapping[str, object] = field(default_factory=dict)
    summary: Sequence[SummaryRow] = ()
    measured: str = ""
    series: Sequence[Series] = ()
    calibrations: Sequence[Calibration] = ()
    wall: Mapping[str, Sequence[WallBag]] = field(default_factory=dict)
    wall_note: str = ""
    example: bool = True
    threshold: float = 0.5
    repeats: str = "seed"
    sections: "Sequence[PageSection]" = ()
    notes: Sequence[str] = ()
    environment: Mapping[str, object] = field(default_factory=dict)


def write_page(page: Page, path: Path | str, *, figures_dir: Path | str | None = None) -> Path:
    """Write a page, whole or not at all, and say where it is.

    Args:
        page: What to show.
        path: The HTML file; missing folders are made.
        figures_dir: Where to put each figure as PNG and PDF as well.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = write_page(Page("First run"), f"{folder}/report.html")
    ...     print(written.name, "<h1>First run</h1>" in written.read_text(encoding="utf-8"))
    report.html True
    """
    wall = view_wall(page.wall, page.class_names, page.threshold)
    sections = _sections(page)
    if figures_dir is not None:
        plots = [plot for section in sections for plot in section.plots]
        write_figures(plots, Path(figures_dir))

    light, dark = css_variables()
    text = template("old/page.html").render(
        page=page,
        sections=sections,
        wall=wall,
        columns=table(page.summary, page.measured),
        styles=styles(_methods(page)),
        light=light,
        dark=dark,
        threshold=f"{100 * page.threshold:.1f}%",
        repeated=_repeated(page),
        bound=BOUND,
    )
    return write_bytes(Path(path), text.encode("utf-8"))


@dataclass(frozen=True)
class PageSection:
    """Figures under one heading, with a sentence on how to read them."""

    title: str
    about: str
    plots: Sequence[Plot]
    narrow: bool = False


def _sections(page: Page) -> list[PageSection]:
    """The figures that the page has the records for."""
    look = styles(_methods(page))
    curves = learning_curves(page.series, look)
    times: list[Plot | None] = []
    if len(page.summary) > 1:
        times = [epoch_times(page.summary, look), time_curves(page.series, look)]
    calibration = [reliability(curve, look[curve.method]) for curve in page.calibrations]

    band = whiskers = ""
    if _repeated(page):
        band = f"Lines are means over {page.repeats}s, bands one standard deviation either side. "
        whiskers = f"; whiskers are one standard deviation over {page.repeats}s"
    sections = [
        PageSection(
            "Learning curves",
            f"{band}The vertical axis is fitted to where the curves settle.",
            curves,
        ),
        PageSection(
            "Time",
            f"An epoch's time is the median of a run, its first epoch left out{whiskers}. "
            f"× is the ratio to {BOUND}.",
            [plot for plot in times if plot is not None],
        ),
        PageSection(
            "Calibration",
            "Of the instances given a probability near 0.8, about 80 % should be positive: on the "
            "dashed line. Below, how many instances got each probability.",
            [plot for plot in calibration if plot is not None],
            narrow=True,
        ),
    ]
    return [section for section in (*sections, *page.sections) if section.plots]


def _methods(page: Page) -> list[str]:
    parts = (page.summary, page.series, page.calibrations)
    named = [item.method for part in parts for item in part]
    return list(dict.fromkeys([*named, *page.wall]))


def _repeated(page: Page) -> str:
    """How often the methods were run, or nothing if once."""
    runs = sorted({row.runs for row in page.summary})
    return " to ".join(map(str, dict.fromkeys((runs[0], runs[-1])))) if runs[-1:] > [1] else ""


def files_of(plot: Plot, folder: Path) -> list[Path]:
    """Where a figure is written to."""
    return [folder / f"{_file_name(plot.name)}.{kind}" for kind in ("png", "pdf")]


def write_figures(plots: Sequence[Plot], folder: Path, made_by: str = "") -> None:
    """Each figure as PNG and PDF; in their metadata, the commands it was made by."""
    for plot in plots:
        for path in files_of(plot, folder):
            write_bytes(path, to_bytes(plot.figure, path.suffix[1:], made_by))


def template(name: str) -> jinja2.Template:
    """A template of this package."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("llpkit.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["to_svg"] = to_svg
    return environment.get_template(name)


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "figure"
