"""The page of a run."""

from collections.abc import Mapping
from pathlib import Path

from llpkit._files import write_text
from llpkit.bags import Bags
from llpkit.config import Config, Values
from llpkit.datasets import DataSet
from llpkit.runs.estimator import FittedEstimator
from llpkit.runs.folder import REPORT
from llpkit.training import Fitted

FIGURES = "figures"


def write_report(
    work: Path,
    config: Config,
    data: DataSet,
    parts: Mapping[str, Bags],
    model: Fitted,
    record: Values,
) -> None:
    """Write the page of a run and its figures into its folder."""
    # Matplotlib is slow to import, and most commands draw nothing.
    from llpkit.report import write_page

    if isinstance(model, FittedEstimator):
        from llpkit.runs.estimator_page import estimator_page

        page, tables = estimator_page(config, data, parts, model, record)
    else:
        from llpkit.runs.network_page import network_page

        page, tables = network_page(config, data, parts, model, record)
    for name, text in tables.items():
        write_text(work / name, text)
    write_page(page, work / REPORT, figures_dir=work / FIGURES)
