"""Arguments that several commands take."""

from pathlib import Path
from typing import Annotated

import typer

Threshold = Annotated[
    float, typer.Option(help="Label positive at or above this probability.", metavar="P")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …", metavar="NAME")]
TrustModel = Annotated[
    bool,
    typer.Option(
        "--trust-model",
        help="Also read LightGBM and XGBoost models, which can crash the process if altered.",
    ),
]
RunDir = Annotated[
    Path, typer.Argument(help="A directory that llpkit fit wrote.", metavar="RUN_DIR")
]
Source = Annotated[
    str | None,
    typer.Argument(
        help="A table, or the name of a data set (the run's own data).",
        metavar="[TABLE|DATASET]",
        show_default=False,
    ),
]
