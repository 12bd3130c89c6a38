"""What the page shows of the choice of hyper-parameters."""

from collections.abc import Sequence

from llpkit.experiments._run import Record
from llpkit.experiments._tables import Tables, or_dash
from llpkit.report._results import Column, Section, Table


def grid(grid: Record, commands: Sequence[str], tables: Tables) -> Section:
    """What was tried, what was chosen, what it cost."""
    rows = []
    about = grid["settings"]
    for method, entry in grid["methods"].items():
        for row in entry["candidates"]:
            tables.add_row(
                "grid-candidates",
                dataset=grid["dataset"],
                **about,
                method=method,
                folds=len(entry["folds"]),
                **row,
                chosen=entry["chosen"] is not None and entry["chosen"].items() <= row.items(),
            )
        chosen = "not finished"
        if entry["chosen"] is not None:
            ends = dict.fromkeys(entry["edges"], " (an end)")
            chosen = ", ".join(
                f"{k.replace('_', ' ')} {v:g}{ends.get(k, '')}" for k, v in entry["chosen"].items()
            )
        tried = [row for row in entry["candidates"] if row["score"] is not None]
        scores = [row["score"] for row in tried]
        span = " to ".join(or_dash(end(scores), ".3f") for end in (min, max)) if scores else "–"
        failed = sum(bool(row["failed"]) for row in entry["candidates"])
        cells = [chosen, str(len(entry["candidates"])), span, str(failed)]
        cells += [", ".join(map(str, entry["folds"]))]
        cells += [str(entry["cost"]["runs"]), f"{entry['cost']['seconds']:.0f}"]
        rows.append((method, cells))
    columns = [
        Column("Chosen", text=True),
        Column("Candidates"),
        Column("Scores", "held-out log-likelihood"),
        Column("Diverged"),
        Column("Folds", "which", text=True),
        Column("Runs"),
        Column("Seconds", "of these runs"),
    ]
    size = about["data_options"].get("size")
    return Section(
        "Choice of hyper-parameters",
        f"Chosen by {grid['rule']}. {about['network']}, {about['epochs']} epochs, batches of "
        f"{about['batch_size']}, augmentation {about['augment']}, {about['precision']}"
        f"{f', {size} size' if size else ''}, seed {about['seed']}. An end: nothing was tried "
        "beyond it.",
        tables=[Table(columns, rows)],
        commands=commands,
    )
