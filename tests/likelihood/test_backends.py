"""The compiled backend and the readable one give the same numbers, and this comparison can fail."""

import importlib

import numpy as np
import pytest
import torch
from hypothesis import given

import strategies
from llpkit import likelihood
from llpkit.likelihood import Evidence
from llpkit.likelihood.kernels import numba_binary
from oracle import assert_close
from strategies import batch


def assert_backends_agree(data, tolerance=1e-11):
    """log_prob, posterior, and a derivative of each, on both backends."""
    results = {}
    for backend in ("torch", "numba"):
        logits = data.logits.detach().clone().requires_grad_()
        log_prob, phi = likelihood.log_prob_and_posterior(
            logits, data.evidence, data.offsets, backend=backend
        )
        weights = torch.linspace(-1, 1, phi.numel(), dtype=phi.dtype).view(phi.shape)
        (first,) = torch.autograd.grad(log_prob.sum(), logits, retain_graph=True)
        (second,) = torch.autograd.grad((weights * phi).sum(), logits)
        results[backend] = [log_prob.detach(), phi.detach(), first, second]
    for by_torch, by_numba in zip(results["torch"], results["numba"], strict=True):
        assert by_torch.dtype == by_numba.dtype == data.logits.dtype
        assert_close(by_numba.double().numpy(), by_torch.double().numpy(), tolerance)


def binary_data(bags, dtype=torch.float64):
    logits, known = zip(*bags, strict=True)
    return batch(logits, [k.evidence for k in known], dtype)


@given(bags=strategies.ragged_batches())
def test_any_binary_batch(bags):
    assert_backends_agree(binary_data(bags))


def many_small_bags(seed=0, num_bags=300):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 13, size=num_bags)
    bags = [rng.normal(size=n) * 3 for n in sizes]
    return batch(bags, Evidence.exact(rng.integers(0, sizes + 1)))


def test_many_small_bags():
    assert_backends_agree(many_small_bags())


def test_bags_of_every_size():
    rng = np.random.default_rng(1)
    bags = [rng.normal(size=n) * 2 for n in range(150)]
    assert_backends_agree(batch(bags, Evidence.exact([n // 3 for n in range(150)])), 1e-10)


def test_two_classes():
    rng = np.random.default_rng(2)
    bags = [rng.normal(size=(n, 2)) * 2 for n in range(30)]
    assert_backends_agree(batch(bags, Evidence.exact([[n - n // 3, n // 3] for n in range(30)])))


@pytest.mark.parametrize("scale", [0, 2, 30, 300])
def test_more_classes(scale):
    rng = np.random.default_rng(5)
    counts = rng.multinomial(rng.integers(0, 14, size=60), [0.1, 0.2, 0.3, 0.4])
    bags = [rng.normal(size=(n, 4)) * scale for n in counts.sum(1)]
    assert_backends_agree(batch(bags, Evidence.exact(counts)), 1e-11)


def noise(width):
    return lambda seen, count: -0.5 * ((seen - count) / width) ** 2


@pytest.mark.parametrize("width", [0.3, 1.0, 30.0])
@pytest.mark.parametrize("sd", [1, 20])
def test_imprecise_classes_agree_on_both_backends(width, sd):
    """Narrow noise that contradicts the logits needs counts that were first left out."""
    generator = torch.Generator().manual_seed(sd)
    sizes = torch.tensor([0, 1, 7, 12])
    z = sd * torch.randn(20, 4, generator=generator, dtype=torch.float64)
    z[:, 0] += 30 * (torch.arange(20) % 2)
    seen = 3 * torch.rand(4, 4, generator=generator)
    kinds = [
        Evidence.noisy(seen, noise(width), sizes),
        Evidence.interval(seen.long() // 3, seen.long() // 3 + 6),
        Evidence.at_least(torch.zeros(4, 4, dtype=torch.int64)),
    ]
    for evidence in kinds:
        data = z, evidence, torch.tensor([0, 0, 1, 8, 20])
        expected = likelihood.log_prob_and_posterior(*data, backend="torch", validate=False)
        found = likelihood.log_prob_and_posterior(*data, backend="numba", validate=False)
        for value, wanted in zip(found, expected, strict=True):
            assert_close(value.numpy(), wanted.numpy(), 1e-9)


def mixed_bags():
    """Work for every kernel: small and large bags, exact counts, an interval and a table."""
    rng = np.random.default_rng(3)
    known = [
        strategies.exact(2),
        strategies.interval(1, 3),
        strategies.exact(90),
        strategies.noisy(60.0, strategies.gaussian, 200),
    ]
    return batch([rng.normal(size=n) for n in (5, 5, 300, 200)], [k.evidence for k in known])


# A kernel -> where its posteriors are: in the last argument, which it fills, or in what it returns.
KERNELS = {
    ("kernels.numba_binary", "evaluate"): "returned",
    ("kernels.numba_binary", "run_small"): "filled",
    ("kernels.numba_binary", "run_rest"): "filled",
    ("binary", "evaluate"): "returned",
    ("binary", "_fourier"): "returned",
}


def slightly_off(kernel, where, amount):
    """The same kernel, one of its posteriors a little wrong."""

    def broken(*args):
        result = kernel(*args)
        posteriors = args[-1] if where == "filled" else result[1]
        posteriors[1] += amount
        return result

    return broken


@pytest.mark.parametrize(("module", "name"), KERNELS, ids=".".join)
def test_the_comparison_notices_a_broken_kernel(module, name, monkeypatch):
    data = mixed_bags()
    assert_backends_agree(data)
    home = importlib.import_module(f"llpkit.likelihood.{module}")
    kernel = getattr(home, name)
    monkeypatch.setattr(home, name, slightly_off(kernel, KERNELS[module, name], 1e-9))
    with pytest.raises(AssertionError, match="scaled error"):
        assert_backends_agree(data)
    monkeypatch.setattr(home, name, slightly_off(kernel, KERNELS[module, name], 0.0))
    assert_backends_agree(data)


def test_the_comparison_notices_a_missing_factor(monkeypatch):
    """A wrong log-probability with right posteriors."""
    evaluate = numba_binary.evaluate

    def broken(*args):
        log_prob, phi = evaluate(*args)
        return log_prob + 1e-9, phi

    monkeypatch.setattr(numba_binary, "evaluate", broken)
    with pytest.raises(AssertionError, match="scaled error"):
        assert_backends_agree(many_small_bags())
