"""Figures and one offline HTML page that show what was learnt from counts.

A caller gathers plain records (:class:`Series`, :class:`Calibration`, :class:`WallBag`), puts them
on a :class:`Page` and calls :func:`write_page`. An experiment with several data sets and tables of
its own makes :class:`Results` of chapters instead, for :func:`write_results`. A page holds its own
style, figures and images: it asks nothing of the network and runs no script.
"""

from llpkit.report._comparisons import (
    Interval,
    SizePoint,
    epoch_curves,
    fold_curves,
    intervals,
    size_curves,
)
from llpkit.report._data import Calibration, Series, SummaryRow, summarise
from llpkit.report._figures import Plot, epoch_times, reliability, time_curves
from llpkit.report._importance import importance_bars
from llpkit.report._page import Page, PageSection, write_page
from llpkit.report._results import (
    Chapter,
    Column,
    ExampleBag,
    Results,
    Section,
    Table,
    figure_files,
    write_results,
)
from llpkit.report._style import styles
from llpkit.report._wall import WallBag, WallInstance, known_text, wall_bags

__all__ = [
    "Calibration",
    "Chapter",
    "Column",
    "ExampleBag",
    "Interval",
    "Page",
    "PageSection",
    "Plot",
    "Results",
    "Section",
    "Series",
    "SizePoint",
    "SummaryRow",
    "Table",
    "WallBag",
    "WallInstance",
    "epoch_curves",
    "epoch_times",
    "figure_files",
    "fold_curves",
    "importance_bars",
    "intervals",
    "known_text",
    "reliability",
    "size_curves",
    "styles",
    "summarise",
    "time_curves",
    "wall_bags",
    "write_page",
    "write_results",
]
