"""Fisher's identity, its derivative, and what autograd makes of both."""

import numpy as np
import pytest
import torch
from hypothesis import given

import strategies
from llpkit import likelihood
from llpkit.likelihood import Evidence
from oracle import Enumeration, assert_close
from strategies import batch

# The identity is an equality of sums of a few rounded terms.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 2**-6, torch.float16: 2**-9}

each_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


def prior(logits):
    return torch.sigmoid(logits) if logits.ndim == 1 else torch.softmax(logits, dim=1)


def gradient(data, **options):
    logits = data.logits.detach().clone().requires_grad_()
    log_prob = likelihood.log_prob(logits, data.evidence, data.offsets, **options)
    (result,) = torch.autograd.grad(log_prob.sum(), logits)
    return result


def check_identity(data, tolerance, **options):
    left = gradient(data, **options)
    assert left.dtype == data.logits.dtype
    left = left.double() + prior(data.logits.double())
    right = likelihood.posterior(*data, **options)
    assert_close(left.numpy(), right.double().numpy(), tolerance)


def binary_batch(seed, dtype=torch.float64, sizes=range(11)):
    rng = np.random.default_rng(seed)
    bags, known = [], []
    for n in sizes:
        for kind in strategies.evidence_kinds(n, rng).values():
            bags.append(strategies.rounded(rng.normal(size=n) * 3, dtype))
            known.append(kind.evidence)
    return batch(bags, known, dtype)


def class_batch(seed, num_classes, dtype=torch.float64, sizes=range(6)):
    rng = np.random.default_rng(seed)
    bags, known = [], []
    for n in sizes:
        for kind in strategies.class_evidence_kinds(n, num_classes, rng).values():
            bags.append(strategies.rounded(rng.normal(size=(n, num_classes)) * 3, dtype))
            known.append(kind.evidence)
    return batch(bags, known, dtype)


@each_dtype
def test_identity_for_all_evidence(dtype, backend):
    check_identity(binary_batch(0, dtype), TOLERANCE[dtype], backend=backend)


@each_dtype
def test_identity_for_large_bags(dtype, backend):
    rng = np.random.default_rng(1)
    bags = [strategies.rounded(rng.normal(size=n) * 2, dtype) for n in (13, 64, 65, 700)]
    check_identity(
        batch(bags, Evidence.exact([3, 30, 2, 350]), dtype), TOLERANCE[dtype], backend=backend
    )


@each_dtype
@pytest.mark.parametrize(
    ("num_classes", "backend"), [(k, backend) for k in (2, 3, 4) for backend in ("torch", "auto")]
)
def test_identity_for_classes(num_classes, backend, dtype):
    check_identity(class_batch(2, num_classes, dtype), TOLERANCE[dtype], backend=backend)


def test_identity_for_sinkhorn():
    rng = np.random.default_rng(3)
    data = batch([rng.normal(size=(n, 3)) for n in (6, 12)], Evidence.exact([[1, 2, 3], [4, 4, 4]]))
    check_identity(data, 1e-8, approximation="sinkhorn")


@given(bags=strategies.ragged_batches())
def test_identity_for_any_batch(bags, backend):
    logits, known = zip(*bags, strict=True)
    check_identity(batch(logits, [k.evidence for k in known]), 1e-12, backend=backend)


def test_each_bag_has_its_own_gradient(backend):
    data = binary_batch(4)
    logits = data.logits.clone().requires_grad_()
    scale = torch.randn(
        len(data.evidence), dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    log_prob = likelihood.log_prob(logits, data.evidence, data.offsets, backend=backend)
    (result,) = torch.autograd.grad((scale * log_prob).sum(), logits)
    per_row = scale.repeat_interleave(data.offsets.diff())
    assert_close(result.numpy(), (per_row * gradient(data, backend=backend)).numpy(), 1e-12)


# One ragged batch a kind of evidence, with an empty bag and a bag of one.
SIZES = (0, 1, 2, 5, 3)
BINARY = {
    "exact": Evidence.exact([0, 1, 1, 2, 0]),
    "interval": Evidence.interval([0, 0, 1, 1, 0], [0, 1, 1, 3, 2]),
    "at_least": Evidence.at_least([0, 0, 1, 2, 3]),
    "noisy": Evidence.noisy([0.0, 0.3, 1.2, 2.0, -1.0], strategies.cauchy, SIZES),
    "unknown": Evidence.unknown(5),
    "weights": Evidence.weights(
        [
            *[0.0],
            *[0.5, -1.0],
            *[-np.inf, 0.0, 0.1],
            *[0.0, -np.inf, 2.0, 1.0, -np.inf, 0.3],
            *[-1.0, 0.0, 0.0, 3.0],
        ],
        [0, 1, 3, 6, 12, 16],
    ),
}
CLASSES = {
    "exact": Evidence.exact([[0, 0, 0], [0, 1, 0], [1, 0, 1], [2, 1, 2], [0, 3, 0]]),
    "interval": Evidence.interval(
        [[0, 0, 0]] * 3 + [[1, 1, 0], [0, 0, 1]], [[1, 1, 1]] * 3 + [[2, 3, 3], [3, 1, 3]]
    ),
    "noisy": Evidence.noisy(np.ones((5, 3)), strategies.gaussian, SIZES),
}


def leaf(*shape):
    z = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(11)) * 1.5
    return z.requires_grad_()


def offsets_of(sizes):
    return torch.tensor(np.cumsum([0, *sizes]))


@pytest.mark.parametrize("kind", BINARY)
def test_gradcheck_binary(kind, backend):
    evidence, offsets = BINARY[kind], offsets_of(SIZES)
    z = leaf(sum(SIZES))
    assert torch.autograd.gradcheck(
        lambda z: likelihood.log_prob(z, evidence, offsets, backend=backend), z
    )
    assert torch.autograd.gradgradcheck(
        lambda z: likelihood.log_prob(z, evidence, offsets, backend=backend), z
    )
    assert torch.autograd.gradcheck(
        lambda z: likelihood.posterior(z, evidence, offsets, backend=backend), z
    )
    assert torch.autograd.gradcheck(
        lambda z: likelihood.log_prob_and_posterior(z, evidence, offsets, backend=backend), z
    )


@pytest.mark.parametrize("kind", CLASSES)
def test_gradcheck_classes(kind, either_backend):
    evidence, offsets = CLASSES[kind], offsets_of(SIZES)
    z = leaf(sum(SIZES), 3)
    check, check_twice = torch.autograd.gradcheck, torch.autograd.gradgradcheck
    for function in (likelihood.log_prob, likelihood.posterior, likelihood.log_prob_and_posterior):
        assert check(lambda z, f=function: f(z, evidence, offsets, backend=either_backend), z)
    assert check_twice(
        lambda z: likelihood.log_prob(z, evidence, offsets, backend=either_backend), z
    )


@pytest.mark.parametrize("n", [20, 70, 200])
def test_gradcheck_larger_bags(n, backend):
    z = leaf(n + 14)
    offsets = torch.tensor([0, 14, n + 14])
    for evidence in (Evidence.exact([5, n // 3]), Evidence.interval([3, n // 4], [5, n // 3])):

        def log_prob(z, evidence=evidence):
            return likelihood.log_prob(z, evidence, offsets, backend=backend)

        def posterior(z, evidence=evidence):
            return likelihood.posterior(z, evidence, offsets, backend=backend)

        assert torch.autograd.gradcheck(log_prob, z, fast_mode=True)
        assert torch.autograd.gradgradcheck(log_prob, z, fast_mode=True)
        assert torch.autograd.gradcheck(posterior, z, fast_mode=True)


def test_gradcheck_sinkhorn():
    z = leaf(9, 3)
    counts, offsets = [[1, 2, 1], [2, 0, 3]], torch.tensor([0, 4, 9])

    def log_prob(z):
        return likelihood.log_prob(z, counts, offsets, approximation="sinkhorn")

    assert torch.autograd.gradcheck(log_prob, z)
    assert torch.autograd.gradgradcheck(log_prob, z)
    assert torch.autograd.gradcheck(
        lambda z: likelihood.posterior(z, counts, offsets, approximation="sinkhorn"), z
    )


def jacobian(data, **options):
    return torch.autograd.functional.jacobian(
        lambda z: likelihood.posterior(z, data.evidence, data.offsets, **options), data.logits
    ).numpy()


@pytest.mark.parametrize("kind", strategies.evidence_kinds(3, np.random.default_rng(0)))
def test_derivative_of_the_posterior_is_its_covariance(kind, backend):
    rng = np.random.default_rng(12)
    for n in (1, 2, 5, 8):
        z = rng.normal(size=n) * 2
        known = strategies.evidence_kinds(n, rng)[kind]
        expected = Enumeration.binary(z).covariance(known.log_weight)
        assert_close(jacobian(batch([z], known.evidence), backend=backend), expected, 1e-11)


@pytest.mark.parametrize("kind", strategies.class_evidence_kinds(3, 3, np.random.default_rng(0)))
def test_derivative_of_class_posteriors_is_their_covariance(kind):
    rng = np.random.default_rng(13)
    for n in (1, 2, 5):
        z = rng.normal(size=(n, 3)) * 2
        known = strategies.class_evidence_kinds(n, 3, rng)[kind]
        expected = Enumeration.softmax(z).covariance(known.log_weight)
        assert_close(jacobian(batch([z], known.evidence)), expected, 1e-11)


def test_second_derivative_is_covariance_less_prior_variance(backend):
    z = np.random.default_rng(14).normal(size=6)
    data = batch([z], Evidence.exact([2]))
    hessian = torch.autograd.functional.hessian(
        lambda z: likelihood.log_prob(z, data.evidence, data.offsets, backend=backend).sum(),
        data.logits,
    )
    p = 1 / (1 + np.exp(-z))
    expected = Enumeration.binary(z).covariance(strategies.within(2, 2)) - np.diag(p * (1 - p))
    assert_close(hessian.numpy(), expected, 1e-11)


def test_known_labels_have_no_gradient(backend):
    z = torch.tensor([np.inf, 0.3, -np.inf, -1.0, 0.2], dtype=torch.float64)
    data = strategies.Batch(z, Evidence.exact([2]), torch.tensor([0, 5]))
    result = gradient(data, backend=backend)
    assert_close(result[[0, 2]].numpy(), np.zeros(2), 0)
    free = strategies.Batch(z[[1, 3, 4]], Evidence.exact([1]), torch.tensor([0, 3]))
    assert_close(result[[1, 3, 4]].numpy(), gradient(free, backend=backend).numpy(), 1e-12)
    second = jacobian(data, backend=backend)
    assert_close(second[[0, 2]], np.zeros((2, 5)), 0)
    assert_close(second[:, [0, 2]], np.zeros((5, 2)), 0)


def test_forbidden_classes_have_no_gradient():
    z = torch.tensor(
        [[0.3, -np.inf, 1.0], [0.1, 0.2, -0.4], [-np.inf, 0.0, 2.0]], dtype=torch.float64
    )
    data = strategies.Batch(z, Evidence.exact([[1, 1, 1]]), torch.tensor([0, 3]))
    result = gradient(data)
    assert torch.isfinite(result).all()
    assert (result[z == -np.inf] == 0).all()
    assert np.isfinite(jacobian(data)).all()


def test_no_gradient_is_kept_when_none_is_asked_for(backend):
    z = torch.zeros(3, dtype=torch.float64)
    assert not likelihood.log_prob(z, [1], torch.tensor([0, 3]), backend=backend).requires_grad
    asked = z.requires_grad_()
    assert likelihood.log_prob(asked, [1], torch.tensor([0, 3]), backend=backend).requires_grad
    with torch.no_grad():
        assert not likelihood.posterior(
            asked, [1], torch.tensor([0, 3]), backend=backend
        ).requires_grad
