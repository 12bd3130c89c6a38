"""Estimators on small tables: probabilities, likelihoods by enumeration, junk.

One case is one estimator fitted to one table and looked at, or one call with junk. Ordinary data
must be answered. Extreme data (a constant column, a value of 1e300, one bag, one class) may be
refused with an ``LLPError``. What is wrong with ``X`` itself is scikit-learn's to say, by its
``ValueError`` or ``TypeError``, as its own checks of estimators demand; for all else there is
``LLPError``.
"""

import warnings
from collections.abc import Callable
from math import lgamma, log
from typing import Any, NamedTuple

import numpy as np

from fuzzing.brute_force import count_vectors, enumerate_bags
from fuzzing.scoring import Failure, Score, answer, attempt, fail, must_refuse
from llpkit import Evidence
from llpkit.estimators import (
    AlterSVMClassifier,
    DLLPClassifier,
    InvCalClassifier,
    LLPClassifier,
    LLPLogisticRegression,
    MeanMapClassifier,
)


def _inner(name: str) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    return {
        "logistic": LogisticRegression,
        "bayes": GaussianNB,
        "tree": lambda: DecisionTreeClassifier(max_depth=3, random_state=0),
        "svc": SVC,
        "forest": lambda: RandomForestClassifier(5, random_state=0),
        "boosting": lambda: HistGradientBoostingClassifier(max_iter=5, early_stopping=False),
    }[name]()


MAKE: dict[str, Callable[[], Any]] = {
    "logistic": lambda: LLPLogisticRegression(random_state=0),
    "inv-cal": InvCalClassifier,
    "mean-map": MeanMapClassifier,
    "dllp": lambda: DLLPClassifier(random_state=0),
    "alter-svm": lambda: AlterSVMClassifier(n_init=2, random_state=0),
    **{
        f"em-{name}": lambda name=name: LLPClassifier(_inner(name), max_iter=5, random_state=0)
        for name in ("logistic", "bayes", "tree", "svc", "forest", "boosting")
    },
}
QUICK = ("logistic", "inv-cal", "mean-map", "dllp", "em-logistic", "em-bayes", "em-tree")
MANY_CLASSES = ("logistic", "mean-map", "dllp", "em-logistic", "em-bayes", "em-tree", "em-forest")
ANY_ORDER = ("logistic", "inv-cal", "mean-map", "dllp")
"""Those for which the order of rows does not matter: the others draw folds or first labels."""
EVIDENCE = ("logistic", "em-logistic", "em-bayes", "em-tree")
"""Those of the quick ones that take counts that are not exact."""


class Data(NamedTuple):
    X: Any
    y: np.ndarray  # (N,) or (N, K)
    groups: np.ndarray
    ordinary: bool


def case(rng: np.random.Generator, score: Score) -> None:
    """One round."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # answers are looked at, whatever was warned of
        if rng.random() < 0.35:
            for _ in range(6):
                _junk(rng, score)
        else:
            name = str(rng.choice(QUICK if rng.random() < 0.8 else list(MAKE)))
            _fit(rng, name, score)


def _draw(rng: np.random.Generator, classes: int | None, extreme: bool) -> Data:
    n, d = int(rng.integers(12, 40)), int(rng.integers(1, 4))
    if extreme:
        n = int(rng.integers(1, 25))
    labels = rng.integers(0, classes or 2, n)
    X = rng.normal(size=(n, d)) * rng.choice([0.1, 1, 10]) + labels[:, None] * rng.choice([0, 1, 3])
    bags = int(rng.integers(1, n + 1)) if extreme else int(rng.integers(max(2, n // 6), n // 2 + 1))
    groups = rng.permutation(np.arange(n) % bags) + int(rng.integers(0, 3)) * 7
    ordinary = not extreme
    if n > 1 and len(set(labels.tolist())) < 2:
        labels[:2] = [0, 1]
    if extreme:
        X = _extreme(rng, X)
        if rng.random() < 0.2:
            labels[:] = rng.integers(classes or 2)
    columns = 2 if classes is None else classes
    counts = {g: np.bincount(labels[groups == g], minlength=columns) for g in set(groups.tolist())}
    y = np.stack([counts[g] for g in groups.tolist()])
    if ordinary and (np.bincount(labels, minlength=columns) < 2).any():
        ordinary = False  # a class that is hardly there
    shares = np.stack([counts[g] / counts[g].sum() for g in counts])
    if np.linalg.matrix_rank(shares) < columns:
        ordinary = False  # bags that are all alike tell nothing of the classes' means
    return Data(X, y[:, 1] if classes is None else y, groups, ordinary)


def _extreme(rng: np.random.Generator, X: np.ndarray) -> Any:
    """A table that is allowed and asks for trouble."""
    X = X.copy()
    i, j = int(rng.integers(X.shape[0])), int(rng.integers(X.shape[1]))
    kind = int(rng.integers(10))
    if kind == 0:
        X[:, j] = rng.choice([0.0, 1.0, -7.5, 1e9])
    elif kind == 1:
        X[i, j] = rng.choice([1e9, -1e9, 1e15, 1e100, 1e300])
    elif kind == 2:
        X *= float(rng.choice([1e-300, 1e-100, 1e-9, 1e9, 1e100, 1e150]))
    elif kind == 3:
        X[:] = X[0]
    elif kind == 4:
        X = X.astype(np.float32)
    elif kind == 5:
        X = np.round(X).astype(np.int64)
    elif kind == 6:
        X = X > 0
    elif kind == 7:
        import pandas as pd

        X = pd.DataFrame(X, columns=[f"c{k}" for k in range(X.shape[1])])
    elif kind == 8:
        X[:, :] = 0.0
    return X


def _fit(rng: np.random.Generator, name: str, score: Score) -> None:
    classes = int(rng.integers(2, 5)) if name in MANY_CLASSES and rng.random() < 0.3 else None
    data = _draw(rng, classes, extreme=rng.random() < 0.4)
    y: Any = data.y
    exact = True
    if name in EVIDENCE and rng.random() < 0.3:
        exact = False
        sizes = np.array([(data.groups == g).sum() for g in data.groups])
        top = sizes if classes is None else sizes[:, None]
        y = Evidence.interval(np.maximum(data.y - 1, 0), np.minimum(data.y + 1, top))
    info = {
        "estimator": name,
        "X": data.X.tolist() if isinstance(data.X, np.ndarray) else data.X,
        "dtype": getattr(data.X, "dtype", None),
        "y": data.y.tolist(),
        "groups": data.groups.tolist(),
        "exact": exact,
    }
    model = MAKE[name]()
    if data.ordinary:
        answer(lambda: model.fit(data.X, y, data.groups), **info)
    elif _refused(lambda: model.fit(data.X, y, data.groups).predict_proba(data.X), info):
        score.refuse()
        return
    p = _probabilities(model, data, info)
    if exact:
        _likelihood(model, data, name, info)
    if name in ANY_ORDER and exact and data.ordinary:
        _order(rng, name, data, model, p, info)
    score.confirm()


def _probabilities(model: Any, data: Data, info: dict[str, Any]) -> np.ndarray:
    n, classes = len(data.y), 2 if data.y.ndim == 1 else data.y.shape[1]
    p = answer(lambda: model.predict_proba(data.X), **info)
    z = answer(lambda: model.decision_function(data.X), **info)
    chosen = answer(lambda: model.predict(data.X), **info)
    if p.shape != (n, classes) or not np.isfinite(p).all():
        fail("probabilities have another shape or are not finite", got=p.tolist(), **info)
    if p.min() < 0 or p.max() > 1 or np.abs(p.sum(1) - 1).max() > 1e-9:
        fail("probabilities do not sum to one", got=p.tolist(), **info)
    if z.shape != ((n,) if classes == 2 else (n, classes)) or np.isnan(z).any():
        fail("logits have another shape or are NaN", got=z.tolist(), **info)
    if model.classes_.tolist() != list(range(classes)):
        fail(f"classes are {model.classes_}", **info)
    picked = p[np.arange(n), chosen.astype(int)]
    if (picked < p.max(1) - 1e-9).any():
        fail("predict does not give the most probable class", got=chosen.tolist(), **info)
    return p


def _likelihood(model: Any, data: Data, name: str, info: dict[str, Any]) -> None:
    """Score and posterior against enumeration; logistic regression against a constant rate."""
    z = np.asarray(model.decision_function(data.X), dtype=np.float64)
    binary = data.y.ndim == 1
    both = np.stack([np.zeros_like(z), z], 1) if z.ndim == 1 else z
    counts = np.stack([np.zeros_like(data.y), data.y], 1) if binary else data.y
    total, number, tractable = 0.0, 0, True
    phi = answer(lambda: model.posterior(data.X, data.y, data.groups), **info)
    value = answer(lambda: model.score(data.X, data.y, data.groups), **info)
    base = 0.0
    share = _overall(data)
    for g in np.unique(data.groups):
        rows = np.flatnonzero(data.groups == g)
        n, columns = len(rows), both.shape[1]
        own = counts[rows[0]].copy()
        if binary:
            own[0] = n - own[1]
        base += lgamma(n + 1) + sum(
            (k * log(s) if k else 0.0) - lgamma(k + 1) for k, s in zip(own, share, strict=True)
        )
        number += 1
        if columns**n > 2000:
            tractable = False
            continue
        weights = np.where((count_vectors(n, columns) == own).all(1), 0.0, -np.inf)
        found = enumerate_bags(both[rows][None], weights[None], exact=False)
        total += float(found.log_prob[0])
        if np.isfinite(found.log_prob[0]):
            error = np.abs(phi[rows] - found.posterior[0]).max()
            if not error <= 1e-9 + 4 * found.slack[0]:
                fail(f"posterior of bag {g} is off by {error:.1e}", **info)
    if tractable:
        wanted = total / number
        if not (value == wanted or abs(value - wanted) <= 1e-9 * max(1, abs(wanted))):
            fail(f"score = {value}, enumerated {wanted}", **info)
    if name == "logistic" and data.ordinary and value * number < base - 1e-4 * max(1, abs(base)):
        fail(f"log-likelihood {value * number} is below that of a constant rate, {base}", **info)


def _overall(data: Data) -> np.ndarray:
    """The share of each class in all bags together."""
    first = [int(np.flatnonzero(data.groups == g)[0]) for g in np.unique(data.groups)]
    total = data.y[first].sum(0)
    if data.y.ndim == 1:
        total = np.array([len(data.y) - total, total])
    return np.where(total > 0, total / len(data.y), 1.0)


def _order(
    rng: np.random.Generator, name: str, data: Data, model: Any, p: np.ndarray, info: dict[str, Any]
) -> None:
    """Rows in another order and bags of other names give the same answer, or one as good."""
    order = rng.permutation(len(data.y))
    names = np.array([f"bag {g * 7 % 11}/{g}" for g in data.groups])
    other = MAKE[name]()
    X = np.asarray(data.X)
    answer(lambda: other.fit(X[order], data.y[order], names[order]), order=order.tolist(), **info)
    q = other.predict_proba(data.X)
    if np.abs(p - q).max() > 5e-3:
        one, two = (m.score(data.X, data.y, data.groups) for m in (model, other))
        if not abs(one - two) <= 1e-3 * max(1, abs(one)):
            fail(
                f"the order of rows matters: {np.abs(p - q).max():.1e} in probability, "
                f"{one} and {two} in log-likelihood",
                order=order.tolist(),
                **info,
            )


# Junk


def _junk(rng: np.random.Generator, score: Score) -> None:
    name = str(rng.choice(QUICK))
    data = _draw(rng, None, extreme=False)
    X, y, groups = data.X, data.y, data.groups
    n = len(y)
    nan = float("nan")
    things: list[Any] = [None, 5, "word", {}, object(), nan, lambda: 0, [], [[1], [2, 3]], 1j]
    thing = things[rng.integers(len(things))]
    i = int(rng.integers(n))

    def changed(array: np.ndarray, value: Any, dtype: Any = None) -> np.ndarray:
        array = array.astype(dtype or array.dtype).copy()
        array[i] = value
        return array

    sizes = np.array([(groups == g).sum() for g in groups])
    same = groups == groups[i]
    which = str(rng.choice(["X", "y", "groups", "parameter", "predict"]))
    if which in ("X", "predict") and name == "em-tree":
        name = "logistic"  # trees take missing values
    info: dict[str, Any] = {"X": X.tolist(), "y": y.tolist(), "groups": groups.tolist()}
    model = MAKE[name]()
    if which == "X":
        wrong: list[Any] = [thing, X[:-1], np.vstack([X, X]), X[:, 0], X[None], X[:, :0], X[:0]]
        wrong += [changed(X, nan), changed(X, np.inf), X.astype(complex) + 1j, X.astype(str) + "a"]
        wrong += [changed(X, None, object), changed(X, {}, object)]
        value = wrong[rng.integers(len(wrong))]
        _sklearn_refuses(
            lambda: model.fit(value, y, groups),
            score,
            estimator=name,
            which=which,
            value=value,
            **info,
        )
    elif which == "y":
        wrong = [
            thing,
            np.append(y, 0),
            y[:-1],
            np.where(same, sizes + 1, y),
            np.where(same, -1, y),
        ]
        wrong += [np.where(same, 0.5, y), np.where(same, nan, y), np.where(same, np.inf, y)]
        wrong += [y.astype(str), y + 1j, np.stack([y, sizes - y + 1], 1), np.zeros((n, 2, 2))]
        wrong += [Evidence.exact(y)[:-1], Evidence.at_least(sizes + 1), changed(y, None, object)]
        if same.sum() > 1:
            wrong += [changed(y, y[i] + 1)]  # rows of a bag that disagree
        value = wrong[rng.integers(len(wrong))]
        must_refuse(
            lambda: model.fit(X, value, groups),
            score,
            estimator=name,
            which=which,
            value=value,
            **info,
        )
    elif which == "groups":
        wrong = [thing, groups[:-1], np.append(groups, 0), np.stack([groups, groups], 1)]
        wrong += [changed(groups, nan, float), changed(groups, None, object), np.full(n, nan)]
        wrong += [[[1]] * n, [{}] * n]
        value = wrong[rng.integers(len(wrong))]
        if value is None:
            return  # then every row is a bag of its own, and y its label
        must_refuse(
            lambda: model.fit(X, y, value), score, estimator=name, which=which, value=value, **info
        )
    elif which == "parameter":
        known = sorted(set(model.get_params(deep=False)) - {"random_state", "estimator"})
        known = [k for k in known if k not in ("fit_intercept", "warm_start", "out_of_fold")]
        parameter = str(rng.choice(known))
        values: list[Any] = ["word", -1, nan, [], {}, object(), 1j, -1e300, b"x"]
        if parameter not in ("tol", "laplacian"):
            values.append(None)
        value = values[rng.integers(len(values))]
        if parameter == "hidden_layer_sizes" and value == []:
            return
        model.set_params(**{parameter: value})
        info = {"estimator": name, "parameter": parameter, "value": value, **info}
        _, refusal = attempt(lambda: model.fit(X, y, groups), **info)
        if refusal is not None:
            score.refuse()
            return
        # It may only be taken where it is of no use, as a kernel's width is to a line.
        p, q = _probabilities(model, data, info), MAKE[name]().fit(X, y, groups).predict_proba(X)
        if not np.array_equal(p, q):
            fail("a parameter that is none was taken", **info)
        score.confirm()
    else:
        answer(lambda: model.fit(X, y, groups), **info)
        wrong = [thing, X[:, :-1], np.hstack([X, X]), X[:, 0], changed(X, nan), changed(X, -np.inf)]
        wrong += [X[None], X[:0], changed(X, {}, object)]
        value = wrong[rng.integers(len(wrong))]
        call = str(rng.choice(["predict", "predict_proba", "decision_function"]))
        _sklearn_refuses(
            lambda: getattr(model, call)(value),
            score,
            estimator=name,
            call=call,
            value=value,
            **info,
        )


def _sklearn_refuses(call: Callable[[], Any], score: Score, /, **info: Any) -> None:
    if not _refused(call, info):
        fail("invalid input was answered", **info)
    score.refuse()


def _refused(call: Callable[[], Any], info: dict[str, Any]) -> bool:
    """Whether it ended in an LLPError, or in an error of scikit-learn about X."""
    try:
        return attempt(call, **info)[1] is not None
    except Failure as failure:
        error = failure.__context__
        frame = error.__traceback__ if isinstance(error, ValueError | TypeError) else None
        while frame is not None:
            if "sklearn/utils" in frame.tb_frame.f_code.co_filename:
                return True
            frame = frame.tb_next
        raise
