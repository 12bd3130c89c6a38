"""The saddlepoint approximation for K classes, and the choice that ``"auto"`` makes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from llpkit import likelihood
from llpkit.errors import LLPError
from llpkit.likelihood import Evidence, choice, choose_approximation, dispatch, pruned, saddlepoint
from oracle import Enumeration, assert_close
from strategies import batch

INF = float("inf")


def near(bags, counts, backend="auto", dtype=torch.float64, **options):
    z, evidence, offsets = batch(bags, Evidence.exact(np.asarray(counts)))
    log_prob, phi = likelihood.log_prob_and_posterior(
        z.to(dtype), evidence, offsets, approximation="saddlepoint", backend=backend, **options
    )
    return log_prob.numpy(), phi.numpy()


def drawn(rng, bags, n, classes, sd):
    """Logits, and counts of labels drawn from them."""
    z = sd * rng.normal(size=(bags, n, classes))
    labels = (z + rng.gumbel(size=z.shape)).argmax(2)
    return list(z), np.stack([np.bincount(row, minlength=classes) for row in labels])


@pytest.mark.parametrize(
    ("sd", "mean", "largest", "nats"),
    [(1, 0.0005, 0.015, 0.1), (3, 0.0015, 0.09, 0.3), (6, 0.0001, 0.02, 0.1)],
)
def test_it_is_close_to_exact_in_bags_of_16_with_ten_classes(sd, mean, largest, nats):
    bags, counts = drawn(np.random.default_rng(0), 200, 16, 10, sd)
    data = batch(bags, Evidence.exact(counts))
    log_p, phi = likelihood.log_prob_and_posterior(*data)
    value, found = near(bags, counts)
    error = np.abs(found - phi.numpy())
    assert error.mean() <= mean
    assert error.max() <= largest
    assert np.abs(value - log_p.numpy()).mean() <= 0.03
    assert np.abs(value - log_p.numpy()).max() <= nats


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 6),
    classes=st.integers(2, 4),
    sd=st.sampled_from([0.0, 0.5, 2.0, 8.0]),
)
def test_against_enumeration(backend, seed, n, classes, sd):
    rng = np.random.default_rng(seed)
    (z,), counts = drawn(rng, 1, n, classes, sd)
    exact = Enumeration.softmax(z).answer(lambda c: 0.0 if c == tuple(counts[0]) else -INF)
    value, phi = near([z], counts, backend)
    few = (counts[0] > 0).sum() <= 2  # the formulas are exact for two classes
    assert np.abs(phi - exact.posterior).max() <= (1e-6 if few else 0.005)
    assert abs(value[0] - exact.log_prob) <= (1e-6 if few else 0.01)
    assert_close(phi.sum(1), np.ones(n), 1e-9)
    assert_close(phi.sum(0), counts[0], 1e-6)


def test_backends_agree():
    rng = np.random.default_rng(1)
    for sd in (0, 1, 6, 30):
        for n, classes in ((5, 3), (40, 10), (300, 4)):
            bags, counts = drawn(rng, 4, n, classes, sd)
            one, two = (near(bags, counts, backend) for backend in ("torch", "numba"))
            assert_close(one[0], two[0], 1e-4 if sd == 30 else 1e-6)
            assert_close(one[1], two[1], 1e-5)


def cycle(rng, classes):
    """As many instances as classes, each torn between its class and the next."""
    z = np.full((classes, classes), -9.0) + 0.5 * rng.normal(size=(classes, classes))
    for k in range(classes):
        z[k, k] = z[k, (k + 1) % classes] = 0.0
    return z


def test_confident_bags_are_almost_exact(backend):
    """Of drawn counts, of counts that contradict the logits, and where labels go round."""
    rng = np.random.default_rng(9)
    bags, counts = [cycle(rng, 6) for _ in range(5)], [np.ones((5, 6), int)]
    for sd in (6, 12, 30, 100):
        for n in (12, 15):
            more, drawn_counts = drawn(rng, 12, n, 6, sd)
            bags += more
            counts.append(drawn_counts if n == 12 else rng.multinomial(n, [1 / 6] * 6, 12))
    counts = np.concatenate(counts)
    log_p, phi = likelihood.log_prob_and_posterior(*batch(bags, Evidence.exact(counts)))
    value, found = near(bags, counts, backend)
    assert np.abs(found - phi.numpy()).max() <= 0.005
    assert np.abs(value - log_p.numpy()).max() <= 0.005


def test_a_bag_with_too_many_likely_counts_is_left_to_the_saddlepoint(monkeypatch):
    bags, counts = drawn(np.random.default_rng(10), 6, 9, 4, 4)
    refined = near(bags, counts, "torch")
    monkeypatch.setattr(saddlepoint, "refine", lambda *arguments: arguments[-2:])
    plain = near(bags, counts, "torch")
    monkeypatch.undo()
    monkeypatch.setattr(pruned, "WIDTH", 2)
    narrow = near(bags, counts, "torch")
    monkeypatch.undo()
    monkeypatch.setattr(pruned, "STATES", 9)
    short = near(bags, counts, "torch")
    assert np.abs(refined[1] - plain[1]).max() > 0.01
    for found in (narrow, short):
        same = found[0] == plain[0]
        assert same.any()
        assert (found[1] == plain[1]).reshape(6, -1).all(1)[same].all()
        assert_close(found[0][~same], refined[0][~same], 1e-12)


def test_the_likelihood_has_no_jump_as_logits_grow(backend):
    """From many likely counts to few: from the saddlepoint's formula to the pruned recursion."""
    (z,), counts = drawn(np.random.default_rng(11), 1, 14, 7, 1)
    scale = np.linspace(0.1, 6, 400)
    value, phi = near([s * z for s in scale], np.repeat(counts, 400, 0), backend)
    exact, _ = likelihood.log_prob_and_posterior(
        *batch([s * z for s in scale], Evidence.exact(np.repeat(counts, 400, 0)))
    )
    assert np.abs(np.diff(value - exact.numpy())).max() < 0.01
    assert np.abs(np.diff(phi.reshape(400, -1), axis=0)).max() < 0.03


def test_order_of_instances_and_classes_and_shifts_of_logits_change_nothing(backend):
    rng = np.random.default_rng(2)
    (z,), counts = drawn(rng, 1, 20, 5, 3)
    value, phi = near([z], counts, backend)
    rows, columns = rng.permutation(20), rng.permutation(5)
    moved, found = near([z[rows]], counts, backend)
    assert_close(moved, value, 1e-8)
    assert_close(found, phi[rows], 1e-6)
    moved, found = near([z[:, columns]], counts[:, columns], backend)
    assert_close(moved, value, 1e-8)
    assert_close(found, phi[:, columns], 1e-6)
    _, found = near([z + rng.normal(size=(20, 1))], counts, backend)
    assert_close(found, phi, 1e-6)
    # A tilt of the classes changes the likelihood but not the posterior.
    _, found = near([z + rng.normal(size=5)], counts, backend)
    assert_close(found, phi, 1e-6)


def test_equal_instances_share_the_counts(backend):
    z = np.tile([0.3, -1.0, 2.0], (12, 1))
    _, phi = near([z], [[2, 6, 4]], backend)
    assert_close(phi, np.tile([2 / 12, 6 / 12, 4 / 12], (12, 1)), 1e-8)


def test_unusual_bags(backend):
    """Empty, of one, of one class, with absent classes, masks and known labels."""
    rng = np.random.default_rng(3)
    z = rng.normal(size=(9, 4))
    masked, known = z.copy(), z.copy()
    masked[:4, 1] = -INF
    known[0], known[1] = [-INF, 0, -INF, -INF], [0, 0, INF, 0]
    bags = [z[:0], z[:1], z[:6], z, masked, known]
    counts = [[0] * 4, [0, 1, 0, 0], [0, 0, 6, 0], [5, 0, 3, 1], [3, 3, 2, 1], [2, 3, 3, 1]]
    value, phi = near(bags, counts, backend)
    exact, wanted = (
        x.numpy()
        for x in likelihood.log_prob_and_posterior(*batch(bags, Evidence.exact(np.array(counts))))
    )
    assert_close(value, exact, 0.05)
    assert np.abs(phi - wanted).max() < 0.02
    assert_close(value[:3], exact[:3], 1e-9)
    assert (phi[wanted == 0] == 0).all()
    assert_close(phi[-9], [0, 1, 0, 0], 1e-9)


@pytest.mark.parametrize("sd", [100, 1000])
def test_logits_far_apart(backend, sd):
    bags, counts = drawn(np.random.default_rng(4), 5, 60, 10, sd)
    value, phi = near(bags, counts, backend)
    assert np.isfinite(value).all()
    assert_close(phi.reshape(5, 60, 10).sum(axis=1), counts, 1e-5)


def test_a_variance_close_to_underflow(backend):
    z = np.array([[672.0, 0.0, 0.0], [0.0, 672.0, 0.0]])
    value, phi = near([z], [[1, 1, 0]], backend)
    assert np.isfinite(value).all()
    assert_close(phi, [[1, 0, 0], [0, 1, 0]], 1e-12)


def test_an_impossible_bag_is_refused_or_has_its_prior(backend):
    z = np.tile([0.0, 1.0, -INF], (4, 1))
    with pytest.raises(LLPError, match="rule out the counts"):
        near([z], [[1, 1, 2]], backend)
    value, phi = near([z], [[1, 1, 2]], backend, validate=False)
    assert value == -INF
    assert_close(phi, np.tile([0.26894142, 0.73105858, 0], (4, 1)), 1e-6)


def test_nan_stays_in_its_bag(backend):
    z = np.random.default_rng(5).normal(size=(6, 3))
    z[1, 1] = np.nan
    value, phi = near([z[:3], z[3:]], [[1, 1, 1], [1, 1, 1]], backend, validate=False)
    assert np.isnan(value[0])
    assert np.isnan(phi[:3]).all()
    assert np.isfinite(value[1])
    assert np.isfinite(phi[3:]).all()


def test_single_precision_in_and_out(backend):
    bags, counts = drawn(np.random.default_rng(6), 3, 30, 5, 2)
    value, phi = near(bags, counts, backend, torch.float32)
    assert value.dtype == phi.dtype == np.float32
    wanted = near([z.astype(np.float32).astype(np.float64) for z in bags], counts, backend)
    assert_close(phi, wanted[1], 1e-6)


def test_the_gradient_is_posterior_minus_prior_and_the_posterior_has_one(backend):
    bags, counts = drawn(np.random.default_rng(7), 2, 12, 4, 2)
    z, evidence, offsets = batch(bags, Evidence.exact(counts))
    z.requires_grad_()
    options = {"approximation": "saddlepoint", "backend": backend}
    log_p, phi = likelihood.log_prob_and_posterior(z, evidence, offsets, **options)
    (slope,) = torch.autograd.grad(log_p.sum(), z, retain_graph=True)
    torch.testing.assert_close(slope + z.softmax(1), phi)
    v = torch.randn(z.shape, dtype=z.dtype, generator=torch.Generator().manual_seed(0))
    (along,) = torch.autograd.grad(phi, z, v)
    exact = likelihood.posterior(z, evidence, offsets)
    (wanted,) = torch.autograd.grad(exact, z, v)
    # Its derivative is that of tilted probabilities, which is close only in large bags.
    assert float((along - wanted).abs().max()) < 0.3 * float(wanted.abs().max())
    torch.testing.assert_close(along.sum(1), torch.zeros(24, dtype=z.dtype), atol=1e-8, rtol=0)


def test_it_takes_exact_counts_of_classes():
    ends = torch.tensor([0, 3])
    with pytest.raises(LLPError, match='"saddlepoint" is for K classes'):
        likelihood.posterior(torch.zeros(3), [1], ends, approximation="saddlepoint")
    some = Evidence.interval([[0, 0, 1]], [[1, 2, 2]])
    with pytest.raises(LLPError, match='"saddlepoint" takes exact counts'):
        likelihood.posterior(torch.zeros(3, 3), some, ends, approximation="saddlepoint")


@pytest.mark.parametrize("approximation", [None, "auto", "saddlepoint"])
def test_two_classes_take_the_binary_kernels(monkeypatch, backend, approximation):
    taken = []
    inner = dispatch.BinarySolver.evaluate

    def noted(self, *arguments):
        taken.append(self.kernel)
        return inner(self, *arguments)

    monkeypatch.setattr(dispatch.BinarySolver, "evaluate", noted)
    z = torch.randn(40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    options = {"approximation": approximation, "backend": backend}
    phi = likelihood.posterior(z, [[15, 25]], [0, 40], **options)
    assert taken == [backend]
    binary = likelihood.posterior(z[:, 1] - z[:, 0], [25], [0, 40])
    torch.testing.assert_close(phi[:, 1], binary)


def test_auto_is_exact_where_that_is_cheap_and_says_what_it_chose(monkeypatch):
    bags, counts = drawn(np.random.default_rng(8), 3, 9, 3, 1)
    data = batch(bags, Evidence.exact(counts))
    sizes = data[2].diff()
    assert choose_approximation(data[1], sizes) is None
    exact = likelihood.posterior(*data)
    assert torch.equal(likelihood.posterior(*data, approximation="auto"), exact)
    monkeypatch.setattr(choice, "EXACT_COST", 100)
    assert choose_approximation(data[1], sizes) == "saddlepoint"
    close = likelihood.posterior(*data, approximation="auto")
    assert torch.equal(close, likelihood.posterior(*data, approximation="saddlepoint"))
    assert not torch.equal(close, exact)
    # Two classes and binary counts are always exact, and so is other evidence.
    assert choose_approximation(Evidence.exact([[400, 600]]), torch.tensor([1000])) is None
    assert choose_approximation(Evidence.exact([400]), torch.tensor([1000])) is None
    wide = Evidence.interval(counts, counts + 1)
    assert choose_approximation(wide, sizes) is None
    binary = torch.zeros(4), [1], [0, 4]
    assert torch.equal(
        likelihood.posterior(*binary, approximation="auto"), likelihood.posterior(*binary)
    )
