"""Checks of an estimator from a file, so that using it can neither crash nor hang.

skops makes sure that loading runs no code from the file, but not that the result is valid: the
compiled parts of scikit-learn follow the child indices of trees, and read support vectors, without
checking bounds. Here these are checked, and types whose compiled parts are not known to be harmless
are refused unless the user trusts them.

Some checks read private attributes of scikit-learn, as its compiled parts do: the public ones may
look right in a file whose private ones are wrong.
"""

import functools
import os
import types
import warnings
from collections.abc import Collection, Iterable
from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM
from sklearn.tree import BaseDecisionTree, DecisionTreeClassifier

from llpkit._arrays import Array
from llpkit.estimators.registry import ESTIMATORS

# These predict with NumPy only, or are checked below. Others (neighbours, clusters, processes) have
# compiled parts that trust their fitted attributes.
_KNOWN_MODULES = {
    "llpkit",
    "sklearn.calibration",
    "sklearn.compose",
    "sklearn.discriminant_analysis",
    "sklearn.dummy",
    "sklearn.ensemble",
    "sklearn.feature_selection",
    "sklearn.impute",
    "sklearn.linear_model",
    "sklearn.model_selection",
    "sklearn.multiclass",
    "sklearn.naive_bayes",
    "sklearn.neural_network",
    "sklearn.pipeline",
    "sklearn.preprocessing",
    "sklearn.svm",
    "sklearn.tree",
}
_KNOWN_TYPES = (PCA, TruncatedSVD)
_MOST_PARTS = 10**6

_GRADIENT_BOOSTING = (GradientBoostingClassifier, GradientBoostingRegressor)
_HISTOGRAM_BOOSTING = (HistGradientBoostingClassifier, HistGradientBoostingRegressor)
_SUPPORT_VECTORS = (SVC, NuSVC, SVR, NuSVR, OneClassSVM)


@functools.cache
def _compiled() -> tuple[Any, Any, Any]:
    """The types of the trees of decision trees and of boosting, and of the latter's nodes.

    scikit-learn has no public names for them, so they are taken from two small fits.
    """
    rows, labels = [[0.0], [1.0]], [0, 1]
    tree = DecisionTreeClassifier(random_state=0).fit(rows, labels).tree_
    boosting = HistGradientBoostingClassifier(max_iter=1, random_state=0).fit(rows, labels)
    predictor = boosting._predictors[0][0]
    return type(tree), type(predictor), predictor.nodes.dtype


class Unsound(ValueError):
    """A part of an estimator that no fit could have produced."""


def name_of(kind: type) -> str:
    """The name of a type as used in ``trusted``."""
    return f"{kind.__module__}.{kind.__qualname__}"


def strange_estimators(
    part: Any, trusted: Collection[str], *, bound_jobs: bool = False
) -> list[str]:
    """Check all parts of an estimator; returns the names of types that have to be trusted.

    ``bound_jobs`` limits the processes of every part to the number of cores.
    """
    strange: set[str] = set()
    _Walk(trusted, strange, bound_jobs).count(part)
    return sorted(strange)


class _Walk:
    def __init__(self, trusted: Collection[str], strange: set[str], bound_jobs: bool) -> None:
        self.trusted, self.strange, self.bound_jobs = trusted, strange, bound_jobs
        self.counts: dict[int, int | None] = {}
        self.kept: list[Any] = []  # keeps parts alive, so that no id is used twice

    def count(self, part: Any) -> int:
        """Number of estimators that a prediction may call; one in two places counts twice.

        Estimators that contain each other, or each the next one several times, would never finish.
        """
        if id(part) in self.counts:
            found = self.counts[id(part)]
            if found is None:
                raise Unsound("it contains itself")
            return found
        self.counts[id(part)] = None  # marks a part that is still being counted
        self.kept.append(part)
        total = int(isinstance(part, BaseEstimator)) + sum(map(self.count, self._inside(part)))
        if total > _MOST_PARTS:
            raise Unsound(f"it has more than {_MOST_PARTS:,} parts")
        self.counts[id(part)] = total
        return total

    def _inside(self, part: Any) -> Iterable[Any]:
        if part is None or isinstance(part, str | bytes | int | float | complex | np.generic):
            return ()
        if isinstance(part, dict):
            return part.values()
        if isinstance(part, list | tuple | set | frozenset):
            return part
        if isinstance(part, np.ndarray):
            return part.ravel().tolist() if part.dtype == object else ()
        if sparse.issparse(part):
            getattr(part, "check_format", lambda **_: None)(full_check=True)
            return ()
        if isinstance(part, functools.partial):
            return (part.func, part.args, part.keywords)
        if isinstance(part, types.MethodType):
            return (part.__self__,)
        if isinstance(part, type) or not hasattr(part, "__dict__"):
            if isinstance(part, _compiled()[0]):
                raise Unsound("a tree outside a decision tree")
            return ()
        return self._of_object(part)

    def _of_object(self, part: Any) -> Iterable[Any]:
        attributes = dict(vars(part))
        if name_of(type(part)) in self.trusted:
            return attributes.values()
        if isinstance(part, _compiled()[1]):
            raise Unsound("a tree outside gradient boosting")
        if isinstance(part, BaseEstimator):
            if not _known(type(part)):
                self.strange.add(name_of(type(part)))
            for key in attributes:
                if isinstance(getattr(type(part), key, None), types.FunctionType):
                    raise Unsound(f"{type(part).__name__}.{key} is not its own")
            jobs = attributes.get("n_jobs") if self.bound_jobs else None
            if isinstance(jobs, int) and jobs > (cores := os.cpu_count() or 1):
                part.n_jobs = cores
        if isinstance(part, BaseDecisionTree) and "tree_" in attributes:
            _check_tree(attributes.pop("tree_"), _width(part))
        if isinstance(part, _GRADIENT_BOOSTING) and "estimators_" in attributes:
            _check_stages(part)
        if isinstance(part, _HISTOGRAM_BOOSTING) and "_predictors" in attributes:
            _check_histograms(part, attributes.pop("_predictors"))
        if isinstance(part, _SUPPORT_VECTORS) and "support_vectors_" in attributes:
            if _is_plain(part):
                _check_support(part)
            else:
                self.strange.add(name_of(type(part)))
        return attributes.values()


def _known(kind: type) -> bool:
    module = kind.__module__
    packages = {module.partition(".")[0], ".".join(module.split(".")[:2])}
    if packages & _KNOWN_MODULES or kind in _KNOWN_TYPES:
        return True
    # From a plugin that the user has loaded.
    return any(entry.build is kind for entry in ESTIMATORS.values())


def _width(estimator: Any) -> int:
    """The number of features, which the estimator itself compares with that of a table."""
    width = vars(estimator).get("n_features_in_")
    if not isinstance(width, Integral) or width < 1:
        raise Unsound(f"{type(estimator).__name__} has {width!r} features")
    return int(width)


def _check_tree(tree: Any, width: int) -> None:
    if not isinstance(tree, _compiled()[0]) or not 1 <= tree.node_count <= tree.capacity:
        raise Unsound("a tree without nodes")  # reading beyond its capacity would crash
    if tree.n_features != width:
        raise Unsound(f"a tree of {tree.n_features} features among {width}")
    left, right = tree.children_left, tree.children_right
    inner = left != -1
    if (right[~inner] != -1).any():
        raise Unsound("a leaf with a child")
    _check_nodes(left, right, inner, tree.feature, tree.threshold, width)
    if not np.isfinite(tree.value).all():
        raise Unsound("a leaf without a value")


def _check_nodes(
    left: Array, right: Array, inner: Array, feature: Array, threshold: Array, width: int
) -> None:
    """Check that nodes form a tree, and that they split by existing features."""
    children = np.concatenate([left[inner], right[inner]]).astype(np.int64)
    parents = np.tile(np.flatnonzero(inner), 2)
    # If every child comes after its parent, there are no cycles.
    if (children <= parents).any() or (np.sort(children) != np.arange(1, len(left))).any():
        raise Unsound("nodes that do not form a tree")
    if ((feature[inner] < 0) | (feature[inner] >= width)).any():
        raise Unsound(f"a split by a feature that is not among the {width}")
    if np.isnan(threshold[inner]).any():
        raise Unsound("a split without a threshold")


def _check_stages(boosting: Any) -> None:
    stages, width = boosting.estimators_, _width(boosting)
    shape = (len(stages), boosting.n_trees_per_iteration_)
    if not isinstance(stages, np.ndarray) or stages.shape != shape:
        raise Unsound("gradient boosting with the wrong number of trees")
    for tree in stages.ravel():
        if not isinstance(tree, BaseDecisionTree) or _width(tree) != width:
            raise Unsound("gradient boosting with trees of different features")


def _check_histograms(boosting: Any, predictors: Any) -> None:
    width, (_, kind, dtype) = _width(boosting), _compiled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about missing column names
        row = boosting._preprocess_X(np.full((1, width), np.nan), reset=False)
    if np.shape(row) != (1, width):
        raise Unsound("columns that its trees do not see")
    for predictor in (tree for stage in predictors for tree in stage):
        nodes, bits = predictor.nodes, predictor.raw_left_cat_bitsets
        if not isinstance(predictor, kind) or nodes.dtype != dtype:
            raise Unsound("something that is not a tree")
        if nodes.ndim != 1 or not len(nodes):
            raise Unsound("a tree without nodes")
        inner = nodes["is_leaf"] == 0
        feature, threshold = nodes["feature_idx"], nodes["num_threshold"]
        _check_nodes(nodes["left"], nodes["right"], inner, feature, threshold, width)
        if not np.isfinite(nodes["value"]).all():
            raise Unsound("a leaf without a value")
        sets = inner & (nodes["is_categorical"] != 0)
        if sets.any():
            wide = bits.ndim == 2 and bits.shape[1] == 8
            known = boosting._bin_mapper.is_categorical_[feature[sets]].all()
            if not wide or not known or (nodes["bitset_idx"][sets] >= len(bits)).any():
                raise Unsound("a split by categories that do not exist")


def _is_plain(machine: Any) -> bool:
    """Whether a support vector machine is a classifier of dense rows with a built-in kernel."""
    known = isinstance(machine, SVC | NuSVC) and machine.kernel in (
        "linear",
        "poly",
        "rbf",
        "sigmoid",
    )
    return known and not machine._sparse and machine._impl == type(machine)._impl


def _check_support(machine: Any) -> None:
    """Check that the arrays of a support vector machine fit together."""
    kept, width = machine._n_support, _width(machine)
    classes, number = len(kept), int(kept.sum())
    pairs = classes * (classes - 1) // 2
    shapes = {
        "support_": (number,),
        "support_vectors_": (number, width),
        "_dual_coef_": (classes - 1, number),
        "_intercept_": (pairs,),
        "classes_": (classes,),
    }
    fits = all(np.shape(getattr(machine, name)) == shape for name, shape in shapes.items())
    scales = all(len(scale) in (0, pairs) for scale in (machine._probA, machine._probB))
    if classes < 2 or (kept < 0).any() or not fits or not scales:
        raise Unsound("a support vector machine whose parts do not fit together")
