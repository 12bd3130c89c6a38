"""The random effect: against integration, in fits, in tests; rows with a multiplicity."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from llpkit import Evidence, LLPError
from llpkit.estimators import LLPLogisticRegression, LLPMixedLogisticRegression
from llpkit.likelihood import log_prob
from llpkit.likelihood.dispatch import solve
from llpkit.losses import two_columns
from llpkit.statistics import bootstrap, overdispersion, summary
from llpkit.statistics.effect import effect_basis, effect_mean, effect_term
from llpkit.statistics.repeated import RepeatedSolver


@pytest.mark.parametrize("sd", [0.01, 0.5, 1.5])
def test_the_integral_over_a_binary_effect(sd):
    z = torch.randn(9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    offsets, y = torch.tensor([0, 4, 9]), torch.tensor([0, 4])
    counts = torch.stack([offsets.diff() - y, y], 1).double()
    term = effect_term(
        two_columns(z), torch.ones(9).double(), counts, offsets, torch.full((2,), sd).double()
    )
    for b in range(2):
        part = z[offsets[b] : offsets[b + 1]]

        def value(u, part=part, b=b):
            p = log_prob(part + sd * u, y[b : b + 1], [0, len(part)]).exp()
            return float(p) * math.exp(-u * u / 2) / math.sqrt(2 * math.pi)

        exact = math.log(quad(value, -8, 8, epsabs=1e-12)[0])
        plain = float(log_prob(part, y[b : b + 1], [0, len(part)]))
        assert plain + float(term[b]) == pytest.approx(exact, abs=1e-6)


def test_the_integral_over_effects_of_classes():
    random = np.random.default_rng(0)
    z, y = torch.from_numpy(random.normal(size=(8, 3))), torch.tensor([[2, 5, 1]])
    offsets, sd, basis = torch.tensor([0, 8]), 0.8, effect_basis(3)
    draws = torch.from_numpy(random.normal(size=(20000, 2)))
    shift = sd * draws @ basis.T  # the mean over draws is the integral
    change = (z[None] + shift[:, None]).logsumexp(2).sum(1) - z.logsumexp(1).sum()
    values = ((shift * y).sum(1) - change).exp()
    term = effect_term(z, torch.ones(8).double(), y.double(), offsets, torch.tensor([sd]).double())
    error = float(values.std()) / math.sqrt(len(values))
    assert float(term.exp()) == pytest.approx(float(values.mean()), abs=4 * error)
    # A shift by the same vector in the engine is what the tilt says.
    moved = log_prob(z + shift[0], y, offsets) - log_prob(z, y, offsets)
    assert float(moved) == pytest.approx(float(values[0].log()))


def clinics(effect, bags=150, size=15, seed=0):
    random = np.random.default_rng(seed)
    groups = np.repeat(np.arange(bags), size)
    X = random.normal(size=(len(groups), 1)) + random.normal(size=(bags, 1))[groups]
    z = 0.8 * X[:, 0] + effect * random.normal(size=bags)[groups]
    labels = random.random(len(z)) < 1 / (1 + np.exp(-z))
    return X, np.bincount(groups, labels).astype(int)[groups], groups


def test_the_deviation_between_bags_is_found():
    X, y, groups = clinics(effect=1.0)
    model = LLPMixedLogisticRegression(C=math.inf).fit(X, y, groups)
    assert 0.75 < model.effect_sd_ < 1.25
    assert model.effect_p_value_ < 1e-6
    plain = LLPLogisticRegression(C=math.inf).fit(X, y, groups)
    gain = 2 * 150 * (model.score(X, y, groups) - plain.score(X, y, groups))
    assert model.effect_lr_ == pytest.approx(gain, rel=1e-3)
    found = summary(model, X, y, groups)
    assert found.standard_error[1] > 1.3 * summary(plain, X, y, groups).standard_error[1]
    assert "sd of bags" in str(found)
    # Averaging over the effect draws probabilities towards one half.
    p, z = model.predict_proba(X)[:, 1], model.decision_function(X)
    assert (np.abs(p - 0.5) <= np.abs(1 / (1 + np.exp(-z)) - 0.5) + 1e-12).all()
    guess = found.predict(X[:5])
    np.testing.assert_allclose(guess.probability[:, 1], p[:5], atol=1e-6)


def test_without_an_effect_none_is_found():
    X, y, groups = clinics(effect=0.0)
    model = LLPMixedLogisticRegression(C=math.inf).fit(X, y, groups)
    assert model.effect_sd_ < 0.3
    assert model.effect_p_value_ > 0.01
    plain = LLPLogisticRegression(C=math.inf).fit(X, y, groups)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=0.05)


def test_the_score_test_has_its_level_and_power():
    plain = LLPLogisticRegression(C=math.inf)
    values = []
    for seed in range(60):
        X, y, groups = clinics(effect=0.0, bags=60, size=8, seed=seed)
        values.append(overdispersion(plain.fit(X, y, groups), X, y, groups).statistic)
    # 60 standard normal values: their mean and deviation are within four standard errors.
    assert abs(np.mean(values)) < 4 / math.sqrt(60)
    assert abs(np.std(values) - 1) < 4 / math.sqrt(120)
    X, y, groups = clinics(effect=0.7, bags=60, size=8)
    found = overdispersion(plain.fit(X, y, groups), X, y, groups)
    assert found.p_value < 0.01
    assert found.ratio > 1.3


def test_the_score_test_of_classes_and_its_errors():
    random = np.random.default_rng(0)
    groups = np.repeat(np.arange(80), 10)
    z = random.normal(size=(80, 3))[groups]
    labels = (z + random.gumbel(size=z.shape)).argmax(1)
    y = np.stack([np.bincount(groups, labels == k) for k in range(3)], 1).astype(int)[groups]
    X = random.normal(size=(800, 1))
    model = LLPLogisticRegression().fit(X, y, groups)
    assert overdispersion(model, X, y, groups).p_value < 1e-4
    mixed = LLPMixedLogisticRegression().fit(X, y, groups)
    assert 0.7 < mixed.effect_sd_ < 1.3
    with pytest.raises(LLPError, match="has a random effect already"):
        overdispersion(mixed, X, y, groups)
    interval = LLPMixedLogisticRegression()
    with pytest.raises(LLPError, match="takes exact counts"):
        interval.fit(X, Evidence.interval(0 * groups, 0 * groups + 5), groups)


@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("spread", [0.5, 4.0])
def test_rows_with_multiplicity_agree_with_the_engine(classes, spread):
    generator = torch.Generator().manual_seed(classes)
    offsets = torch.tensor([0, 3, 4, 8])
    z = spread * torch.randn((8, classes), dtype=torch.float64, generator=generator)
    times = torch.randint(1, 7, (8,), generator=generator)
    which = torch.repeat_interleave(torch.arange(8), times)
    sizes = [int(times[a:b].sum()) for a, b in itertools.pairwise(offsets.tolist())]
    ends = torch.tensor([0, *itertools.accumulate(sizes)])
    labels = torch.randint(0, classes, (int(ends[-1]),), generator=generator)
    counts = torch.stack(
        [torch.bincount(labels[a:b], minlength=classes) for a, b in itertools.pairwise(ends)]
    )
    short = z.clone().requires_grad_()
    long = z[which].clone().requires_grad_()
    ours = solve(short, RepeatedSolver(offsets, times.double(), counts.double()))[0]
    theirs = log_prob(long, counts, ends)
    torch.testing.assert_close(ours, theirs, atol=1e-8, rtol=0)
    slope, other = (
        torch.autograd.grad(value.sum(), at, create_graph=True)[0]
        for value, at in ((ours, short), (theirs, long))
    )
    v = torch.randn(z.shape, dtype=torch.float64, generator=generator)
    second = torch.autograd.grad(slope, short, v)[0]
    reference = torch.autograd.grad(other, long, v[which])[0]
    for mine, each in ((slope, other), (second, reference)):
        total = torch.zeros_like(z).index_add(0, which, each.detach())
        torch.testing.assert_close(mine.detach(), total, atol=1e-7, rtol=0)


def test_multiplicities_are_checked():
    X, y, groups = np.zeros((4, 1)), [3, 3, 9, 9], [0, 0, 1, 1]
    model = LLPLogisticRegression()
    with pytest.raises(LLPError, match=r"multiplicity\[1\] = -1"):
        model.fit(X, y, groups, multiplicity=[5, -1, 5, 5])
    with pytest.raises(LLPError, match=r"multiplicity has shape \(2,\)"):
        model.fit(X, y, groups, multiplicity=[5, 5])
    with pytest.raises(LLPError, match="= 9 but"):
        model.fit(X, y, groups, multiplicity=[5, 5, 4, 4])
    model.fit(X, y, groups, multiplicity=[5, 5, 0, 9])  # a row without instances is allowed


def test_the_bootstrap_agrees_with_the_information():
    X, y, groups = clinics(effect=0.0, bags=100, size=6)
    model = LLPLogisticRegression(C=math.inf).fit(X, y, groups)
    found = bootstrap(model, X, y, groups, replicates=80)
    ratio = found.standard_error / summary(model, X, y, groups).standard_error
    assert ((ratio > 0.7) & (ratio < 1.4)).all()
    ends = found.conf_int()
    assert (ends[:, 0] < found.estimate).all()
    assert (found.estimate < ends[:, 1]).all()
    again = bootstrap(model, X, y, groups, replicates=3, random_state=0)
    np.testing.assert_array_equal(again.replicates, found.replicates[:3])
    with pytest.raises(LLPError, match="replicates = 1"):
        bootstrap(model, X, y, groups, replicates=1)


@pytest.mark.parametrize("classes", [2, 3, 4, 6])
def test_predictions_in_a_new_bag_average_over_the_effect(classes):
    draw = np.random.default_rng(0)
    z = torch.from_numpy(2 * draw.normal(size=(3, classes)))
    basis = effect_basis(classes)
    u = torch.from_numpy(draw.normal(size=(200_000, basis.shape[1])))
    expected = torch.stack([(row + 1.2 * (u @ basis.T)).softmax(1).mean(0) for row in z])
    found = effect_mean(z, torch.tensor(1.2).double())
    assert found.sum(1).numpy() == pytest.approx(1)
    assert found.numpy() == pytest.approx(expected.numpy(), abs=0.01)
    assert (found - z.softmax(1)).abs().max() > 0.02  # the effect does matter
