"""The solvers of the classical estimators, against other solvers, enumeration and closed forms."""

import contextlib
import itertools

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, SVR

from llpkit import Bags, Evidence, LLPError, random_bags
from llpkit.estimators import _large_margin, alter_svm, mean_map
from llpkit.estimators._large_margin import WIDTH, Plane, fit_plane, hinge
from llpkit.estimators.base import bag_sums
from llpkit.estimators.network import NetworkObjective
from llpkit.losses import proportion_loss


def overlapping(rng, rows=120, features=4):
    """Two classes that no plane separates."""
    y = rng.random(rows) < 0.4
    X = rng.normal(size=(rows, features))
    X[:, 0] += 1.5 * y
    return X, y.astype(int), np.where(y, 1.0, -1.0)


def hinges(plane, Z, sign, level, cost):
    return plane.weight @ plane.weight / 2 + (cost * hinge(level - sign * plane(Z))).sum()


# Sums of hinges


def test_hinge_is_the_positive_part_but_for_its_rounding():
    u = np.linspace(-2, 2, 401)
    assert np.abs(hinge(u) - u.clip(0)).max() <= WIDTH / 2 + 1e-12
    assert hinge(np.array([-1e-9, 1e-9])) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("C", [1e-4, 0.01, 1.0, 100.0])
def test_plane_is_that_of_libsvm(C):
    X, y, sign = overlapping(np.random.default_rng(0))
    ours = fit_plane(X, sign, np.ones(len(X)), C)
    theirs = SVC(kernel="linear", C=C, tol=1e-8).fit(X, y)

    def objective(w, f):
        return w @ w / 2 + C * (1 - sign * f).clip(0).sum()

    best = objective(theirs.coef_[0], theirs.decision_function(X))
    assert objective(ours.weight, ours(X)) == pytest.approx(best, rel=2e-3)
    assert objective(ours.weight, ours(X)) >= best * (1 - 1e-9)


@pytest.mark.parametrize(
    ("rows", "features"), [(200, 3), (40, 30), (12, 50)], ids=["tall", "square", "wide"]
)
def test_plane_is_a_minimum_whatever_the_shape(rows, features):
    # The three shapes take three ways through the linear algebra.
    rng = np.random.default_rng(rows)
    Z, sign = rng.normal(size=(rows, features)), rng.choice([-1.0, 1.0], rows)
    level, cost = rng.normal(size=rows), rng.random(rows)
    plane = fit_plane(Z, sign, level, cost)
    pull = sign * cost * ((level - sign * plane(Z)) / WIDTH).clip(0, 1)
    assert plane.weight == pytest.approx(Z.T @ pull, abs=1e-4)
    assert pull.sum() == pytest.approx(0, abs=1e-4)


def test_plane_from_a_near_start_is_the_same():
    X, _, sign = overlapping(np.random.default_rng(1))
    ones = np.ones(len(X))
    cold = fit_plane(X, sign, ones, 1.0)
    warm = fit_plane(X, sign, ones, 1.0, Plane(cold.weight + 0.1, cold.intercept - 0.1))
    assert warm.weight == pytest.approx(cold.weight, abs=1e-3)
    assert hinges(warm, X, sign, 1.0, 1.0) == pytest.approx(hinges(cold, X, sign, 1.0, 1.0))


def test_plane_bears_columns_of_very_different_size_and_repeated_ones():
    X, _, sign = overlapping(np.random.default_rng(2))
    odd = np.concatenate([X * [1e6, 1, 1, 1], X * [1, 1e-6, 1, 1], np.ones((len(X), 1))], 1)
    plain = hinges(fit_plane(X, sign, np.ones(len(X)), 1.0), X, sign, 1.0, 1.0)
    more = hinges(fit_plane(odd, sign, np.ones(len(X)), 1.0), odd, sign, 1.0, 1.0)
    assert 0.9 * plain < more < plain  # the new columns can only help


def test_plane_says_that_it_has_not_converged(monkeypatch):
    monkeypatch.setattr(_large_margin, "MAX_STEPS", 2)
    X, _, sign = overlapping(np.random.default_rng(0))
    with pytest.warns(ConvergenceWarning, match=r"did not converge in 2 steps; scale the features"):
        fit_plane(X, sign, np.ones(len(X)), 1.0)


def test_plane_of_one_class_is_constant():
    f = fit_plane(np.eye(3), np.ones(3), np.ones(3), 1.0)(np.eye(3))
    assert f.min() == f.max()
    assert 1 - WIDTH < f[0] < 2 + WIDTH  # from 1 on it costs nothing


# Kernels


def test_root_of_a_kernel_matrix_and_the_way_back():
    X = np.random.default_rng(0).normal(size=(30, 2))
    X = np.concatenate([X, X[:10]])  # ten rows say nothing new
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(2))
    basis = _large_margin.root(K)
    assert basis.Z.shape[1] <= 30
    assert np.allclose(basis.Z @ basis.Z.T, K, atol=1e-8)
    w = np.random.default_rng(1).normal(size=basis.Z.shape[1]) * np.abs(basis.Z).max(0)
    assert K[:, basis.pivots] @ basis.dual(w) == pytest.approx(basis.Z @ w, abs=1e-4)


def test_mean_kernel_in_pieces(monkeypatch):
    rng = np.random.default_rng(0)
    X, offsets = rng.normal(size=(23, 3)), np.array([0, 4, 5, 12, 20, 23])
    of_bag = np.repeat(np.arange(5), np.diff(offsets))
    K = np.exp(-0.3 * ((X[:, None] - X) ** 2).sum(2))
    means = [[K[of_bag == a][:, of_bag == b].mean() for b in range(5)] for a in range(5)]
    assert _large_margin.mean_kernel(X, offsets, 0.3) == pytest.approx(np.array(means))
    monkeypatch.setattr(_large_margin, "BLOCK", 50)
    assert _large_margin.mean_kernel(X, offsets, 0.3) == pytest.approx(np.array(means))


def test_gamma_is_that_of_libsvm():
    X, y, _ = overlapping(np.random.default_rng(0))
    assert _large_margin.kernel_gamma("scale", X) == pytest.approx(
        SVC(gamma="scale").fit(X, y)._gamma
    )
    assert _large_margin.kernel_gamma("auto", X) == 1 / 4
    with pytest.raises(LLPError, match=r"gamma = 'sclae'; .*scale"):
        _large_margin.kernel_gamma("sclae", X)
    with pytest.raises(LLPError, match=r"gamma = 0; give a number above 0"):
        _large_margin.kernel_gamma(0, X)


# Probabilities from margins


def test_scale_is_found_from_counts():
    rng = np.random.default_rng(0)
    f = rng.normal(size=20_000)
    labels = (rng.random(len(f)) < expit(2.5 * f)).astype(int)
    assert _large_margin.fit_scale(f, random_bags(labels, 4, generator=0)) == pytest.approx(
        2.5, rel=0.05
    )


def test_scale_stays_finite_where_no_margin_is_wrong():
    # As Platt's targets: each of N right instances gets the probability (N + 1) / (N + 2) or so.
    f = np.repeat([-1.0, 1.0], 10)
    a = _large_margin.fit_scale(f, Bags(np.arange(21), np.repeat([0, 1], 10)))
    assert expit(a) == pytest.approx(20 / 22, abs=1e-3)
    assert _large_margin.fit_scale(np.zeros(2), Bags([0, 2], [1])) == 1


# The label step of alter-∝SVM


def enumerated(f, known, C, C_p):
    """The least cost over all labels: hinges, and the distance of the counts."""
    best = np.inf
    for labels in itertools.product([-1.0, 1.0], repeat=len(f)):
        s = np.array(labels)
        error = known.error(s)
        best = min(best, C * hinge(1 - s * f).sum() + (C_p * error if error else 0))
    return best


@pytest.mark.parametrize("C_p", [0.01, 0.5, 3.0, np.inf])
@pytest.mark.parametrize("seed", range(6))
def test_labels_are_the_best_of_all(seed, C_p):
    rng = np.random.default_rng(seed)
    low = [rng.integers(0, 4), rng.integers(0, 7), rng.integers(0, 2)]
    high = np.minimum(np.add(low, rng.integers(0, 3, 3)), [3, 6, 1])
    known = alter_svm._Counts.of(Bags([0, 3, 9, 10], Evidence.interval(low, high)))
    f = rng.normal(size=10) + rng.normal()
    s = known.labels(f, 0.7, C_p)
    error = known.error(s)
    cost = 0.7 * hinge(1 - s * f).sum() + (C_p * error if error else 0)
    assert cost == pytest.approx(enumerated(f, known, 0.7, C_p), abs=1e-12)
    if C_p == np.inf:
        assert error == 0


def test_the_comparison_with_all_labels_can_fail():
    known = alter_svm._Counts.of(Bags([0, 3], [1]))
    f = np.array([2.0, 1.5, -1.0])
    wrong = hinge(1 + f[:1]).sum() + hinge(1 - f[1:2]).sum() + hinge(1 + f[2:]).sum()
    assert wrong > enumerated(f, known, 1.0, np.inf) + 0.1


def test_every_second_start_has_the_opposite_labels():
    known = alter_svm._Counts.of(Bags([0, 5, 8], [4, 1]))
    a, b, c = alter_svm.random_labels(known, 3, np.random.RandomState(0))
    assert (b == -a).all()
    assert known.error(a) == known.error(c) == 0
    pure = alter_svm._Counts.of(Bags([0, 2, 3], [2, 0]))
    assert len(list(alter_svm.random_labels(pure, 10, np.random.RandomState(0)))) == 1


# The mean map


def test_class_means_are_least_squares_over_the_bags():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 200)
    bags = random_bags(labels, (1, 9), generator=0, num_classes=3)
    X, pi, n = rng.normal(size=(200, 2)), bags.proportions.numpy(), bags.sizes.numpy()
    root = np.sqrt(n)[:, None]
    expected = np.linalg.lstsq(root * pi, root * bag_sums(X, bags) / n[:, None], rcond=None)[0]
    assert mean_map.class_means(X, bags, pi) == pytest.approx(expected)


def test_tied_sums_solve_their_normal_equations():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 120)
    bags = random_bags(labels, (2, 8), generator=0)
    X, n, y = rng.normal(size=(120, 3)), bags.sizes.numpy(), bags.counts.numpy()
    y = np.stack([n - y, y], 1)
    pi, means = y / n[:, None], bag_sums(X, bags) / n[:, None]
    start = mean_map.class_means(X, bags, pi)
    graph = mean_map.similarity(means, 4).toarray()
    L, weight, B = np.diag(graph.sum(1)) - graph, np.diag(n / n.mean()), len(n)
    design = np.concatenate([np.diag(pi[:, 0]), np.diag(pi[:, 1])], 1)  # (B, 2 B)
    tie = 0.3 * np.kron(np.eye(2), L)
    beta = np.linalg.solve(design.T @ weight @ design + tie, design.T @ weight @ means)
    expected = [y[:, 0] @ beta[:B], y[:, 1] @ beta[B:]]
    assert mean_map.tied_sums(means, y, n, start, 0.3, 4) == pytest.approx(np.array(expected))
    strongly_tied = mean_map.tied_sums(means, y, n, start, 1e6, 4)
    assert strongly_tied == pytest.approx(y.sum(0)[:, None] * start, rel=1e-3)


# DLLP


@pytest.mark.parametrize("hidden", [(), (4,), (3, 2)])
@pytest.mark.parametrize("classes", [None, 3])
def test_gradient_of_the_proportion_loss(hidden, classes):
    rng = np.random.default_rng(0)
    bags = random_bags(rng.integers(0, classes or 2, 30), (1, 6), generator=0, num_classes=classes)
    shapes = list(itertools.pairwise([2, *hidden, classes or 1]))
    objective = NetworkObjective(
        rng.normal(size=(30, 2)),
        lambda logits: proportion_loss(logits, bags.counts, bags.offsets),
        len(bags),
        shapes,
        C=2.0,
    )
    size = sum((a + 1) * b for a, b in shapes)
    x, direction = rng.normal(size=size), rng.normal(size=size)
    slope = (objective(x + 1e-6 * direction)[0] - objective(x - 1e-6 * direction)[0]) / 2e-6
    assert objective(x)[1] @ direction == pytest.approx(slope, rel=1e-6)


# InvCal


def test_invcal_is_support_vector_regression_of_the_means():
    from llpkit.estimators import InvCalClassifier

    rng = np.random.default_rng(0)
    X, n = rng.normal(size=(200, 3)), 5
    groups = np.repeat(np.arange(40), n)
    counts = rng.choice([1, 4], 40)  # p (1 - p) is the same for both, so all tubes are
    p = (counts + 0.5) / (n + 1)
    means = X.reshape(40, n, 3).mean(1)
    tube = 0.1 / (p * (1 - p))[0]
    target = np.log(p / (1 - p))
    theirs = SVR(kernel="linear", C=0.5, epsilon=tube, tol=1e-8).fit(means, target)
    ours = InvCalClassifier(C=0.5, epsilon=0.1).fit(X, counts[groups], groups)
    margin = ours.decision_function(X) / ours.scale_
    assert margin == pytest.approx(theirs.predict(X), abs=0.02)


def test_kernel_invcal_of_bags_of_one_is_support_vector_regression():
    from llpkit.estimators import InvCalClassifier

    X, y, sign = overlapping(np.random.default_rng(1))
    theirs = SVR(kernel="rbf", C=1.0, epsilon=0.0, tol=1e-8).fit(X, sign * np.log(3))
    ours = InvCalClassifier(kernel="rbf").fit(X, y)
    margin = ours.decision_function(X) / ours.scale_
    assert margin == pytest.approx(theirs.predict(X), abs=0.03)


def test_solvers_leave_their_input_alone():
    X, y, _ = overlapping(np.random.default_rng(0))
    before = X.copy()
    from llpkit.estimators import AlterSVMClassifier

    AlterSVMClassifier(kernel="rbf", n_init=1, random_state=0).fit(X, y)
    assert torch.equal(torch.from_numpy(X), torch.from_numpy(before))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("largest", [1e9, 1e12, 1e30, 1e200, 1e308])
def test_one_huge_value_is_an_answer_or_an_error(kernel, largest):
    rng = np.random.default_rng(0)
    groups, labels = np.arange(60) // 4, rng.integers(0, 2, 60)
    X = rng.normal(size=(60, 2))
    X[3, 0] = largest
    model = alter_svm.AlterSVMClassifier(kernel=kernel, n_init=2, random_state=0)
    with contextlib.suppress(LLPError):
        model.fit(X, np.bincount(groups, labels)[groups].astype(int), groups)
        assert np.isfinite(model.predict_proba(X)).all()
