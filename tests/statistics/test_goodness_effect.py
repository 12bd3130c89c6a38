"""Goodness of fit of a model with a random effect per bag."""

import numpy as np
import pytest
import torch

from llpkit import Bags, Evidence
from llpkit.errors import LLPError
from llpkit.estimators import LLPMixedLogisticRegression
from llpkit.statistics import goodness_of_fit
from llpkit.statistics.effect import effect_basis


def drawn(classes, sd=1.0, bags=400, size=12, seed=0):
    random = np.random.default_rng(seed)
    z = torch.from_numpy(random.normal(size=(bags * size, classes)))
    z[:, 0] = 0
    basis = effect_basis(classes).numpy()
    shift = sd * random.normal(size=(bags, basis.shape[1])) @ basis.T
    p = (z + torch.from_numpy(shift).repeat_interleave(size, 0)).softmax(1).numpy()
    label = (random.random((len(p), 1)) > p.cumsum(1)).sum(1)
    groups = np.repeat(np.arange(bags), size)
    if classes == 2:
        counts = np.bincount(groups, label).astype(int)
        return z[:, 1], Bags(range(0, len(p) + 1, size), counts)
    counts = np.stack([np.bincount(groups, label == k) for k in range(classes)], 1).astype(int)
    return z, Bags(range(0, len(p) + 1, size), counts)


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_the_true_effect_explains_the_counts_and_none_does_not(classes):
    z, bags = drawn(classes)
    without, true = goodness_of_fit(z, bags), goodness_of_fit(z, bags, effect_sd=1.0)
    assert without.dispersion > 1.5
    assert without.dispersion_p < 1e-6
    assert true.dispersion == pytest.approx(1, abs=0.15)
    assert min(true.dispersion_p, true.pit_p) > 0.01
    assert true.log_likelihood.sum() > without.log_likelihood.sum()


def test_log_likelihood_is_that_of_the_estimator():
    z, bags = drawn(2, bags=60)
    X, groups = z[:, None].numpy(), bags.bag_index.numpy()
    model = LLPMixedLogisticRegression().fit(X, bags.counts.numpy()[groups], groups)
    logits = torch.from_numpy(model.decision_function(X))
    found = goodness_of_fit(logits, bags, effect_sd=model.effect_sd_)
    own = model.score(X, bags.counts.numpy()[groups], groups)
    assert float(found.log_likelihood.mean()) == pytest.approx(own)


def test_counts_must_be_exact():
    bags = Bags([0, 2], Evidence.interval([0], [1]))
    with pytest.raises(LLPError):
        goodness_of_fit(torch.zeros(2), bags, effect_sd=1.0)
