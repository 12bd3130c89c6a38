"""Progress of fits and of experiments, live in a terminal or as plain lines."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import TYPE_CHECKING, Any

from llpkit._text import several
from llpkit.cli.printing import terminal

if TYPE_CHECKING:
    from rich.console import Console, Group

    from llpkit.experiments import ExperimentRun, Record
    from llpkit.experiments.execute import Running


@contextmanager
def fit_progress(title: str, quiet: bool) -> Iterator[list[Any]]:
    """Show the progress of estimators; yields the callbacks that show the progress of networks."""
    from llpkit.progress import progress
    from llpkit.training import Progress

    if quiet:
        yield []
        return
    with progress(title=title):
        yield [Progress(title)]


class ProgressLines:
    """One line per finished run; for logs."""

    def __init__(self, console: "Console") -> None:
        self.console = console
        self.total = self.ends = 0

    def begin(self, runs: Sequence["ExperimentRun"], done: int, running: "Running") -> None:  # noqa: ARG002
        """Print the number of runs."""
        self.total, self.ends = len(runs), 0
        before = f", {done} done before" if done else ""
        self.print(f"{runs[0].experiment}: {several(self.total, 'run')}{before}")

    def ended(self, record: "Record") -> None:
        """Print the run and its result."""
        self.ends += 1
        self.print(f"{self.ends}/{self.total} {record.title}: {_result(record)}")

    def end(self) -> None:
        """Nothing to close."""

    def print(self, text: str) -> None:
        """Print a line without wrapping, and with brackets taken literally."""
        self.console.print(text, soft_wrap=True, markup=False)


class LiveProgress(ProgressLines):
    """A progress bar, the current runs, and the mean accuracy of each method so far."""

    def begin(self, runs: Sequence["ExperimentRun"], done: int, running: "Running") -> None:
        """Open the display."""
        import rich.live
        import rich.progress as parts

        self.accuracy: dict[str, list[float]] = {}
        self.failed = 0
        self.running = running
        self.bar = parts.Progress(
            parts.TextColumn("{task.description}"),
            parts.BarColumn(32),
            parts.MofNCompleteColumn(),
            parts.TimeElapsedColumn(),
            parts.TextColumn("left"),
            parts.TimeRemainingColumn(),
            console=self.console,
        )
        name, total = runs[0].experiment, len(runs) + done
        self.task = self.bar.add_task(name, total=total, completed=done)
        # Rich calls this from a thread of its own, also while a run keeps the main thread busy.
        self.live = rich.live.Live(
            get_renderable=self._shown, console=self.console, refresh_per_second=2
        )
        self.live.start()

    def _shown(self) -> "Group":
        """The bar, the accuracy of each method so far, and the current runs."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        running: dict[str, list[str]] = {}
        for run in self.running():
            reached = "" if run["accuracy"] is None else f" {100 * run['accuracy']:.1f}"
            at = f"fold {run['fold']}: {run['epoch']}/{run['epochs']}"
            running.setdefault(run["method"], []).append(at + reached)
        methods = dict.fromkeys([*self.accuracy, *running])
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=bool(methods))
        for head in ("method", "runs", "accuracy %", "now"):
            table.add_column(head, justify="left" if head in ("method", "now") else "right")
        for method in methods:
            accuracies = self.accuracy.get(method, [])
            mean = f"{100 * fmean(accuracies):.1f}" if accuracies else ""
            now = Text("  ".join(running.get(method, [])), overflow="ellipsis", no_wrap=True)
            table.add_row(method, str(len(accuracies) or ""), mean, now)
        failed = Text(f"{self.failed} failed" if self.failed else "", style="red")
        return Group(self.bar, table, failed)

    def ended(self, record: "Record") -> None:
        """Move the bar."""
        self.bar.advance(self.task)
        if record.error:
            self.failed += 1
            self.print(f"{record.title}: {_result(record)}")
        elif "accuracy" in record.final:
            self.accuracy.setdefault(record.method, []).append(record.final["accuracy"])

    def end(self) -> None:
        """Stop updating; the last state stays on the screen."""
        self.live.stop()


def display_of(quiet: bool) -> ProgressLines | None:
    """The display for this terminal or log, or none."""
    console = terminal(stderr=True)
    return None if quiet else (LiveProgress if console.is_terminal else ProgressLines)(console)


def _result(record: "Record") -> str:
    if record.error:
        return f"failed: {record.error}"
    reached = f"held-out log-likelihood {record.final.get('held_out_log_likelihood')}"
    if "accuracy" in record.final:
        reached = f"accuracy {100 * record.final['accuracy']:.1f} %"
    return f"{reached} ({record.seconds:.1f} s)"
