"""Fitted estimators in files, without pickle."""

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llpkit.datasets._files import atomic
from llpkit.errors import LLPError

# What skops does not trust of itself, though loading it runs no code of the file: the nodes of
# trees and LightGBM's model text.
_TRUSTED = (
    "collections.OrderedDict",
    "lightgbm.basic.Booster",
    "lightgbm.sklearn.LGBMClassifier",
    "numpy.dtype",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.tree._tree.Tree",
)


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator, or a pipeline that ends in one, to a skops file."""
    import skops.io

    file = Path(os.path.expanduser(path))
    with atomic(file) as temporary:
        skops.io.dump(estimator, temporary, compression=zipfile.ZIP_DEFLATED)


def load(path: str | os.PathLike[str], *, trusted: Sequence[str] = ()) -> Any:
    """Read what :func:`save` wrote. No code in the file is run.

    Args:
        path: The file.
        trusted: Further types, by their full names, that may be made from it.
    """
    import skops.io
    from skops.io.exceptions import UntrustedTypesFoundException

    file = Path(os.path.expanduser(path))
    try:
        found = skops.io.get_untrusted_types(file=file)
        known = {*_own_types(), *_TRUSTED, *trusted}
        strange = [name for name in found if name not in known]
        if strange:
            raise LLPError(
                f"{file} would make objects of {', '.join(strange)}; if you know these types and "
                f"where the file comes from, pass trusted={strange}"
            )
        return skops.io.load(file, trusted=found)
    except LLPError:
        raise
    except FileNotFoundError as error:
        raise LLPError(f"{file} does not exist; check the path of the estimator") from error
    except UntrustedTypesFoundException as error:
        raise LLPError(f"{file} holds types that are not trusted: {error}") from error
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, OSError, ImportError) as error:
        raise LLPError(f"{file} is not a whole estimator: {error}; save it again") from error


def _own_types() -> list[str]:
    from llpkit import estimators

    named = (getattr(estimators, name) for name in estimators.__all__)
    return [f"{t.__module__}.{t.__qualname__}" for t in named if isinstance(t, type)]
