"""Saving and loading fitted estimators without pickle."""

import io
import json
import os
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llpkit.errors import LLPError
from llpkit.files import atomic, check_regular, check_unpacked, path_of

# Types that skops does not trust by default, though loading them runs no code from the file: the
# nodes of trees, whose structure is checked here, the states of optimisers, and a check of arrays
# with its options (for a partial function, skops asks about the function too).
_TRUSTED = (
    "collections.OrderedDict",
    "functools.partial",
    "numpy.dtype",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
    "sklearn.utils.validation.check_array",
)

_MOST_NODES, _ROUNDS = 10**7, 50
"""Maximum number of nodes with all references followed, and of rounds to determine the sizes."""

BOOSTERS = (
    "lightgbm.basic.Booster",
    "lightgbm.sklearn.LGBMClassifier",
    "xgboost.core.Booster",
    "xgboost.sklearn.XGBClassifier",
)
"""Types that run no code from the file, but whose readers a crafted file can crash or hang."""


class Untrusted(LLPError):
    """A file with types that are loaded only if the user trusts them."""

    def __init__(self, file: Path, names: Sequence[str]) -> None:
        super().__init__(
            f"{file} would create objects of {', '.join(names)}; if you know these types and trust "
            f"the source of the file, pass trusted={list(names)}"
        )
        self.names = tuple(names)


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator, or a pipeline that ends in one, to a skops file.

    A warning names all types that :func:`load` accepts only if they are trusted, such as the models
    of LightGBM and XGBoost and scikit-learn's nearest-neighbour classifiers.
    """
    import skops.io

    from llpkit.estimators._untrusted import strange_estimators

    file = path_of("path", path).expanduser()
    with atomic(file) as temporary:
        skops.io.dump(estimator, temporary, compression=zipfile.ZIP_DEFLATED)
        strange = _strange(skops.io.get_untrusted_types(file=temporary), ())
    try:
        strange += [name for name in strange_estimators(estimator, ()) if name not in strange]
    except Exception as error:  # the check may raise anything for unknown objects
        warnings.warn(f"{file} cannot be loaded again: {error}", UserWarning, stacklevel=2)
        return
    if strange:
        warnings.warn(
            f"{file} holds objects of {', '.join(strange)}; to load it pass trusted={strange}",
            UserWarning,
            stacklevel=2,
        )


def load(path: str | os.PathLike[str], *, trusted: Sequence[str] = ()) -> Any:
    """Read what :func:`save` wrote. No code in the file is run, and trees are checked.

    Types whose compiled parts a crafted file could crash, such as the models of LightGBM and
    XGBoost and scikit-learn's nearest-neighbour classifiers, are loaded only if they are trusted.
    The environment variable ``LLPKIT_MAX_UNPACKED`` limits the unpacked size of the file.

    Args:
        path: The file.
        trusted: Full names of further types that may be loaded without checks.
    """
    import skops.io

    from llpkit.estimators._untrusted import strange_estimators

    file = path_of("path", path).expanduser()
    try:
        check_regular(file)
        content = file.read_bytes()
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            check_unpacked(file, sum(info.file_size for info in archive.infolist()))
            _check_references(json.loads(archive.read("schema.json")))
        found = skops.io.get_untrusted_types(data=content)
        strange = _strange(found, trusted)
        if not strange:
            estimator = skops.io.loads(content, trusted=found)
            strange = strange_estimators(estimator, trusted, bound_jobs=True)
        if strange:
            raise Untrusted(file, strange)
        return estimator
    except LLPError:
        raise
    except FileNotFoundError as error:
        raise LLPError(f"{file} does not exist; check the path of the estimator") from error
    except Exception as error:  # readers may raise anything for a damaged file
        raise LLPError(f"{file} is not a valid estimator: {error}; save it again") from error


def _check_references(schema: Any) -> None:
    """Refuse parts that refer to each other so often that loading would never finish.

    A part refers to an earlier one with the same id, whichever of them skops reads first, so sizes
    are updated until they no longer change.
    """
    sizes: dict[Any, int] = {}

    def size(part: Any) -> int:
        if isinstance(part, list):
            return sum(map(size, part))
        if not isinstance(part, dict):
            return 0
        total = 1 + sum(map(size, part.values()))
        if (own := part.get("__id__")) is None:
            return total
        sizes[own] = max(total, sizes.get(own, 0))
        return sizes[own]

    for _ in range(_ROUNDS):
        before = dict(sizes)
        if size(schema) > _MOST_NODES:
            break
        if sizes == before:
            return
    raise ValueError("its parts refer to each other without end")


def _strange(found: Sequence[str], trusted: Sequence[str]) -> list[str]:
    known = {*_own_types(), *_TRUSTED, *trusted}
    return [name for name in found if name not in known]


def _own_types() -> list[str]:
    """The estimators of llpkit and of plugins, whose code the user has loaded."""
    from llpkit import estimators

    known = [getattr(estimators, name) for name in estimators.__all__]
    known += [entry.build for entry in estimators.ESTIMATORS.values()]
    return [f"{t.__module__}.{t.__qualname__}" for t in known if isinstance(t, type)]
