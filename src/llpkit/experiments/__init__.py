"""The paper's experiments: many runs under one protocol, their records, and the results.

A results folder has one :class:`Protocol`. :func:`reproduce` performs the runs that have no record
yet, so that it can be stopped and continued; :class:`Results` reads a folder. From ``reproduce`` in
``execute.py``, follow ``plan.py`` (which runs; for a grid it asks ``search.py``), ``backends.py``
(where each is performed) and ``run.py`` (training, metrics, the record).

>>> load("digits").experiments
['convergence', 'bag-size', 'epoch-time']
"""

from llpkit.experiments.backends import BACKENDS
from llpkit.experiments.execute import Outcome, reproduce
from llpkit.experiments.protocol import EXPERIMENTS, Protocol
from llpkit.experiments.protocol_file import load
from llpkit.experiments.records import ExperimentRun, Record
from llpkit.experiments.results import Results
from llpkit.experiments.run import WorkerSettings

__all__ = [
    "BACKENDS",
    "EXPERIMENTS",
    "ExperimentRun",
    "Outcome",
    "Protocol",
    "Record",
    "Results",
    "WorkerSettings",
    "load",
    "reproduce",
]
