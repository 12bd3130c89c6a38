"""The configuration of a run: one YAML file, or the same settings as options.

Every setting is a field of :class:`Data`, :class:`~llpkit.training.Recipe`,
:class:`~llpkit.training.Execution`, :class:`EstimatorSettings`, :class:`Split`, :class:`Cluster` or
:class:`Tracking`. In the file, those of ``Data`` are under ``data``, all others at the top. All
problems of a configuration are reported in one error.
"""

from llpkit.config.data import TABLE_DATASETS, Data, Split, Values
from llpkit.config.files import absolute, check, merge, read, to_yaml
from llpkit.config.run import Cluster, Config, EstimatorSettings, Tracking

__all__ = [
    "TABLE_DATASETS",
    "Cluster",
    "Config",
    "Data",
    "EstimatorSettings",
    "Split",
    "Tracking",
    "Values",
    "absolute",
    "check",
    "merge",
    "read",
    "to_yaml",
]
