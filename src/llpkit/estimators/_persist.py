"""Fitted estimators in files, without pickle."""

import os
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llpkit._files import atomic
from llpkit.errors import LLPError

# What skops does not trust of itself, though loading it runs no code of the file: the nodes of
# trees, the states of optimisers, the models of LightGBM and XGBoost, and a check of arrays with
# its options (of a partial function skops asks about the function too).
_TRUSTED = (
    "collections.OrderedDict",
    "functools.partial",
    "lightgbm.basic.Booster",
    "lightgbm.sklearn.LGBMClassifier",
    "numpy.dtype",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
    "sklearn.utils.validation.check_array",
    "xgboost.core.Booster",
    "xgboost.sklearn.XGBClassifier",
)


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator, or a pipeline that ends in one, to a skops file.

    Of parts that :func:`load` would only make when told to, a warning is given.
    """
    import skops.io

    file = Path(os.path.expanduser(path))
    with atomic(file) as temporary:
        skops.io.dump(estimator, temporary, compression=zipfile.ZIP_DEFLATED)
        strange = _strange(skops.io.get_untrusted_types(file=temporary), ())
    if strange:
        warnings.warn(
            f"{file} holds objects of {', '.join(strange)}; to load it pass trusted={strange}",
            UserWarning,
            stacklevel=2,
        )


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
        strange = _strange(found, trusted)
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


def _strange(found: Sequence[str], trusted: Sequence[str]) -> list[str]:
    known = {*_own_types(), *_TRUSTED, *trusted}
    return [name for name in found if name not in known]


def _own_types() -> list[str]:
    from llpkit import estimators

    named = (getattr(estimators, name) for name in estimators.__all__)
    return [f"{t.__module__}.{t.__qualname__}" for t in named if isinstance(t, type)]
