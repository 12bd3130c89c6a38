"""The configuration of a run: one YAML file, or the same settings as options.

Every setting is a field of :class:`Data`, :class:`~llpkit.training.Recipe`,
:class:`~llpkit.training.Execution`, :class:`Choice`, :class:`Cluster` or :class:`Tracking`. In the
file, those of ``Data`` are under ``data``, all others at the top. All problems of a configuration
are reported in one error.
"""

from llpkit.config.data import TABLES, Data, Values
from llpkit.config.files import absolute, check, merge, read, to_yaml
from llpkit.config.run import Choice, Cluster, Config, Tracking

__all__ = [
    "TABLES",
    "Choice",
    "Cluster",
    "Config",
    "Data",
    "Tracking",
    "Values",
    "absolute",
    "check",
    "merge",
    "read",
    "to_yaml",
]
