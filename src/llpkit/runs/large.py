"""Runs on tables that do not fit into memory: an estimator, fitted by Dask.

A sample of whole bags stands for the table where a run needs rows in memory: the encoder is fitted
to it, and metrics and reports are based on it.
"""

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from llpkit._text import several
from llpkit._validation import option
from llpkit.config import Config
from llpkit.datasets import DataSet
from llpkit.distributed.check import Checked, check
from llpkit.distributed.fitting import fit_checked
from llpkit.distributed.partitions import Partitions, parquet
from llpkit.distributed.parts import Layout
from llpkit.errors import LLPError
from llpkit.estimators.base import ENOUGH
from llpkit.estimators.registry import make
from llpkit.runs.data import count_columns, load_data
from llpkit.runs.estimator import FittedEstimator, history_of

Log = Callable[[dict[str, Any]], None]


class LargeTable:
    """A table in partitions, checked, and its sample as a data set.

    Dask computes where :func:`llpkit.distributed.cluster.connected` has connected it to.
    """

    def __init__(self, config: Config, log: Log) -> None:
        data = config.data
        assert data.table is not None  # checked with the configuration
        assert data.bag is not None
        if data.known_label is not None:
            raise LLPError(
                f"{option('known_label')} is for tables that fit into memory; leave it out, or "
                "use a part of the table"
            )
        self.config, self.log = config, log
        self.partitions: Partitions = parquet(data.table)
        self.layout = Layout(data.bag, count_columns(data), ())
        self.checked: Checked = check(
            self.partitions, self.layout, sample_rows=ENOUGH, seed=config.recipe.seed, every=True
        )
        rows, bags = sum(self.checked.rows), self.checked.bags
        log({"step": "check", "rows": rows, "bags": bags, "partitions": len(self.partitions)})
        self.sample = self._sample(rows, bags)

    def _sample(self, rows: int, bags: int) -> DataSet:
        """The sample, read like any table."""
        import pyarrow.parquet as pq

        with tempfile.TemporaryDirectory(prefix="llpkit-") as folder:
            path = Path(folder) / f"a sample of {Path(self.config.data.table or '').name}"
            path = path.with_suffix(".parquet")
            pq.write_table(self.checked.sample, path)
            found = load_data(self.config.data.replace(table=str(path)), self.config.recipe.seed)
        note = (
            f"the table has {rows:,} rows in {several(bags, 'bag')}; the encoder, the metrics and "
            f"the report are based on a sample of {len(found.bags):,} bags"
        )
        return replace(found, notes=(note, *found.notes))

    def train(self) -> FittedEstimator:
        """Fit the estimator to all partitions."""
        choice, recipe = self.config.estimator, self.config.recipe
        assert choice.estimator is not None
        assert self.sample.encoder is not None
        threads = self.config.execution.threads or 1
        estimator = make(choice.estimator, choice.estimator_options, recipe.seed, threads)
        layout = replace(self.layout, features=self.sample.encoder)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fitted = fit_checked(estimator, self.partitions, layout, self.checked, log=self.log)
        details: dict[str, Any] = {
            "estimator": choice.estimator,
            "rows": sum(self.checked.rows),
            "warnings": sorted({str(w.message) for w in caught}),
        }
        inputs, bags = self.sample.inputs, self.sample.bags
        assert isinstance(inputs, Tensor)
        width = len(inputs[0])
        return FittedEstimator(fitted, bags.num_classes, width, history_of(fitted), details)
