"""The history of one run as a figure for a notebook."""

import io
from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.figure import Figure as Drawing

from llpkit.report.curves import Panel
from llpkit.report.figure import HEIGHT, WIDTH
from llpkit.report.lines import draw_into
from llpkit.report.style import RC

_COLUMNS = 2


class NotebookFigure(Drawing):
    """A matplotlib figure that a notebook shows, whether or not pyplot is in use."""

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.savefig(stream, format="png", dpi=100, facecolor="white")
        return stream.getvalue()


def history_figure(panels: Sequence[Panel]) -> Drawing:
    """The panels of a run that have lines, next to and below each other."""
    shown = [panel for panel in panels if panel.lines]
    columns = min(_COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    with mpl.rc_context(RC):
        figure = NotebookFigure(figsize=(columns * WIDTH / 72, rows * HEIGHT / 72))
        # Parts without gaps, each of the size that the margins of a drawing are made for.
        whole = {"left": 0, "right": 1, "bottom": 0, "top": 1, "wspace": 0, "hspace": 0}
        grid = figure.add_gridspec(rows, columns, **whole)
        for i, panel in enumerate(shown):
            draw_into(
                figure.add_subfigure(grid[divmod(i, columns)]),
                panel.title,
                panel.lines,
                panel.x,
                percent=panel.percent,
                selected=panel.selected,
            )
    return figure
