"""The paper's experiments as grids of runs that can be stopped, continued and merged.

A :class:`Run` is one training; its record is a small JSON file in a :class:`Store`. :func:`plan`
lists the runs of an experiment, :func:`reproduce` carries out those that have no record yet. What
determines a run's result is in its id, so a finished run is never run again.

>>> settings = Settings("digits", methods=["mle", "dllp"], folds=[0, 1])
>>> [run.title for run in plan("convergence", settings)]
['digits, mle, fold 0', 'digits, dllp, fold 0', 'digits, mle, fold 1', 'digits, dllp, fold 1']
"""

from llpkit.experiments._execute import BACKENDS, Display, Outcome, deadline, execute
from llpkit.experiments._page import write_report
from llpkit.experiments._plan import PROTOCOLS, Choice, Settings, parse_folds, plan
from llpkit.experiments._reproduce import everything, planned, reproduce
from llpkit.experiments._run import EXPERIMENTS, Run, Store
from llpkit.experiments._work import Place, carry_out

__all__ = [
    "BACKENDS",
    "EXPERIMENTS",
    "PROTOCOLS",
    "Choice",
    "Display",
    "Outcome",
    "Place",
    "Run",
    "Settings",
    "Store",
    "carry_out",
    "deadline",
    "everything",
    "execute",
    "parse_folds",
    "plan",
    "planned",
    "reproduce",
    "write_report",
]
