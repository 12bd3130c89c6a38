"""Progress of long work: tasks that count their steps, and bars that show them.

Code that works in steps opens a :func:`task`. Nothing happens unless someone is watching, see
:func:`watch`; :func:`progress` draws a bar in a terminal or a notebook, and a few lines in a log.
"""

from llpkit.progress.bars import in_notebook, live_bar, progress
from llpkit.progress.tasks import TaskProgress, seconds_left, steps_to, task, watch

__all__ = [
    "TaskProgress",
    "in_notebook",
    "live_bar",
    "progress",
    "seconds_left",
    "steps_to",
    "task",
    "watch",
]
