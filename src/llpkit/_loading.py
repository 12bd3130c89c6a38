"""Open any saved model: a network, or the run directory of a command."""

from pathlib import Path
from typing import TYPE_CHECKING

from llpkit.files import Checksums, path_of

if TYPE_CHECKING:
    from torch import nn

    from llpkit.training import Fitted


def load(
    directory: "str | Path", network: "nn.Module | None" = None, *, trust_model: bool = False
) -> "Fitted":
    """Open a model that :meth:`Fitted.save` or the command ``llpkit fit`` wrote.

    The files cannot run code, and damaged ones are rejected. A model trained on a table includes
    its encoder, so it predicts for data frames with the columns of that table:
    ``llpkit.load("runs/survey").predict_proba(frame)``.

    Args:
        directory: Where it was saved, or a run directory.
        network: A network of the trained architecture, if llpkit cannot build it by name; its
            weights are replaced.
        trust_model: Also open LightGBM and XGBoost models; a crafted file can crash the process.
    """
    from llpkit import training
    from llpkit.training.model import DESCRIPTION, WEIGHTS

    folder = path_of("directory", directory)
    checksums = Checksums.read(folder)
    is_network = WEIGHTS in checksums.files if checksums else (folder / DESCRIPTION).exists()
    if is_network or network is not None:
        return training.load(folder, network)
    from llpkit import runs  # imports SciPy, which networks do not need

    return runs.open_model(folder, trust_model=trust_model)
