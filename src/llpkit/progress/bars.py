"""A bar in a terminal or a notebook, and lines in a log."""

import html
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from llpkit.progress.tasks import TaskProgress, Watcher, seconds_left, watch

_FIRST_LINE = 2.0
"""A log gets its first line after this many seconds, then after twice as many, and so on."""
_REDRAW = 0.1
"""Minimum seconds between two updates of a bar in a notebook."""


class Bar(Protocol):
    """A progress bar."""

    def show(self, share: float, text: str, left: float | None) -> None:
        """Show which share of the work is done, with a text and the seconds left."""

    def close(self) -> None:
        """Leave the bar in its last state."""


def live_bar(title: str) -> Bar | None:
    """A bar for a notebook or a terminal; ``None`` where the output is a log."""
    if in_notebook():
        return _NotebookBar(title)
    return _TerminalBar(title) if sys.stderr.isatty() else None


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook, which can show HTML."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


def duration(seconds: float) -> str:
    """Seconds in words.

    >>> duration(8.4), duration(75), duration(7300)
    ('8 s', '1 min 15 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _left_text(left: float | None) -> str:
    return "" if left is None or left < 0.5 else f"about {duration(left)} left"


class _TerminalBar:
    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.table import Column

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}", markup=False),
            # It gets the rest of the line, and is cut off in a narrow terminal.
            TextColumn(
                "{task.fields[text]}", markup=False, table_column=Column(ratio=1, no_wrap=True)
            ),
        )
        # Redrawing takes time from the work, which may be timed.
        console = Console(stderr=True)
        self.bar = Progress(*columns, console=console, refresh_per_second=4, expand=True)
        self.job = self.bar.add_task(title, total=1.0, text="", left="")
        self.bar.start()

    def show(self, share: float, text: str, left: float | None) -> None:
        self.bar.update(self.job, completed=share, text=text, left=_left_text(left))

    def close(self) -> None:
        self.bar.update(self.job, left="")
        self.bar.stop()


class _NotebookBar:
    """HTML that is replaced as work proceeds; the saved notebook keeps its last state."""

    def __init__(self, title: str) -> None:
        from IPython.display import display

        self.title, self.started = title, time.monotonic()
        self.state: tuple[float, str, float | None] = (0.0, "", None)
        self.drawn = -_REDRAW
        self.handle = display(self._content(), raw=True, display_id=True)  # type: ignore[no-untyped-call]

    def show(self, share: float, text: str, left: float | None) -> None:
        self.state = (share, text, left)
        if time.monotonic() - self.drawn >= _REDRAW:
            self._draw()

    def close(self) -> None:
        self.state = (*self.state[:2], None)
        self._draw()

    def _draw(self) -> None:
        self.drawn = time.monotonic()
        self.handle.update(self._content(), raw=True)

    def _content(self) -> dict[str, str]:
        share, text, left = self.state
        spent = duration(time.monotonic() - self.started)
        parts = [text, spent, _left_text(left)]
        line = "  ".join(part for part in parts if part)
        # Text takes the notebook's own colour; this blue and grey are visible on light and dark.
        bar = (
            '<div style="width:12em;height:0.5em;border-radius:0.25em;flex:none;overflow:hidden;'
            'background:rgba(128,128,128,0.3)"><div style="height:100%;background:#3d8bd9;'
            f'width:{100 * share:.1f}%"></div></div>'
        )
        row = (
            '<div style="display:flex;flex-wrap:wrap;align-items:center;gap:0.3em 0.8em;'
            'font-size:13px;font-variant-numeric:tabular-nums">'
            f"<b>{html.escape(self.title)}</b>{bar}"
            f'<span style="white-space:pre-wrap">{html.escape(line)}</span></div>'
        )
        return {"text/html": row, "text/plain": f"{self.title}: {line}"}


class _LogLines:
    """A log: each line comes at twice the time of the line before, so there are only a few."""

    def __init__(self, title: str) -> None:
        self.title, self.started, self.next = title, time.monotonic(), _FIRST_LINE
        self.printed = self.done = False

    def show(self, share: float, text: str, left: float | None) -> None:
        spent, self.done = time.monotonic() - self.started, share == 1
        if spent < self.next or self.done:
            return
        self.next, self.printed = 2 * spent, True
        self._print("  ".join(part for part in (text, duration(spent), _left_text(left)) if part))

    def close(self) -> None:
        if self.printed:
            spent = duration(time.monotonic() - self.started)
            self._print(f"done in {spent}" if self.done else f"stopped after {spent}")

    def _print(self, text: str) -> None:
        print(f"{self.title}: {text}", file=sys.stderr, flush=True)


class _ShownProgress:
    """A watcher that draws a bar when the first task begins."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.bar: Bar | None = None
        self.outer: TaskProgress | None = None
        self.text = ""

    def __call__(self, tasks: Sequence[TaskProgress]) -> None:
        if self.bar is None:
            self.bar = live_bar(self.title) or _LogLines(self.title)
        if tasks[0] is not self.outer:  # a task after another one starts at zero
            self.outer, self.share, self.started = tasks[0], 0.0, time.monotonic()
        left, spent = seconds_left(tasks), time.monotonic() - self.started
        share = 0.0 if left is None else spent / max(spent + left, 1e-9)
        # The time left may go up, but the bar never shrinks, and is full only at the end.
        self.share = max(self.share, min(share, 0.99))
        self.text = "  ".join(map(_in_words, tasks))
        self.bar.show(self.share, self.text, left)

    def finish(self) -> None:
        if self.bar is not None and self.outer is not None and not self.outer.paused:
            self.bar.show(1.0, self.text, None)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def _in_words(one: TaskProgress) -> str:
    count = f"{one.done}" if one.total is None else f"{one.done}/{one.total}"
    return " ".join(part for part in (one.name, count, one.kind, one.figures) if part)


@contextmanager
def progress(watcher: Watcher | None = None, *, title: str = "fit") -> Iterator[None]:
    """Show the progress of fits inside this block, with the time left.

    It is a bar in a terminal or a notebook, and a few lines in a log. Fits in other threads or
    processes are not shown.

    Args:
        watcher: Called instead of drawing a bar: when a task begins, after each of its steps, and
            when it ends. Its argument is the open tasks, the outermost first; a task has ``name``,
            ``done``, ``total`` (or ``None``), ``figures`` and ``ended``.
        title: In front of the bar.

    >>> import numpy as np
    >>> from llpkit.estimators import LLPClassifier, progress
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, groups, y = np.array([[0.0], [0.2], [3.0], [0.1]]), [0, 0, 1, 1], [0, 0, 1, 1]
    >>> seen = []
    >>> with progress(lambda tasks: seen.append(tasks[-1].name)):
    ...     model = LLPClassifier(GaussianNB()).fit(X, y, groups)
    >>> sorted(set(seen))
    ['EM', 'first guess']
    """
    if watcher is not None:
        with watch(watcher):
            yield
        return
    shown = _ShownProgress(title)
    with watch(shown):
        try:
            yield
            shown.finish()
        finally:
            shown.close()
