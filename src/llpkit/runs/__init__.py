"""The work behind the commands: run directories, predictions, metrics. Nothing here prints."""

from llpkit.runs.data import checksum, load_data, take
from llpkit.runs.evaluation import evaluate
from llpkit.runs.folder import REPORT, RunFolder
from llpkit.runs.inference import run_shares, run_summary, table_shares
from llpkit.runs.machine import environment
from llpkit.runs.opening import Run, data_of, is_saved_model, open_model, open_run
from llpkit.runs.predictions import predict, write_predictions
from llpkit.runs.resume import nothing_to_resume, saved_settings
from llpkit.runs.streaming import is_long, stream
from llpkit.runs.train import fit, follow, leads

__all__ = [
    "REPORT",
    "Run",
    "RunFolder",
    "checksum",
    "data_of",
    "environment",
    "evaluate",
    "fit",
    "follow",
    "is_long",
    "is_saved_model",
    "leads",
    "load_data",
    "nothing_to_resume",
    "open_model",
    "open_run",
    "predict",
    "run_shares",
    "run_summary",
    "saved_settings",
    "stream",
    "table_shares",
    "take",
    "write_predictions",
]
