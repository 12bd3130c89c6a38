"""Figures and one offline HTML page that show what was learnt from counts.

A caller gathers plain records (:class:`Series`, :class:`Calibration`, :class:`WallBag`), puts them
on a :class:`Page` and calls :func:`write_page`. The page holds its own style, figures and images:
it asks nothing of the network and runs no script.
"""

from llpkit.report._data import Calibration, Series, SummaryRow, summarise
from llpkit.report._figures import reliability
from llpkit.report._importance import importance_bars
from llpkit.report._page import Page, PageSection, write_page
from llpkit.report._style import styles
from llpkit.report._wall import WallBag, WallInstance, known_text, wall_bags

__all__ = [
    "Calibration",
    "Page",
    "PageSection",
    "Series",
    "SummaryRow",
    "WallBag",
    "WallInstance",
    "importance_bars",
    "known_text",
    "reliability",
    "styles",
    "summarise",
    "wall_bags",
    "write_page",
]
