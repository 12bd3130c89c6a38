"""One look for every method and figure, readable on light and dark pages."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# Figures are drawn in the light colours. In a page each colour becomes the CSS variable of the same
# name, so that one SVG serves both themes. No two light colours may be equal.
INK, MUTED, GRID = "#1c2127", "#59636e", "#dfe3e8"
LIGHT = {"ink": INK, "muted": MUTED, "grid": GRID}
DARK = {"ink": "#e9ecef", "muted": "#a3adb8", "grid": "#343b43"}

RC: Any = {  # matplotlib types its keys one by one
    "font.family": "DejaVu Sans",  # ships with matplotlib
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
    """How one method is drawn: colours, stroke, and a marker that does not depend on hue."""

    css: str
    light: str
    dark: str
    width: float = 1.7
    dashes: tuple[float, ...] = ()
    marker: str = "o"

    @property
    def stroke(self) -> Any:
        """The line style in matplotlib's notation."""
        return (0, self.dashes) if self.dashes else "-"


_KNOWN = {
    "supervised": Style("supervised", "#616a75", "#b4bcc6", 1.8, (5, 2.2), "s"),
    "mle": Style("mle", "#0a5cad", "#62b3ff", 2.8, (), "o"),
    "teacher": Style("teacher", "#b00020", "#ff8090", 2.6, (), "H"),
    "mle-pass": Style("mle-pass", "#5a48b8", "#ad9fff", 1.7, (), "X"),
    "direct": Style("direct", "#007a5c", "#35cc9f", 1.7, (), "D"),
    "amle": Style("amle", "#956300", "#e9b23c", 1.7, (7, 1.6, 1.6, 1.6), "^"),
    "dllp": Style("dllp", "#c04500", "#ff8d55", 1.7, (3.2, 1.5), "v"),
    "llp-gan": Style("llp-gan", "#a12f78", "#f28fca", 1.7, (1.3, 1.5), "P"),
}
_OTHERS = (
    Style("other-0", "#00707f", "#4cc9d9", 1.7, (6, 2), "p"),
    Style("other-1", "#6a5a1c", "#cdbd78", 1.7, (2.4, 1.6), "h"),
    Style("other-2", "#943030", "#ff9c9c", 1.7, (8, 2, 2, 2), "*"),
    Style("other-3", "#3f6212", "#a3d65c", 1.7, (), "d"),
)
CONSTANT = Style("ink", INK, DARK["ink"], 1.1, (1, 2.2), "_")  # a line to compare with
TRAINING = Style("muted", MUTED, DARK["muted"], 1.5, (3.2, 1.5))


def styles(methods: Iterable[str]) -> dict[str, Style]:
    """A style for each method: its own if built in, else one of four spare styles in turn."""
    chosen: dict[str, Style] = {}
    for method in dict.fromkeys(methods):
        turn = sum(name not in _KNOWN for name in chosen)
        chosen[method] = _KNOWN.get(method) or _OTHERS[turn % len(_OTHERS)]
    return chosen


def css_variables() -> tuple[dict[str, str], dict[str, str]]:
    """The CSS variables of the light and of the dark page, by name."""
    every = (*_KNOWN.values(), *_OTHERS)
    light = LIGHT | {f"m-{style.css}": style.light for style in every}
    dark = DARK | {f"m-{style.css}": style.dark for style in every}
    return light, dark
