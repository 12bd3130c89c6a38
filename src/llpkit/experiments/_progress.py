"""How the runs are going, on a terminal or in plain lines."""

import time
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from llpkit.experiments._run import Record, Run
from llpkit.experiments._tables import counted


class Lines:
    """One line a run that ended; for logs."""

    def __init__(self, console: Any) -> None:
        self.console = console

    def begin(self, runs: Sequence[Run], done: int) -> None:
        """Say what there is to do."""
        self.total, self.ends = len(runs), 0
        self.started = time.monotonic()
        told = f", {done} were done before" if done else ""
        self.print(f"{counted(self.total, 'run')}{told}")

    def update(self, running: Sequence[Record]) -> None:
        """Nothing: lines are for what has ended."""

    def ended(self, run: Run, how: str, record: Record | None) -> None:
        """The run, how it ended, and what it found."""
        self.ends += 1
        self.print(f"{self.ends}/{self.total} {run.title}: {told(how, record)}")

    def waits(self, what: str) -> None:
        """A line on it."""
        self.print(what)

    def end(self) -> None:
        """Nothing is left open."""

    def print(self, text: str) -> None:
        """A line, however long and whatever brackets it has."""
        self.console.print(text, soft_wrap=True, markup=False)


class Live(Lines):
    """A bar over the runs, those under way, and the accuracy of each method so far."""

    def begin(self, runs: Sequence[Run], done: int) -> None:
        """Open the display."""
        import rich.live
        import rich.progress as parts

        self.total, self.done, self.failed = len(runs), 0, 0
        self.accuracy: dict[str, list[float]] = {}
        self.bar = parts.Progress(
            parts.TextColumn("{task.description}"),
            parts.BarColumn(32),
            parts.MofNCompleteColumn(),
            parts.TimeElapsedColumn(),
            parts.TextColumn("left"),
            parts.TimeRemainingColumn(),
            console=self.console,
        )
        self.task = self.bar.add_task("runs", total=len(runs) + done, completed=done)
        self.live = rich.live.Live(self.bar, console=self.console, refresh_per_second=4)
        self.live.start()

    def update(self, running: Sequence[Record]) -> None:
        """Show the runs under way below the bar."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, padding=(0, 2, 0, 0), show_header=bool(self.accuracy or running))
        for head in ("method", "runs", "accuracy %", "now"):
            table.add_column(head, justify="left" if head in ("method", "now") else "right")
        now: dict[str, list[str]] = {}
        for note in running:
            reached = "" if note["accuracy"] is None else f" {100 * note['accuracy']:.1f}"
            at = f"fold {note['title'].rpartition(' ')[2]}: {note['epoch']}/{note['epochs']}"
            now.setdefault(note["method"], []).append(at + reached)
        for method in dict.fromkeys([*self.accuracy, *now]):
            found = self.accuracy.get(method, [])
            mean = f"{100 * fmean(found):.1f}" if found else ""
            shown = Text("  ".join(now.get(method, [])), overflow="ellipsis", no_wrap=True)
            table.add_row(method, str(len(found) or ""), mean, shown)
        failed = Text(f"{self.failed} failed" if self.failed else "", style="red")
        self.live.update(Group(self.bar, table, failed))

    def ended(self, run: Run, how: str, record: Record | None) -> None:
        """Move the bar."""
        self.bar.advance(self.task)
        if how == "failed":
            self.failed += 1
            self.print(f"{run.title}: {told(how, record)}")
        elif record is not None and "accuracy" in record["final"]:
            self.accuracy.setdefault(run.name, []).append(record["final"]["accuracy"])

    def end(self) -> None:
        """Leave the last state on the screen."""
        self.live.stop()


def told(how: str, record: Record | None) -> str:
    """How a run ended, in words."""
    if record is None or how == "failed":
        return f"failed: {(record or {}).get('error', 'no record')}"
    final = record["final"]
    reached = f"held-out log-likelihood {final.get('held_out_log_likelihood')}"
    if "accuracy" in final:
        reached = f"accuracy {100 * final['accuracy']:.1f} %"
    return f"{reached} after epoch {final['epoch']} ({record['seconds']['total']:.1f} s)"
