"""Figures and offline HTML pages.

A :class:`Page` holds blocks: sections, paragraphs, facts, tables, figures, walls of bags.
:func:`write_page` turns it into one HTML file with its own style, figures and images: it makes no
network request and runs no script. Nothing here trains or reads anything.
"""

from llpkit.report.bars import importance_bars
from llpkit.report.blocks import Block, Details, Facts, Figures, Notes, Paragraph
from llpkit.report.calibration import reliability, transform_histogram
from llpkit.report.curves import (
    epoch_curves,
    plan_curves,
    run_curves,
    run_panels,
    size_curves,
)
from llpkit.report.figure import Figure, present
from llpkit.report.history import history_figure
from llpkit.report.instances import WallBag, WallInstance, wall_bags
from llpkit.report.page import Page, Section, write_page
from llpkit.report.spread import Interval, Spread
from llpkit.report.style import Style, styles
from llpkit.report.table import Cell, Column, PageTable, decimals
from llpkit.report.wall import Example, Wall

__all__ = [
    "Block",
    "Cell",
    "Column",
    "Details",
    "Example",
    "Facts",
    "Figure",
    "Figures",
    "Interval",
    "Notes",
    "Page",
    "PageTable",
    "Paragraph",
    "Section",
    "Spread",
    "Style",
    "Wall",
    "WallBag",
    "WallInstance",
    "decimals",
    "epoch_curves",
    "history_figure",
    "importance_bars",
    "plan_curves",
    "present",
    "reliability",
    "run_curves",
    "run_panels",
    "size_curves",
    "styles",
    "transform_histogram",
    "wall_bags",
    "write_page",
]
