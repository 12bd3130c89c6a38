"""The part of a page on the experiment ``grid``."""

from typing import Any

from llpkit.experiments.results import Results
from llpkit.experiments.search import Search, searches
from llpkit.report import Block, Cell, Column, Details, PageTable, Section


def grid_section(results: Results) -> list[Block]:
    """The candidates of every method, and the choice."""
    grid = results.protocol.grid
    found = searches(results) if grid is not None else []
    if grid is None or not found:
        return []
    columns = [
        Column("chosen", "Chosen", missing="not finished"),
        Column("candidates", "Candidates", spec="d"),
        Column("lowest", "Lowest score", spec=".3f"),
        Column("highest", "Highest score", spec=".3f"),
        Column("diverged", "Diverged", "runs", "d"),
        Column("runs", "Runs", spec="d"),
        Column("seconds", "Seconds", spec=".0f"),
    ]
    return [
        Section(
            "Choice of hyper-parameters",
            [
                PageTable(columns, [(each.method, _cells(each)) for each in found], name="grid"),
                Details("All candidates", [_candidates(found)]),
            ],
            f"Scores are mean log-likelihoods of held-out bags ({grid.held_out:.0%} of the "
            f"training bags) after {grid.epochs} epochs over {grid.folds} folds; no label is used. "
            "(end): the best value is the last one tried on its axis.",
        )
    ]


def _cells(search: Search) -> list[Cell]:
    scores = [c.score for c in search.candidates if c.score is not None]
    chosen = None
    if search.choice is not None:
        chosen = ", ".join(
            f"{_axis(axis)} {_written(value)}{' (end)' if axis in search.edges else ''}"
            for axis, value in search.choice.items()
        )
    return [
        chosen,
        len(search.candidates),
        min(scores, default=None),
        max(scores, default=None),
        sum(c.diverged for c in search.candidates),
        search.number,
        search.seconds,
    ]


def _candidates(found: list[Search]) -> PageTable:
    axes = list(dict.fromkeys(a for each in found for c in each.candidates for a in c.values))
    columns = [
        *(Column(axis, _axis(axis).capitalize(), spec="g") for axis in axes),
        Column("score", "Score", spec=".3f"),
        Column("chosen", "Chosen", missing=""),
    ]
    rows: list[tuple[str, list[Cell]]] = []
    for each in found:
        for candidate in each.candidates:
            chosen = "chosen" if candidate.values == each.choice else None
            its = candidate.values
            values = [_cell(its[axis]) if axis in its else None for axis in axes]
            rows.append((each.method, [*values, candidate.score, chosen]))
    return PageTable(columns, rows, name="grid-candidates")


def _axis(name: str) -> str:
    return {"lr": "learning rate"}.get(name, name.replace("_", " "))


def _cell(value: Any) -> Cell:
    """Numbers as they are; none, true and false as words."""
    return str(value).lower() if value is None or isinstance(value, bool) else value


def _written(value: Any) -> str:
    cell = _cell(value)
    return cell if isinstance(cell, str) else f"{cell:g}"
