"""What the commands do: runs in directories, predictions, measurements. Nothing here prints."""

from llpkit.runs._data import Known, checksum, divide, known_datasets, load_data, take
from llpkit.runs._fit import (
    CHECKPOINT,
    CONFIG,
    ENCODER,
    ENVIRONMENT,
    METRICS,
    Finished,
    fit,
    partial_of,
    publish,
    unfinished,
)
from llpkit.runs._measure import measure
from llpkit.runs._page import FIGURES, REPORT, wall
from llpkit.runs._predict import (
    Predictions,
    Run,
    data_of,
    evaluate,
    is_table,
    open_run,
    predict,
    write_predictions,
)
from llpkit.runs._record import environment, flat

__all__ = [
    "CHECKPOINT",
    "CONFIG",
    "ENCODER",
    "ENVIRONMENT",
    "FIGURES",
    "METRICS",
    "REPORT",
    "Finished",
    "Known",
    "Predictions",
    "Run",
    "checksum",
    "data_of",
    "divide",
    "environment",
    "evaluate",
    "fit",
    "flat",
    "is_table",
    "known_datasets",
    "load_data",
    "measure",
    "open_run",
    "partial_of",
    "predict",
    "publish",
    "take",
    "unfinished",
    "wall",
    "write_predictions",
]
