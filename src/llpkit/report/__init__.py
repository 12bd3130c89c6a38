"""Figures and one offline HTML page that show what was learnt from counts.

A caller gathers plain records (:class:`Series`, :class:`Calibration`, :class:`WallBag`), puts them
on a :class:`Page` and calls :func:`write_page`. The page holds its own style, figures and images:
it asks nothing of the network and runs no script.
"""

from llpkit.report._data import Calibration, Series, SummaryRow, summarise
from llpkit.report._page import Page, write_page
from llpkit.report._wall import WallBag, WallInstance, known_text, wall_bags

__all__ = [
    "Calibration",
    "Page",
    "Series",
    "SummaryRow",
    "WallBag",
    "WallInstance",
    "known_text",
    "summarise",
    "wall_bags",
    "write_page",
]
