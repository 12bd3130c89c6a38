"""One look for every figure, readable on a light and on a dark page."""

import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.figure import Figure

from llpkit.report._data import BOUND

# Figures are drawn in the light colours. On the page each of these is a CSS variable of the same
# meaning, so that one SVG serves both themes. No two may be equal.
INK, MUTED, GRID = "#1c2127", "#59636e", "#dfe3e8"
LIGHT = {"ink": INK, "muted": MUTED, "grid": GRID}
DARK = {"ink": "#e9ecef", "muted": "#a3adb8", "grid": "#343b43"}

WIDTH, HEIGHT = 344.0, 240.0  # points; a phone shows a figure at about one pixel a point

RC: Any = {  # matplotlib types its keys one by one
    "font.family": "DejaVu Sans",  # matplotlib brings it along
    "font.size": 11,
    "text.color": INK,
    "text.parse_math": False,  # a user's `$` is a dollar sign
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",  # text stays text: selectable, and in the page's own font
    "pdf.fonttype": 42,
}


@dataclass(frozen=True)
class Style:
    """How one method is drawn: its colours, its stroke, and a marker for those who see no hue."""

    css: str
    light: str
    dark: str
    width: float = 1.6
    dashes: tuple[float, ...] = ()
    marker: str = "o"

    @property
    def stroke(self) -> Any:
        """The stroke in matplotlib's words."""
        return (0, self.dashes) if self.dashes else "-"


_KNOWN = {
    BOUND: Style("supervised", "#616a75", "#b4bcc6", 1.8, (5, 2.2), "s"),
    "mle": Style("mle", "#0a5cad", "#62b3ff", 2.8, (), "o"),
    "direct": Style("direct", "#007a5c", "#35cc9f", 1.7, (), "D"),
    "amle": Style("amle", "#956300", "#e9b23c", 1.7, (7, 1.6, 1.6, 1.6), "^"),
    "dllp": Style("dllp", "#c04500", "#ff8d55", 1.7, (3.2, 1.5), "v"),
    "llp-gan": Style("llp-gan", "#a12f78", "#f28fca", 1.7, (1.3, 1.5), "P"),
}
_OTHERS = (
    Style("other-0", "#5a48b8", "#ad9fff", 1.7, (), "X"),
    Style("other-1", "#00707f", "#4cc9d9", 1.7, (6, 2), "p"),
    Style("other-2", "#6a5a1c", "#cdbd78", 1.7, (2.4, 1.6), "h"),
    Style("other-3", "#943030", "#ff9c9c", 1.7, (8, 2, 2, 2), "*"),
)


def styles(methods: Iterable[str]) -> dict[str, Style]:
    """A style for each method: its own if it is known, else the next of four that take turns."""
    chosen: dict[str, Style] = {}
    for method in dict.fromkeys(methods):
        turn = sum(name not in _KNOWN for name in chosen)
        chosen[method] = _KNOWN.get(method) or _OTHERS[turn % len(_OTHERS)]
    return chosen


def css_variables() -> tuple[dict[str, str], dict[str, str]]:
    """The variables of the light and of the dark page, by name."""
    every = (*_KNOWN.values(), *_OTHERS)
    light = LIGHT | {f"m-{style.css}": style.light for style in every}
    dark = DARK | {f"m-{style.css}": style.dark for style in every}
    return light, dark


def to_svg(figure: Figure, name: str, alt: str) -> Markup:
    """A figure as SVG to stand inside a page: no ids to clash, no colours but the page's."""
    stream = io.StringIO()
    with mpl.rc_context({**RC, "svg.hashsalt": name}):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :]
    # The style sheet would hold for the whole page; page.css says the same of figures alone.
    svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg, flags=re.S)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.S)

    used = set(re.findall(r"#([\w.-]+)[\")]", svg))
    svg = re.sub(r' id="([^"]*)"', lambda m: m[0] if m[1] in used else "", svg)
    svg = re.sub(r"font: (?:\w+ )*([\d.]+px) [^;\"]*", r"font-size: \1", svg)

    light, _ = css_variables()
    names = {colour: f"var(--{variable})" for variable, colour in light.items()}
    svg = re.sub(r"#[0-9a-f]{6}\b", lambda m: names.get(m[0], m[0]), svg)

    box = re.search(r'viewBox="([^"]*)"', svg)
    assert box is not None
    opening = f'<svg class="plot" viewBox="{box[1]}" role="img" aria-label="{Markup.escape(alt)}">'
    return Markup(re.sub(r"^<svg[^>]*>", lambda _: opening, svg))


def to_bytes(figure: Figure, kind: str, made_by: str = "") -> bytes:
    """A figure as the contents of a ``png`` or ``pdf`` file, with a word on what made it."""
    stream = io.BytesIO()
    metadata: dict[str, str | None] = {"CreationDate": None} if kind == "pdf" else {}
    if made_by:
        metadata["Keywords" if kind == "pdf" else "Comment"] = made_by
    with mpl.rc_context(RC):
        figure.savefig(stream, format=kind, dpi=200, facecolor="white", metadata=metadata)
    return stream.getvalue()
