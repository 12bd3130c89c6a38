"""Tasks that count their steps, and callbacks that watch them.

Tasks may be nested: the fits of an ensemble, and the iterations of EM in each of them.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

_RECENT = 10
"""Number of latest values that an extrapolation uses."""


@dataclass
class TaskProgress:
    """How far a task has come, in steps.

    Args:
        name: What is being done, such as ``"EM"``.
        total: Number of steps, if it is known.
        kinds: The kind of every step, if they differ; steps of one kind take about the same time.
        warm_up: First steps whose times say little, such as those in which workers start.
    """

    name: str
    total: int | None = None
    kinds: Sequence[str] = ()
    warm_up: int = 0
    done: int = 0
    """Finished steps."""
    figures: str = ""
    """The results of the last step, as text."""
    left: float | None = None
    """Expected number of steps left, if the total is not known."""
    ended: bool = False
    paused: bool = False
    """Whether it ended before its last step, to be continued another time."""
    _spent: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Seconds and steps so far, by kind."""
    _step_started: float = field(default_factory=lambda: time.monotonic())

    @property
    def kind(self) -> str:
        """The kind of the step in progress, if steps have one."""
        return self.kinds[self.done] if self.done < len(self.kinds) else ""

    def begin(self, done: int = 0) -> None:
        """Start the first step only now, with this many done before: preparations do not count."""
        self.done, self._step_started = done, time.monotonic()

    def step(self, figures: str = "", left: float | None = None) -> None:
        """Count a finished step."""
        now = time.monotonic()
        if self.done >= self.warm_up:
            seconds, steps = self._spent.get(self.kind, (0.0, 0))
            self._spent[self.kind] = seconds + now - self._step_started, steps + 1
        self._step_started = now
        self.done += 1
        self.figures, self.left = figures, left
        _announce()

    def seconds_left(self, inside: float | None = None) -> float | None:
        """Expected seconds to the end, if known; ``inside`` is that of a task in this step."""
        spent = time.monotonic() - self._step_started
        left = self.left if self.total is None else self.total - self.done
        if self.ended or left == 0:
            return 0.0
        if left is None:
            return None
        means = {kind: seconds / steps for kind, (seconds, steps) in self._spent.items()}
        # A step of a new kind is expected to take as long as the others, or as the first step.
        usual = spent + inside if inside is not None else None
        if means:
            usual = sum(means.values()) / len(means)
        if usual is None:
            return None
        now = means.get(self.kind, usual)
        current = inside if inside is not None else max(0.0, now - spent)
        if self.kinds:
            return current + sum(means.get(kind, usual) for kind in self.kinds[self.done + 1 :])
        return current + max(0.0, left - 1) * now


Watcher = Callable[[Sequence[TaskProgress]], None]
"""Called when a task begins, after each of its steps, and when it ends, with all open tasks."""


@dataclass
class _Watched:
    watcher: Watcher
    tasks: list[TaskProgress] = field(default_factory=list)


_watched: ContextVar[_Watched | None] = ContextVar("watched", default=None)


@contextmanager
def watch(watcher: Watcher) -> Iterator[None]:
    """Call the watcher for all tasks in this block.

    >>> with watch(lambda tasks: print([(one.name, one.done) for one in tasks])):
    ...     with task("fits", 2) as fits:
    ...         fits.step()
    [('fits', 0)]
    [('fits', 1)]
    [('fits', 1)]
    """
    token = _watched.set(_Watched(watcher))
    try:
        yield
    finally:
        _watched.reset(token)


@contextmanager
def task(
    name: str, total: int | None = None, kinds: Sequence[str] = (), warm_up: int = 0
) -> Iterator[TaskProgress]:
    """Open a task for this block."""
    opened = TaskProgress(name, len(kinds) if kinds else total, kinds, warm_up)
    watched = _watched.get()
    if watched is None:
        yield opened
        return
    watched.tasks.append(opened)
    _announce()
    try:
        yield opened
        opened.ended = True
        _announce()
    finally:
        watched.tasks.remove(opened)


def _announce() -> None:
    watched = _watched.get()
    if watched is not None:
        watched.watcher(tuple(watched.tasks))


def seconds_left(tasks: Sequence[TaskProgress]) -> float | None:
    """Expected seconds until the outermost task ends, if known."""
    left: float | None = None
    for one in reversed(tasks):
        left = one.seconds_left(left)
    return left


def steps_to(values: Sequence[float], target: float) -> float | None:
    """Expected number of steps until values that fall geometrically reach the target.

    >>> round(steps_to([8.0, 4.0, 2.0], target=0.5), 6)
    2.0
    >>> steps_to([1.0, 1.0], target=0.5)
    """
    recent = [math.log(value) for value in values[-_RECENT:] if 0 < value < math.inf]
    if len(recent) < 2:
        return None
    slope = (recent[-1] - recent[0]) / (len(recent) - 1)
    if slope >= 0:
        return None
    return max(0.0, (math.log(target) - recent[-1]) / slope)
