"""Measures: right for lists, arrays and tensors, and an LLPError for anything else."""

import math

import numpy as np
import pytest
import torch
from sklearn import metrics

from llpkit import Bags, Evidence, LLPError, evaluation

FORMS = {
    "list": lambda x: x.tolist(),
    "tuple": lambda x: tuple(x.tolist()),
    "array": lambda x: x,
    "tensor": torch.from_numpy,
    "float32": lambda x: x.astype(np.float32) if x.dtype.kind == "f" else x.astype(np.int8),
    "gradient": lambda x: torch.tensor(x, requires_grad=x.dtype.kind == "f"),
    "object": lambda x: x.astype(object),
}


def data(classes=None, rows=40):
    rng = np.random.default_rng(0)
    if classes is None:
        p = rng.uniform(size=rows).astype(np.float32).astype(np.float64)
        return p, (rng.uniform(size=rows) < p).astype(np.int64)
    p = rng.dirichlet(np.ones(classes), rows).astype(np.float32).astype(np.float64)
    return p, rng.integers(0, classes, rows)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_input_gives_the_same(form):
    p, y = data()
    given, truth = FORMS[form](p), FORMS[form](y)
    assert evaluation.labels_of(given).tolist() == (p >= 0.5).astype(int).tolist()
    close = {"rel": 1e-6}
    assert evaluation.accuracy(given, truth) == pytest.approx(metrics.accuracy_score(y, p >= 0.5))
    assert evaluation.log_loss(given, truth) == pytest.approx(metrics.log_loss(y, p), **close)
    assert evaluation.brier(given, truth) == pytest.approx(np.mean((p - y) ** 2), **close)
    assert evaluation.auc(given, truth) == pytest.approx(metrics.roc_auc_score(y, p), **close)
    found = evaluation.calibration(given, truth, bins=5)
    inside = np.minimum((p * 5).astype(int), 4)
    means = [p[inside == b].mean() for b in range(5)]
    np.testing.assert_allclose(found.mean_predicted.numpy(), means, rtol=1e-6)
    assert int(found.number.sum()) == len(y)


@pytest.mark.parametrize("form", FORMS)
def test_classes_in_every_form(form):
    p, y = data(classes=3)
    given, truth = FORMS[form](p), FORMS[form](y)
    assert evaluation.accuracy(given, truth) == pytest.approx((p.argmax(1) == y).mean())
    expected = -np.log(p[np.arange(len(y)), y]).mean()
    assert evaluation.log_loss(given, truth) == pytest.approx(expected, rel=1e-6)
    assert evaluation.brier(given, truth) == pytest.approx(
        ((p - np.eye(3)[y]) ** 2).sum(1).mean(), rel=1e-6
    )
    assert 0 <= evaluation.calibration(given, truth).error <= 1


@pytest.mark.parametrize("form", FORMS)
def test_bags_in_every_form(form):
    p, y = data()
    bags = Bags.from_labels(y, np.arange(40) // 4)
    z = np.log(p / (1 - p))
    log_p = evaluation.bag_log_likelihood(torch.from_numpy(z), bags)
    np.testing.assert_allclose(
        evaluation.bag_log_likelihood(FORMS[form](z), bags).detach(), log_p, atol=1e-4
    )
    assert evaluation.mean_log_likelihood(FORMS[form](z), bags) == pytest.approx(
        float(log_p.mean()), abs=1e-4
    )
    expected = np.abs(p.reshape(10, 4).sum(1) - y.reshape(10, 4).sum(1)).mean() / 4
    assert evaluation.proportion_error(FORMS[form](p), bags) == pytest.approx(expected, rel=1e-5)


OF_INSTANCES = [
    evaluation.accuracy,
    evaluation.log_loss,
    evaluation.brier,
    evaluation.auc,
    evaluation.calibration,
]


@pytest.mark.parametrize("measure", OF_INSTANCES)
@pytest.mark.parametrize(
    ("truth", "message"),
    [
        ([1, 2, 1, 2], r"truth\[1\] = 2"),
        ([-1, 1, -1, 1], r"truth\[0\] = -1"),
        ([0, 1, math.nan, 1], r"truth\[2\] = nan"),
        ([0, 0.5, 1, 1], r"truth\[1\] = 0\.5"),
        (["0", "1", "0", "1"], r"truth\[0\] = '0'"),
        ([0, 1, 1], "4 probabilities but 3 labels"),
        ([[0], [1], [0], [1]], "shape"),
        ([], "shape"),
        (None, "truth"),
        ({"a": 1}, "truth"),
        ("0101", "truth"),
    ],
)
def test_labels_that_are_no_classes(measure, truth, message):
    with pytest.raises(LLPError, match=message):
        measure([0.1, 0.9, 0.2, 0.8], truth)
    if isinstance(truth, list):
        with pytest.raises(LLPError):
            measure(torch.tensor([0.1, 0.9, 0.2, 0.8]), np.array(truth))


@pytest.mark.parametrize("measure", [m for m in OF_INSTANCES if m is not evaluation.auc])
@pytest.mark.parametrize(
    "p",
    [
        [0.1, math.nan],
        [0.1, 1.5],
        [0.1, -0.5],
        [math.inf, 0.1],
        [[0.1], [0.9]],
        [[0.5, 0.4], [0.9, 0.4]],
        [[math.nan, 1], [0, 1]],
        ["0.1", "0.9"],
        [None, 0.1],
        [[0.1, 0.9], [0.1]],
        [1j, 0.1],
        0.5,
        "0.1",
        None,
        {},
        torch.tensor([0.1, 0.9], device="meta"),
        torch.eye(2).to_sparse(),
    ],
)
def test_probabilities_that_are_none(measure, p):
    with pytest.raises(LLPError):
        measure(p, [0, 1])
    with pytest.raises(LLPError):
        evaluation.labels_of(p)
    with pytest.raises(LLPError):
        evaluation.proportion_error(p, Bags([0, 2], [1]))


def test_auc_takes_scores_and_refuses_nan():
    assert evaluation.auc([-5, 3.5, math.inf, -math.inf], [0, 1, 1, 0]) == 1
    with pytest.raises(LLPError, match=r"probability\[1\] = nan"):
        evaluation.auc([0.5, math.nan], [0, 1])


def test_shapes_that_do_not_fit_the_bags():
    binary, three = Bags([0, 2], [1]), Bags([0, 2], [[1, 1, 0]])
    for measure in (
        evaluation.bag_log_likelihood,
        evaluation.mean_log_likelihood,
        evaluation.proportion_error,
    ):
        wide = torch.full((2, 3), 1 / 3)
        for values, bags in (
            (wide, binary),
            ([0.5, 0.5], three),
            ([0.5], binary),
            (wide[:1], three),
        ):
            with pytest.raises(LLPError, match=r"shape|bags hold"):
                measure(values, bags)
        with pytest.raises(LLPError, match=r"pass llpkit\.Bags"):
            measure([0.5, 0.5], [1])
    for logits in ([math.nan, 0.0], torch.tensor([0.0, math.nan])):
        with pytest.raises(LLPError, match="NaN"):
            evaluation.mean_log_likelihood(logits, binary)
    for ask in (
        evaluation.measurable,
        evaluation.number_approximated,
        evaluation.approximation_note,
        evaluation.warn_of_approximation,
    ):
        with pytest.raises(LLPError, match=r"pass llpkit\.Bags"):
            ask(None)


@pytest.mark.parametrize("bins", [0, -1, 2.5, "10", None, 10**12])
def test_bins(bins):
    with pytest.raises(LLPError, match="bins"):
        evaluation.calibration([0.1, 0.9], [0, 1], bins)


@pytest.mark.parametrize("threshold", ["0.5", None, math.nan, [0.5]])
def test_thresholds(threshold):
    with pytest.raises(LLPError, match="threshold"):
        evaluation.accuracy([0.1, 0.9], [0, 1], threshold)


def test_bags_without_a_count_judge_nothing():
    """Any model explains them, so they would only pull every mean towards zero."""
    some = Bags([0, 2, 4, 6], [1, 2, 0])
    anything = Evidence.interval([0, 0], [2, 0])  # and an empty bag
    more = Bags([0, 2, 4, 6, 8, 8], Evidence.concat([some.evidence, anything]))
    assert more.informative.tolist() == [True] * 3 + [False] * 2
    z = torch.tensor([0.3, -1.0, 2.0, 1.5, -0.7, 0.1, 4.0, 4.0])
    assert evaluation.mean_log_likelihood(z, more) == pytest.approx(
        evaluation.mean_log_likelihood(z[:6], some)
    )
    p = z.sigmoid()
    assert evaluation.proportion_error(p, more) == evaluation.proportion_error(p[:6], some)
    log_p = evaluation.bag_log_likelihood(z, more)
    rate = evaluation.constant_rate(some)
    assert evaluation.gain(log_p, more, rate) == evaluation.gain(log_p[:3], some, rate)


def test_the_proportion_error_of_noisy_counts_is_the_distance_to_the_most_likely():
    evidence = Evidence.concat(
        [
            Evidence.laplace([2.8, 1.5, -3.0], sizes=[4, 4, 4], scale=1.0),  # 3; 1 or 2; 0
            Evidence.interval([1], [2]),
        ]
    )
    bags = Bags([0, 4, 8, 12, 16], evidence)
    low, high = evidence.likeliest
    assert (low.tolist(), high.tolist()) == ([3, 1, 0, 1], [3, 2, 0, 2])
    gaps = [abs(2 - 3), 0, 2, 0]  # of an expected count of 2 in every bag
    assert evaluation.proportion_error(torch.full((16,), 0.5), bags) == sum(gaps) / 16
    classes = Evidence.gaussian([[2.0, 1.0]], sizes=[3], scale=1.0).likeliest[0]
    assert classes.tolist() == [[2, 1]]
