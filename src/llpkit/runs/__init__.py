"""What the commands do: runs in directories, predictions, measurements. Nothing here prints."""

from llpkit.runs._data import Known, checksum, divide, known_datasets, load_data, take
from llpkit.runs._fit import (
    CONFIG,
    ENCODER,
    ENVIRONMENT,
    METRICS,
    Finished,
    Stopped,
    fit,
    nothing_to_resume,
    unfinished,
)
from llpkit.runs._measure import measure
from llpkit.runs._page import FIGURES
from llpkit.runs._place import REPORT, Place
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
    "CONFIG",
    "ENCODER",
    "ENVIRONMENT",
    "FIGURES",
    "METRICS",
    "REPORT",
    "Finished",
    "Known",
    "Place",
    "Predictions",
    "Run",
    "Stopped",
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
    "nothing_to_resume",
    "open_run",
    "predict",
    "take",
    "unfinished",
    "write_predictions",
]
