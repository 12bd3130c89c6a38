"""Arguments that several commands take."""

from pathlib import Path
from typing import Annotated

import typer

Threshold = Annotated[
    float,
    typer.Option(help="Probability from which an instance is labelled positive.", metavar="P"),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
DataDir = Annotated[
    str | None,
    typer.Option(help="Folder of the data sets (LLPKIT_DATA, else a cache folder).", metavar="DIR"),
]
Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda, cuda:1, …", metavar="NAME")]
TrustModel = Annotated[
    bool,
    typer.Option(
        "--trust-model",
        help="Also read LightGBM and XGBoost models; a crafted file can crash the process.",
    ),
]
RunDir = Annotated[
    Path, typer.Argument(help="A run directory, written by llpkit fit.", metavar="RUN_DIR")
]
Source = Annotated[
    str | None,
    typer.Argument(
        help="A table, or the name of a data set (default: the run's own data).",
        metavar="TABLE|DATASET",
    ),
]
