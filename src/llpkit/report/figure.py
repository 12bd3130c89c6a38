"""A figure: what is drawn, the parts all drawings share, and its files."""

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.figure import FigureBase

from llpkit.files import write_bytes
from llpkit.report.style import INK, RC, css_variables

WIDTH, HEIGHT = 344.0, 240.0  # points; a phone shows about one pixel per point
LEFT, TOP, BOTTOM = 46.0, 28.0, 33.0  # margins in points
LABEL = 10.5  # font size of labels inside a figure


@dataclass(frozen=True)
class Figure:
    """A drawing, the stem of its file name, and its contents in words."""

    name: str
    alt: str
    drawing: Drawing

    def svg(self) -> Markup:
        """The drawing as SVG inside a page: no ids that clash, only the page's colours."""
        stream = io.StringIO()
        with mpl.rc_context({**RC, "svg.hashsalt": self.name}):
            self.drawing.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
        svg = stream.getvalue()
        svg = svg[svg.index("<svg") :]
        # Its style sheet would apply to the whole page; page.css has the same rules for figures.
        svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg, flags=re.S)
        svg = re.sub(r"<!--.*?-->", "", svg, flags=re.S)

        # Ids that nothing refers to would clash between the figures of a page.
        used = set(re.findall(r"#([\w.-]+)[\")]", svg))
        svg = re.sub(r' id="([^"]*)"', lambda m: m[0] if m[1] in used else "", svg)
        svg = re.sub(r"font: (?:\w+ )*([\d.]+px) [^;\"]*", r"font-size: \1", svg)

        # Colours become CSS variables, so that the page can switch to its dark theme.
        light, _ = css_variables()
        names = {colour: f"var(--{variable})" for variable, colour in light.items()}
        svg = re.sub(r"#[0-9a-f]{6}\b", lambda m: names.get(m[0], m[0]), svg)

        box = re.search(r'viewBox="([^"]*)"', svg)
        assert box is not None
        label = Markup.escape(self.alt)
        opening = f'<svg class="plot" viewBox="{box[1]}" role="img" aria-label="{label}">'
        return Markup(re.sub(r"^<svg[^>]*>", lambda _: opening, svg))

    def contents(self, kind: str) -> bytes:
        """The bytes of a ``png`` or ``pdf`` file."""
        stream = io.BytesIO()
        metadata = {"CreationDate": None} if kind == "pdf" else {}
        with mpl.rc_context(RC):
            self.drawing.savefig(stream, format=kind, dpi=200, facecolor="white", metadata=metadata)
        return stream.getvalue()

    def files(self, folder: Path) -> list[Path]:
        """The PNG and the PDF file of this figure."""
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", self.name).strip(".-") or "figure"
        return [folder / f"{stem}.{kind}" for kind in ("png", "pdf")]

    def write(self, folder: Path) -> None:
        """Write both files."""
        for path in self.files(folder):
            write_bytes(path, self.contents(path.suffix[1:]))


def present(figures: Iterable[Figure | None]) -> list[Figure]:
    """Only the figures that had something to draw."""
    return [figure for figure in figures if figure is not None]


def frame(left: float, right: float, bottom: float, height: float) -> tuple[Drawing, Axes]:
    """A drawing of the usual width, with axes inside these margins in points."""
    drawing = Drawing(figsize=(WIDTH / 72, height / 72))
    return drawing, frame_in(drawing, left, right, bottom, height)


def frame_in(drawing: FigureBase, left: float, right: float, bottom: float, height: float) -> Axes:
    """Axes inside these margins, in a drawing of the usual width and this height."""
    wide, tall = WIDTH - left - right, height - TOP - bottom
    box = (left / WIDTH, bottom / height, wide / WIDTH, tall / height)
    return drawing.add_axes(box)


def heading(axes: Axes, title: str, left: float) -> None:
    """A title that starts at the edge of the drawing, ``left`` points from the axes."""
    axes.annotate(
        title,
        (0, 1),
        (4 - left, 10),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=12,
        color=INK,
    )


def text_beside(axes: Axes, y: float, text: str) -> None:
    """A text to the right of the axes."""
    axes.annotate(
        text,
        (1, y),
        (8, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        va="center",
        fontsize=LABEL,
    )


def room_for(names: Sequence[str]) -> float:
    """The width in points of a column of names next to the axes."""
    return 18 + 0.64 * LABEL * max(len(shortened(name)) for name in names)


def shortened(name: str) -> str:
    """A name that fits next to the axes."""
    return name if len(name) <= 18 else name[:17] + "…"
