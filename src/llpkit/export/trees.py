"""Sums of decision trees as one ONNX node, in float64: scikit-learn, XGBoost, LightGBM.

Thresholds are copied exactly, so every row reaches the same leaf as in the library.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from llpkit._arrays import Array
from llpkit.errors import LLPError
from llpkit.export.graph import Graph, Name

_AT_MOST, _BELOW = 0, 1
_SUM = 1


@dataclass(frozen=True)
class Tree:
    """A tree as arrays over its nodes; node 0 is the root."""

    left: Array
    """The child of rows at or below the threshold; negative in leaves."""
    right: Array
    feature: Array
    threshold: Array
    missing_left: Array
    value: Array
    """The contribution of a leaf."""
    target: int = 0
    """The output that the leaf adds to."""


def add_trees(
    graph: Graph, x: Name, trees: Iterable[Tree], targets: int, *, below: bool = False
) -> Name:
    """The sums ``(n, targets)`` for features ``(n, D)``, float64.

    A row goes left if its feature is at most the threshold or, with ``below``, less than it.
    """
    from onnx import numpy_helper

    roots: list[int] = []
    parts: dict[str, list[Array]] = {
        name: [] for name in ("feature", "split", "missing", "true", "false", "leaf", "leaf_false")
    }
    weights: list[Array] = []
    of_target: list[Array] = []
    nodes = leaves = 0
    for each in trees:
        tree = _with_a_split(each)
        leaf = tree.left < 0
        # Inner nodes and leaves are numbered separately.
        number = np.where(leaf, np.cumsum(leaf) - 1 + leaves, np.cumsum(~leaf) - 1 + nodes)
        inner = np.flatnonzero(~leaf)
        left, right = tree.left[inner], tree.right[inner]
        roots.append(nodes)
        parts["feature"].append(tree.feature[inner])
        parts["split"].append(tree.threshold[inner])
        parts["missing"].append(tree.missing_left[inner])
        parts["true"].append(number[left])
        parts["false"].append(number[right])
        parts["leaf"].append(leaf[left])
        parts["leaf_false"].append(leaf[right])
        weights.append(tree.value[leaf])
        of_target.append(np.full(int(leaf.sum()), tree.target))
        nodes, leaves = nodes + len(inner), leaves + int(leaf.sum())
    flat = {name: np.concatenate(values) for name, values in parts.items()}
    modes = np.full(nodes, _BELOW if below else _AT_MOST, np.uint8)

    def whole(values: Array) -> list[int]:
        found: list[int] = values.astype(np.int64).tolist()
        return found

    return graph.add(
        "TreeEnsemble",
        x,
        domain="ai.onnx.ml",
        n_targets=targets,
        aggregate_function=_SUM,
        post_transform=0,
        tree_roots=roots,
        nodes_featureids=whole(flat["feature"]),
        nodes_splits=numpy_helper.from_array(flat["split"].astype(np.float64), "splits"),
        nodes_modes=numpy_helper.from_array(modes, "modes"),
        nodes_truenodeids=whole(flat["true"]),
        nodes_falsenodeids=whole(flat["false"]),
        nodes_trueleafs=whole(flat["leaf"]),
        nodes_falseleafs=whole(flat["leaf_false"]),
        nodes_missing_value_tracks_true=whole(flat["missing"]),
        leaf_targetids=whole(np.concatenate(of_target)),
        leaf_weights=numpy_helper.from_array(np.concatenate(weights).astype(np.float64), "weights"),
    )


def _with_a_split(tree: Tree) -> Tree:
    """A tree of one leaf as a split between two equal leaves, since ONNX needs a split."""
    if len(tree.left) > 1:
        return tree
    three = np.zeros(3, np.int64)
    value = np.repeat(tree.value, 3)
    left, right = np.array([1, -1, -1]), np.array([2, -1, -1])
    return Tree(left, right, three, three, three, value, tree.target)


def histogram_trees(model: Any) -> list[Tree]:
    """The trees of scikit-learn's histogram gradient boosting."""
    found = []
    for predictors in model._predictors:
        for target, predictor in enumerate(predictors):
            nodes = predictor.nodes
            if nodes["is_categorical"].any():
                raise LLPError(
                    "HistGradientBoostingClassifier splits on categorical_features, which cannot "
                    "be exported; one-hot encode them first"
                )
            leaf = nodes["is_leaf"].astype(bool)
            left, right = (np.where(leaf, -1, nodes[name].astype(np.int64)) for name in _SIDES)
            parts = nodes["feature_idx"], nodes["num_threshold"], nodes["missing_go_to_left"]
            found.append(Tree(left, right, *parts, nodes["value"], target))
    return found


_SIDES = ("left", "right")


def forest_trees(model: Any, columns: Iterable[int]) -> list[Tree]:
    """The trees of a forest; leaves add class probabilities divided by the number of trees."""
    found = []
    for estimator in model.estimators_:
        tree = estimator.tree_
        total = tree.value[:, 0, :].sum(1)
        missing = getattr(tree, "missing_go_to_left", np.zeros(tree.node_count, bool))
        for target, column in enumerate(columns):
            share = tree.value[:, 0, column] / total / len(model.estimators_)
            sides = tree.children_left, tree.children_right
            found.append(Tree(*sides, tree.feature, tree.threshold, missing, share, target))
    return found


def xgboost_trees(model: Any) -> tuple[list[Tree], Array]:
    """The trees of an XGBoost classifier, and the margins they start from, ``(1,)`` or ``(K,)``."""
    booster = model.get_booster()
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    if learner["gradient_booster"]["name"] != "gbtree":
        raise LLPError(
            f"XGBClassifier with booster {learner['gradient_booster']['name']!r} cannot be "
            "exported; use gbtree"
        )
    inner = learner["gradient_booster"]["model"]
    found = []
    for about, target in zip(inner["trees"], inner["tree_info"], strict=True):
        if any(about["split_type"]):
            raise LLPError("XGBClassifier splits on categories, which cannot be exported")
        left, right = (np.array(about[f"{side}_children"]) for side in _SIDES)
        # A leaf stores its value in place of a threshold.
        split = np.array(about["split_conditions"], np.float32)
        feature, missing = np.array(about["split_indices"]), np.array(about["default_left"])
        found.append(Tree(left, right, feature, split, missing, split, target))
    # One number in older versions, a list in newer ones.
    start = np.atleast_1d(json.loads(learner["learner_model_param"]["base_score"])).astype(float)
    if learner["objective"]["name"] == "binary:logistic":  # given as a probability
        start = np.log(start / (1 - start))
    return found, start


def lightgbm_trees(model: Any) -> list[Tree]:
    """The trees of a LightGBM classifier."""
    about = model.booster_.dump_model()
    per_round = about["num_tree_per_iteration"]
    return [
        _lightgbm_tree(one["tree_structure"], i % per_round)
        for i, one in enumerate(about["tree_info"])
    ]


def _lightgbm_tree(root: dict[str, Any], target: int) -> Tree:
    left: list[int] = []
    right: list[int] = []
    rest: list[tuple[int, float, bool, float]] = []

    def visit(node: dict[str, Any]) -> int:
        own = len(left)
        left.append(-1)
        right.append(-1)
        if "split_feature" not in node:
            rest.append((0, 0.0, False, float(node["leaf_value"])))
            return own
        kind, missing = node["decision_type"], node["missing_type"]
        if kind != "<=" or missing == "Zero":
            raise LLPError(
                f"LGBMClassifier has splits of the kind {kind!r} with {missing!r} as missing, "
                "which cannot be exported; leave out categorical_feature and zero_as_missing"
            )
        threshold = float(node["threshold"])
        # Without missing values in training, a missing one counts as zero.
        default = bool(node["default_left"]) if missing == "NaN" else threshold >= 0
        rest.append((int(node["split_feature"]), threshold, default, 0.0))
        left[own], right[own] = visit(node["left_child"]), visit(node["right_child"])
        return own

    visit(root)
    feature, threshold, default, value = (np.array(values) for values in zip(*rest, strict=True))
    return Tree(np.array(left), np.array(right), feature, threshold, default, value, target)
