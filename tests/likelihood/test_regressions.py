"""Inputs that once gave a wrong answer."""

import numpy as np
import pytest
import torch

from llpkit import LLPError, likelihood
from llpkit.likelihood import Evidence

NAN = float("nan")


def test_confident_classes_keep_their_second_derivative(either_backend):
    """log_softmax rounds to zero there, which is not the same as a known label."""
    z = torch.tensor([[0.0, -40.0, -40.0]] * 2, dtype=torch.float64, requires_grad=True)

    def log_prob(z):
        return likelihood.log_prob(z, [[1, 1, 0]], [0, 2], backend=either_backend)

    assert torch.autograd.gradgradcheck(log_prob, z)
    jacobian = torch.autograd.functional.jacobian(
        lambda z: likelihood.posterior(z, [[1, 1, 0]], [0, 2], backend=either_backend), z
    )
    assert float(jacobian[0, 0, 0, 0]) == pytest.approx(0.25)


@pytest.mark.parametrize("n", [3, 300])
def test_nan_unchecked_comes_out_for_its_own_bag_only(n, backend):
    z = torch.zeros(n + 2)
    z[0] = NAN
    log_p, phi = likelihood.log_prob_and_posterior(
        z, [1, 1], [0, n, n + 2], backend=backend, validate=False
    )
    assert log_p.isnan().tolist() == [True, False]
    assert phi.isnan().tolist() == [True] * n + [False] * 2


def test_nan_classes_unchecked(either_backend):
    z = torch.zeros(5, 3)
    z[1, 2] = NAN
    log_p, phi = likelihood.log_prob_and_posterior(
        z, [[1, 1, 1], [1, 1, 0]], [0, 3, 5], backend=either_backend, validate=False
    )
    assert log_p.isnan().tolist() == [True, False]
    assert phi.isnan().any(1).tolist() == [True] * 3 + [False] * 2


@pytest.mark.parametrize(
    ("z", "y"), [([-25.0, 13, 22, 13, -8], 3), ([-9.0, 31, 19, -16], 2), ([40.0, -40, 0.1], 2)]
)
def test_posteriors_do_not_leave_the_unit_interval(z, y, backend):
    phi = likelihood.posterior(
        torch.tensor(z, dtype=torch.float64), [y], [0, len(z)], backend=backend
    )
    assert ((phi >= 0) & (phi <= 1)).all()


def test_a_steep_convex_table_is_not_taken_for_a_straight_one(backend):
    n = 400
    k = torch.arange(n + 1, dtype=torch.float64)
    table = 2.0**24 * k + 0.05 * (k - n / 2) ** 2 / 2
    z = torch.full((n,), -(2.0**24), dtype=torch.float64)
    flat = likelihood.log_prob(
        torch.zeros(n, dtype=torch.float64),
        Evidence.weights(0.05 * (k - n / 2) ** 2 / 2, [0, n + 1]),
        [0, n],
        backend=backend,
    )
    value = likelihood.log_prob(z, Evidence.weights(table, [0, n + 1]), [0, n], backend=backend)
    # e^(2^24 k) against e^(-2^24 k): what is left are the binomial coefficients and the bend.
    assert float(value) == pytest.approx(
        float(flat) + n * np.log(2), abs=1e-3
    )  # the table has 6e9 in it


@pytest.mark.parametrize("offsets", [[0, 100], [0, 2], [1, 3], [0, 5, 3]])
def test_offsets_are_checked_even_when_values_are_not(offsets, backend):
    counts = [0] * (len(offsets) - 1)
    with pytest.raises(LLPError, match="offsets"):
        likelihood.posterior(torch.zeros(3), counts, offsets, backend=backend, validate=False)


def test_evidence_keeps_a_copy():
    low, table = torch.tensor([1, 2]), np.zeros(3)
    interval, weights = Evidence.interval(low, [3, 3]), Evidence.weights(table, [0, 3])
    low[0], table[1] = 99, NAN
    assert interval.low.tolist() == [1, 2]
    assert weights.table.isfinite().all()


def test_weights_that_want_a_gradient_are_refused():
    with pytest.raises(LLPError, match="evidence is data; detach it"):
        Evidence.weights(torch.zeros(3, requires_grad=True), [0, 3])


def test_reversed_and_read_only_arrays_are_taken():
    counts = np.array([2, 1])
    counts.flags.writeable = False
    assert Evidence.exact(counts[::-1]).counts.tolist() == [1, 2]


def test_messages_speak_of_what_was_passed():
    with pytest.raises(
        LLPError, match=r"offsets\[1\] = -2 is negative; give non-negative whole numbers"
    ):
        likelihood.posterior(torch.zeros(3), [1, 1], [0, -2, 3])
    wide = Evidence.interval([[0] * 6], [[20] * 6])
    with pytest.raises(LLPError, match=r"states but max_states = 1000; raise max_states"):
        likelihood.log_prob(torch.zeros(20, 6), wide, [0, 20], max_states=1000)
    with pytest.raises(LLPError, match="max_states = 'a'"):
        likelihood.pmf(torch.zeros(3, 3), [0, 3], max_states="a")


def test_two_classes_with_noise_are_solved_as_binary():
    n = 2000
    observed = torch.tensor([[1200.0, 790.0]])
    noisy = Evidence.noisy(observed, lambda o, k: -0.5 * ((o - k) / 9.0) ** 2, [n])
    z = torch.randn(n, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    k = torch.arange(n + 1, dtype=torch.float64)
    table = -0.5 * ((790 - k) / 9) ** 2 - 0.5 * ((1200 - (n - k)) / 9) ** 2
    expected = likelihood.log_prob(z[:, 1] - z[:, 0], Evidence.weights(table, [0, n + 1]), [0, n])
    torch.testing.assert_close(likelihood.log_prob(z, noisy, [0, n]), expected)
