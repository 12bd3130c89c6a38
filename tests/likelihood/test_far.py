"""Logits of any size: every path against enumeration in exact fractions."""

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
import torch

from llpkit import LLPError
from llpkit.likelihood import Evidence, log_prob, log_prob_and_posterior, mode, posterior, sample

SCALES = [1e6, 1e8, 1e12, 1e16, 1e18, 1e30, 1e100, 1e300]


def below(difference):
    """exp of a difference of fractions that is zero or less."""
    return math.exp(difference) if difference > -1000 else 0.0


def enumerate_exactly(z, log_weight):
    """Log-probability, posterior, and combinations by falling weight; ``None`` if impossible."""
    n, classes = z.shape
    values = []
    for row in z.tolist():
        known = [0.0 if x == math.inf else -math.inf for x in row] if math.inf in row else row
        values.append([None if x == -math.inf else Fraction(x) for x in known])
    found = []
    for h in itertools.product(range(classes), repeat=n):
        picked = [values[i][k] for i, k in enumerate(h)]
        weight = log_weight(tuple(h.count(k) for k in range(classes)))
        if weight > -math.inf and None not in picked:
            found.append((sum(picked, Fraction(weight)), h))
    if not found:
        return None
    found.sort(reverse=True)
    top = found[0][0]
    phi, total = np.zeros((n, classes)), 0.0
    for value, h in found:
        share = below(value - top)
        total += share
        phi[np.arange(n), list(h)] += share
    log_norm, scale = 0.0, top
    for row in values:
        best = max(x for x in row if x is not None)
        scale -= best
        log_norm += math.log(sum(below(x - best) for x in row if x is not None))
    return float(scale) + math.log(total) - log_norm, phi / total, found


def logits(kind, scale, n, classes, r):
    def value():
        return {
            "huge": lambda: r.gauss(0, 1) * scale,
            "mixed": lambda: r.choice([r.gauss(0, 1), r.gauss(0, 1) * scale, scale, -scale]),
            "ties": lambda: r.choice([scale, 0.0, -scale]),
            "levels": lambda: r.choice([r.gauss(0, 1), scale, 2 * scale, math.sqrt(scale), 1e3]),
            "shifted": lambda: r.gauss(0, 1),
        }[kind]()

    z = np.array([[value() for _ in range(classes)] for _ in range(n)])
    if kind == "shifted":
        z += np.array([r.choice([0.0, scale, -scale]) for _ in range(classes)])
    if r.random() < 0.3:
        z[r.randrange(n), r.randrange(classes)] = r.choice([math.inf, -math.inf])
    return z


def evidence_of(r, n, classes):
    """Evidence of one bag that most label combinations can meet, and its log-weight by counts."""
    labels = [r.randrange(classes) for _ in range(n)]
    y = [labels.count(k) for k in range(classes)]
    kind = r.choice(["exact", "interval", "at_least", "unknown", "noisy"])
    if kind == "exact":
        return Evidence.exact([y]), lambda c: 0.0 if list(c) == y else -math.inf
    if kind == "interval":
        low, high = [max(k - 1, 0) for k in y], [k + r.randint(0, 2) for k in y]
        fits = lambda c: all(a <= k <= b for a, k, b in zip(low, c, high, strict=True))  # noqa: E731
        return Evidence.interval([low], [high]), lambda c: 0.0 if fits(c) else -math.inf
    if kind == "at_least":
        low = [max(k - 1, 0) for k in y]
        return Evidence.at_least(
            [low]
        ), lambda c: 0.0 if all(a <= k for a, k in zip(low, c, strict=True)) else -math.inf
    if kind == "unknown":
        return Evidence.unknown(1, classes), lambda _: 0.0
    # Weights with gaps, and not concave.
    table = [[r.choice([-math.inf, r.gauss(0, 2)]) for _ in range(n + 1)] for _ in y]
    for k, count in enumerate(y):
        table[k][count] = 0.5
    flat = torch.tensor(table, dtype=torch.float64).reshape(-1)
    noisy = Evidence.noisy([y], lambda *_: flat, [n])
    return noisy, lambda c: sum(table[k][count] for k, count in enumerate(c))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", ["huge", "mixed", "ties", "levels", "shifted"])
def test_posteriors_of_logits_of_any_size(kind, scale):
    r = random.Random(f"{kind} {scale}")
    for _ in range(12):
        classes, n = r.choice([2, 3, 3, 4]), r.randint(1, 4)
        z = logits(kind, scale, n, classes, r)
        evidence, log_weight = evidence_of(r, n, classes)
        expected = enumerate_exactly(z, log_weight)
        tensor = torch.from_numpy(z)
        paths = ["torch", "numba"] if evidence.is_exact else ["torch"]
        for path in paths:
            if expected is None:
                with pytest.raises(LLPError):
                    log_prob(tensor, evidence, [0, n], path=path)
                continue
            log_p, phi = log_prob_and_posterior(tensor, evidence, [0, n], path=path)
            np.testing.assert_allclose(phi.numpy(), expected[1], atol=1e-9)
            assert float(log_p[0]) == pytest.approx(expected[0], rel=1e-12, abs=1e-9)
            free = log_prob_and_posterior(tensor, evidence, [0, n], path=path, validate=False)
            np.testing.assert_allclose(free[1].numpy(), phi.numpy(), atol=1e-12)
        if expected is not None:
            best = tuple(mode(tensor, evidence, [0, n]).tolist())
            assert best in [h for value, h in expected[2] if value == expected[2][0][0]]
            drawn = sample(tensor, evidence, [0, n], 0, num_samples=5)
            likely = {h for value, h in expected[2] if value - expected[2][0][0] > -40}
            assert set(map(tuple, drawn.tolist())) <= likely


@pytest.mark.parametrize("scale", [1e8, 1e18, 1e38])
def test_float32(scale):
    z = torch.tensor([[scale, 0.3, -0.2], [scale, 0.5, 0.1], [0.0, 1.0, 2.0]], dtype=torch.float32)
    expected = enumerate_exactly(
        z.double().numpy(), lambda c: 0.0 if c == (1, 1, 1) else -math.inf
    )[1]
    np.testing.assert_allclose(posterior(z, [[1, 1, 1]], [0, 3]), expected, atol=1e-6)


@pytest.mark.parametrize("scale", SCALES)
def test_binary_logits_of_any_size(scale):
    r = random.Random(scale)
    for _ in range(20):
        n = r.randint(1, 5)
        kinds = [r.gauss(0, 1), r.gauss(0, 1) * scale, scale, -scale, math.inf, -math.inf]
        z = np.array([r.choice(kinds) for _ in range(n)])
        y = r.randint(0, n)
        both = np.stack([np.where(z == math.inf, -math.inf, 0.0), np.where(z < math.inf, z, 0)], 1)
        expected = enumerate_exactly(both, lambda c, y=y: 0.0 if c[1] == y else -math.inf)
        for path in ("torch", "numba"):
            if expected is None:
                with pytest.raises(LLPError):
                    posterior(torch.from_numpy(z), [y], [0, n], path=path)
                continue
            log_p, phi = log_prob_and_posterior(torch.from_numpy(z), [y], [0, n], path=path)
            np.testing.assert_allclose(phi.numpy(), expected[1][:, 1], atol=1e-9)
            assert float(log_p[0]) == pytest.approx(expected[0], rel=1e-12, abs=1e-9)


@pytest.mark.parametrize("scale", SCALES)
def test_sinkhorn_of_logits_of_any_size(scale):
    """The bound holds, and the totals are the counts."""
    r = random.Random(scale)
    for kind in ("huge", "mixed", "ties", "levels", "shifted"):
        n, classes = r.randint(2, 4), 3
        z = logits(kind, scale, n, classes, r)
        labels = [r.randrange(classes) for _ in range(n)]
        y = [labels.count(k) for k in range(classes)]
        expected = enumerate_exactly(z, lambda c, y=y: 0.0 if list(c) == y else -math.inf)
        if expected is None:
            continue
        bound, phi = log_prob_and_posterior(torch.from_numpy(z), [y], [0, n], method="sinkhorn")
        np.testing.assert_allclose(phi.sum(0).numpy(), y, atol=1e-6)
        assert float(bound[0]) >= expected[0] - 1e-9 * max(1, abs(expected[0]))


def test_gradients_and_neighbours_are_kept():
    """A far bag beside others; once and twice differentiated."""
    far = torch.tensor([[1e18, 0.3, -0.2], [1e18, 0.5, 0.1], [0.0, 1.0, 2.0]])
    near = torch.tensor([[0.1, 0.3, -0.2], [0.4, 0.5, 0.1], [0.0, 1.0, 2.0]])
    z = torch.cat([near, far, near]).double().requires_grad_()
    evidence = Evidence.concat(
        [Evidence.exact([[1, 1, 1]]), Evidence.at_least([[1, 1, 0]]), Evidence.exact([[1, 1, 1]])]
    )
    log_p, phi = log_prob_and_posterior(z, evidence, [0, 3, 6, 9])
    (slope,) = torch.autograd.grad(log_p.sum(), z, create_graph=True)
    prior = torch.stack([row.softmax(0) for row in z.detach()])
    torch.testing.assert_close(slope.detach() + prior, phi.detach())
    alone = posterior(near.double(), [[1, 1, 1]], [0, 3])
    torch.testing.assert_close(phi[:3].detach(), alone)
    torch.testing.assert_close(phi[6:].detach(), alone)
    # The same bag with its first class brought near, as it is by no more than a shift.
    (curve,) = torch.autograd.grad(phi[3:6, 1].sum(), z)
    assert bool(curve.isfinite().all())
    small = torch.tensor([[60.0, 0.3, -0.2], [60.0, 0.5, 0.1], [0.0, 1.0, 2.0]]).double()
    small.requires_grad_()
    near_phi = posterior(small, Evidence.at_least([[1, 1, 0]]), [0, 3])
    (near_curve,) = torch.autograd.grad(near_phi[:, 1].sum(), small)
    torch.testing.assert_close(phi[3:6].detach(), near_phi.detach(), atol=1e-12, rtol=0)
    torch.testing.assert_close(curve[3:6], near_curve, atol=1e-12, rtol=0)


def test_too_many_counts_for_exact_arithmetic():
    z = torch.full((80, 3), 1e18, dtype=torch.float64)
    with pytest.raises(LLPError, match="scale the logits down"):
        posterior(z, Evidence.unknown(1, 3), [0, 80])
    assert bool(posterior(z, [[30, 30, 20]], [0, 80]).isfinite().all())
