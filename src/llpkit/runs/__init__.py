"""The work behind the commands: run directories, predictions, measurements. Nothing here prints."""

from llpkit.runs.data import Known, checksum, divide, known_datasets, load_data, take
from llpkit.runs.folder import FIGURES, REPORT, RunFolder
from llpkit.runs.inference import (
    draw_shares,
    run_shares,
    run_summary,
    table_shares,
    write_shares,
)
from llpkit.runs.machine import environment, flat
from llpkit.runs.measures import measure
from llpkit.runs.predictions import (
    Predictions,
    Run,
    data_of,
    evaluate,
    is_saved_model,
    is_table,
    open_model,
    open_run,
    predict,
    write_predictions,
)
from llpkit.runs.resume import CONFIG, nothing_to_resume, unfinished
from llpkit.runs.streaming import Streamed, is_long, stream
from llpkit.runs.train import (
    ENVIRONMENT,
    METRICS,
    Finished,
    Stopped,
    fit,
    follow,
    leads,
)
from llpkit.training.model import ENCODER

__all__ = [
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
    "RunFolder",
    "Stopped",
    "Streamed",
    "checksum",
    "data_of",
    "divide",
    "draw_shares",
    "environment",
    "evaluate",
    "fit",
    "flat",
    "follow",
    "is_long",
    "is_saved_model",
    "is_table",
    "known_datasets",
    "leads",
    "load_data",
    "measure",
    "nothing_to_resume",
    "open_model",
    "open_run",
    "predict",
    "run_shares",
    "run_summary",
    "stream",
    "table_shares",
    "take",
    "unfinished",
    "write_predictions",
    "write_shares",
]
