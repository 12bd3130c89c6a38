"""Partitions on Ray, through Dask's interface to other schedulers."""

import dask
import pytest

from large import write
from llpkit import LLPError, distributed
from llpkit.estimators import LLPLogisticRegression


@pytest.mark.slow
def test_logistic_on_ray_is_that_of_dask(tmp_path):
    ray = pytest.importorskip("ray")
    from ray.util.dask import ray_dask_get

    paths = write(tmp_path, 4)
    here = distributed.fit(LLPLogisticRegression(), tmp_path, bag="bag", count="n")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        with dask.config.set(scheduler=ray_dask_get):
            there = distributed.fit(LLPLogisticRegression(), tmp_path, bag="bag", count="n")
            assert (there.coef_ == here.coef_).all()
            assert (there.intercept_ == here.intercept_).all()
            write(tmp_path / "..", 1)[0].replace(paths[2])  # its bags are those of the first
            with pytest.raises(LLPError, match=r"is split: it has rows in partition 0"):
                distributed.fit(LLPLogisticRegression(), tmp_path, bag="bag", count="n")
    finally:
        ray.shutdown()
