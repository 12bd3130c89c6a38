"""Counts as people publish them: every kind against its definition."""

import numpy as np
import pytest
import torch
from scipy import stats

from llpkit.errors import LLPError
from llpkit.likelihood import Evidence, log_prob_and_posterior
from oracle import Enumeration

N = 7
COUNTS = np.arange(N + 1)

# The log-density of an observation given every count 0 … N, from scipy.
KINDS = {
    "laplace": (
        lambda seen: Evidence.laplace(seen, [N], scale=2.0),
        lambda seen: stats.laplace.logpdf(seen, loc=COUNTS, scale=2.0),
        2.3,
    ),
    "laplace by epsilon": (
        lambda seen: Evidence.laplace(seen, [N], epsilon=0.5, sensitivity=2),
        lambda seen: stats.laplace.logpdf(seen, loc=COUNTS, scale=4.0),
        -0.7,
    ),
    "geometric": (
        lambda seen: Evidence.geometric(seen, [N], epsilon=0.8),
        lambda seen: stats.dlaplace.logpmf(int(seen) - COUNTS, 0.8),
        9,
    ),
    "gaussian": (
        lambda seen: Evidence.gaussian(seen, [N], scale=1.5),
        lambda seen: stats.norm.logpdf(seen, loc=COUNTS, scale=1.5),
        4.4,
    ),
    "gaussian by epsilon": (
        lambda seen: Evidence.gaussian(seen, [N], epsilon=1.0, delta=1e-5),
        lambda seen: stats.norm.logpdf(seen, COUNTS, np.sqrt(2 * np.log(1.25e5))),
        3.0,
    ),
    "binomial": (
        lambda seen: Evidence.binomial(seen, [N], probability=0.7),
        lambda seen: stats.binom.logpmf(seen, COUNTS, 0.7),
        3,
    ),
    "binomial, all seen": (
        lambda seen: Evidence.binomial(seen, [N], probability=1),
        lambda seen: stats.binom.logpmf(seen, COUNTS, 1.0),
        3,
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_noise_has_the_weights_of_its_distribution(name):
    make, reference, seen = KINDS[name]
    found, wanted = make([seen]).table.numpy(), reference(seen)
    shift = wanted[3] - found[3]  # weights need not be normalised
    np.testing.assert_allclose(found + shift, wanted, atol=1e-12)


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_clipping_a_report_does_not_change_laplace_evidence(scale):
    # P(clipped report = 0 | k) is the whole lower tail, which must be proportional to the density.
    tail = stats.laplace.logcdf(0, loc=COUNTS, scale=scale)
    found = Evidence.laplace([0.0], [N], scale=scale).table.numpy()
    np.testing.assert_allclose(found - found[0], tail - tail[0], atol=1e-12)


@pytest.mark.parametrize("multiple", [1, 2, 3, 5, 10])
def test_rounded_counts_are_those_that_round_to_them(multiple):
    for seen in range(0, 31, multiple):
        found = Evidence.rounded([seen], multiple)
        near = [k for k in range(60) if abs(k - seen) <= multiple / 2]
        assert (int(found.low), int(found.high)) == (near[0], near[-1])


def test_suppressed_counts():
    seen = [[5, np.nan, 7], [0, 12, np.nan]]
    found = Evidence.suppressed(seen, below=5, zeros_shown=True)
    assert found.low.tolist() == [[5, 1, 7], [0, 12, 1]]
    assert found.high.tolist() == [[5, 4, 7], [0, 12, 4]]
    hidden = Evidence.suppressed(torch.tensor([8.0, np.nan]), below=3)
    assert (hidden.low.tolist(), hidden.high.tolist()) == ([8, 0], [8, 2])


@pytest.mark.parametrize(
    "make",
    [
        lambda seen, n: Evidence.laplace(seen, n, scale=1.3),
        lambda seen, n: Evidence.gaussian(seen, n, scale=1.1),
        lambda seen, n: Evidence.geometric(np.round(seen), n, epsilon=0.7),
        lambda seen, n: Evidence.binomial(np.floor(seen), n, probability=0.6),
        lambda seen, _: Evidence.rounded(np.round(seen / 3) * 3, 3),
        lambda *_: Evidence.suppressed([[np.nan, 3, np.nan]], 3),
    ],
)
def test_three_classes_agree_with_enumeration(make):
    n, rng = 5, np.random.default_rng(3)
    z = rng.normal(size=(n, 3))
    evidence = make(np.array([[1.2, 2.9, 0.4]]), [n])
    ends = evidence.table_offsets.tolist()

    def log_weight(counts):
        total = 0.0
        for k, y in enumerate(counts):
            if not evidence.low[0, k] <= y <= evidence.high[0, k]:
                return -np.inf
            if ends[k + 1] > ends[k]:
                total += float(evidence.table[ends[k] + int(y)])
        return total

    truth = Enumeration.softmax(z).answer(log_weight)
    log_p, phi = log_prob_and_posterior(torch.from_numpy(z), evidence, [0, n])
    assert float(log_p[0]) == pytest.approx(truth.log_prob, abs=1e-10)
    np.testing.assert_allclose(phi.numpy(), truth.posterior, atol=1e-10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Evidence.laplace([1.0], [3]), "epsilon = None and scale = None; give one"),
        (lambda: Evidence.laplace([1.0], [3], epsilon=1, scale=1), "give one of the two"),
        (lambda: Evidence.laplace([1.0, np.nan], [3, 3], scale=1), r"observed\[1\] = nan"),
        (lambda: Evidence.laplace([1.0], [3], epsilon=0), "epsilon = 0; give a number above 0"),
        (lambda: Evidence.geometric([1, 1.5], [3, 3], scale=1), r"observed\[1\] = 1.5 is not"),
        (lambda: Evidence.gaussian([1], [3], epsilon=0.5), "without delta"),
        (lambda: Evidence.gaussian([1], [3], scale=1, delta=0.1), "delta goes with epsilon"),
        (lambda: Evidence.gaussian([1], [3], epsilon=2, delta=1e-5), "epsilon = 2; give a number"),
        (lambda: Evidence.binomial([1], [3], probability=1.2), "probability = 1.2"),
        (lambda: Evidence.binomial([-1], [3], probability=0.2), r"observed\[0\] = -1 is negative"),
        (lambda: Evidence.rounded([4, 10], 5), r"observed\[0\] = 4 is not a multiple of 5"),
        (lambda: Evidence.suppressed([3, 12], 10), r"observed\[0\] = 3, but counts below 10"),
        (lambda: Evidence.suppressed([0, 12], 10), "zeros_shown=True"),
        (lambda: Evidence.suppressed([None, 2], 10), "were hidden; correct below"),
        (lambda: Evidence.suppressed([0, 2], 10, zeros_shown=True), "were hidden; correct below"),
    ],
)
def test_bad_reports_are_refused(make, message):
    with pytest.raises(LLPError, match=message):
        make()


def test_suppressed_counts_that_are_not_numbers_are_refused():
    with pytest.raises(LLPError, match="observed cannot be read"):
        Evidence.suppressed(["few", 12], below=10)
