"""What must not change the answer, and what must change it in a known way."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import strategies
from llpkit import likelihood
from llpkit.likelihood import Evidence
from oracle import assert_close
from strategies import batch

TOLERANCE = 1e-11


def binary_data(bags):
    logits, known = zip(*bags, strict=True)
    return batch(logits, [k.evidence for k in known])


@given(bags=strategies.ragged_batches(), seed=st.integers(0, 1000))
def test_order_inside_a_bag(bags, seed, backend):
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(z)) for z, _ in bags]
    data = binary_data(bags)
    shuffled = binary_data(
        [(z[order], known) for (z, known), order in zip(bags, orders, strict=True)]
    )
    starts = data.offsets[:-1].numpy()
    rows = np.concatenate(
        [start + order for start, order in zip(starts, orders, strict=True)]
    ).astype(int)
    log_prob, phi = likelihood.log_prob_and_posterior(*data, backend=backend)
    log_prob_shuffled, phi_shuffled = likelihood.log_prob_and_posterior(*shuffled, backend=backend)
    assert_close(log_prob_shuffled.numpy(), log_prob.numpy(), TOLERANCE)
    assert_close(phi_shuffled.numpy(), phi.numpy()[rows], TOLERANCE)


@given(bags=strategies.ragged_batches())
def test_a_batch_is_its_bags_one_by_one(bags, backend):
    log_prob, phi = likelihood.log_prob_and_posterior(*binary_data(bags), backend=backend)
    single = [
        likelihood.log_prob_and_posterior(*binary_data([bag]), backend=backend) for bag in bags
    ]
    assert_close(torch.cat([s[0] for s in single]).numpy(), log_prob.numpy(), TOLERANCE)
    assert_close(torch.cat([s[1] for s in single]).numpy(), phi.numpy(), TOLERANCE)


@given(data=st.data(), num_classes=st.integers(2, 4))
def test_a_batch_of_classes_is_its_bags_one_by_one(data, num_classes, either_backend):
    one = strategies.class_bags_with_evidence(num_classes, st.integers(0, 7))
    bags = data.draw(st.lists(one, min_size=1, max_size=4))
    log_prob, phi = likelihood.log_prob_and_posterior(*binary_data(bags), backend=either_backend)
    single = [
        likelihood.log_prob_and_posterior(*binary_data([bag]), backend=either_backend)
        for bag in bags
    ]
    assert_close(torch.cat([s[0] for s in single]).numpy(), log_prob.numpy(), TOLERANCE)
    assert_close(torch.cat([s[1] for s in single]).numpy(), phi.numpy(), TOLERANCE)


@pytest.mark.parametrize("shift", [-300.0, -1.0, 0.5, 700.0])
def test_a_shift_of_all_logits_leaves_the_posterior_of_an_exact_count(shift, backend):
    rng = np.random.default_rng(0)
    # Eighths, so that the shifted logits are exact.
    bags = [np.round(rng.normal(size=n) * 40) / 8 for n in (1, 2, 9, 12, 13, 70, 600)]
    evidence = Evidence.exact([0, 1, 4, 11, 5, 35, 123])
    phi = likelihood.posterior(*batch(bags, evidence), backend=backend)
    moved = likelihood.posterior(*batch([z + shift for z in bags], evidence), backend=backend)
    assert_close(moved.numpy(), phi.numpy(), 1e-10)


@pytest.mark.parametrize("num_classes", [2, 3, 4])
def test_a_shift_of_one_row_changes_nothing_with_classes(num_classes, either_backend):
    rng = np.random.default_rng(1)
    bags = [np.round(rng.normal(size=(n, num_classes)) * 40) / 8 for n in (1, 5, 9)]
    evidence = Evidence.exact([strategies.random_counts(len(z), num_classes, rng) for z in bags])
    moved = [z + rng.integers(-500, 500, size=(len(z), 1)) for z in bags]
    for a, b in zip(
        likelihood.log_prob_and_posterior(*batch(bags, evidence), backend=either_backend),
        likelihood.log_prob_and_posterior(*batch(moved, evidence), backend=either_backend),
        strict=True,
    ):
        assert_close(b.numpy(), a.numpy(), TOLERANCE)


def test_a_shift_of_one_class_leaves_the_posterior_of_exact_counts():
    rng = np.random.default_rng(2)
    z = np.round(rng.normal(size=(9, 3)) * 40) / 8
    evidence = Evidence.exact([[2, 3, 4]])
    phi = likelihood.posterior(*batch([z], evidence))
    moved = likelihood.posterior(*batch([z + np.array([3.0, -50.0, 200.0])], evidence))
    assert_close(moved.numpy(), phi.numpy(), TOLERANCE)


@given(bags=st.lists(strategies.bag_sizes, min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_the_mirror_image(bags, seed, backend):
    rng = np.random.default_rng(seed)
    sizes = np.array(bags)
    logits = [rng.normal(size=n) * 5 for n in bags]
    counts = rng.integers(0, sizes + 1)
    log_prob, phi = likelihood.log_prob_and_posterior(
        *batch(logits, Evidence.exact(counts)), backend=backend
    )
    mirror = batch([-z for z in logits], Evidence.exact(sizes - counts))
    log_prob_mirror, phi_mirror = likelihood.log_prob_and_posterior(*mirror, backend=backend)
    assert_close(log_prob_mirror.numpy(), log_prob.numpy(), TOLERANCE)
    assert_close(1 - phi_mirror.numpy(), phi.numpy(), TOLERANCE)


@given(seed=st.integers(0, 1000))
def test_renaming_the_classes(seed):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(7, 4)) * 3
    y = strategies.random_counts(7, 4, rng)
    order = rng.permutation(4)
    log_prob, phi = likelihood.log_prob_and_posterior(*batch([z], Evidence.exact([y])))
    renamed = batch([z[:, order]], Evidence.exact([y[order]]))
    log_prob_renamed, phi_renamed = likelihood.log_prob_and_posterior(*renamed)
    assert_close(log_prob_renamed.numpy(), log_prob.numpy(), TOLERANCE)
    assert_close(phi_renamed.numpy(), phi.numpy()[:, order], TOLERANCE)


@given(bags=strategies.ragged_batches())
def test_posteriors_are_probabilities_and_sum_into_the_support(bags, backend):
    data = binary_data(bags)
    log_prob, phi = likelihood.log_prob_and_posterior(*data, backend=backend)
    assert torch.isfinite(log_prob).all()
    assert ((phi >= 0) & (phi <= 1)).all()
    for b, rows in enumerate(strategies.pieces(phi, data.offsets)):
        assert rows.sum() >= data.evidence.low[b].item() - 1e-9
        assert rows.sum() <= data.evidence.high[b].item() + 1e-9


def test_an_interval_is_the_sum_over_its_counts(backend):
    z = np.random.default_rng(3).normal(size=90)
    each = likelihood.log_prob(*batch([z] * 11, Evidence.exact(range(40, 51))), backend=backend)
    whole = likelihood.log_prob(*batch([z], Evidence.interval([40], [50])), backend=backend)
    assert_close(whole.numpy(), [torch.logsumexp(each, 0).item()], TOLERANCE)


def test_inputs_are_left_as_they_were(backend):
    data = binary_data(
        [(np.array([0.5, np.inf, -1.0]), strategies.exact(2)), (np.zeros(70), strategies.exact(9))]
    )
    logits, offsets = data.logits.clone(), data.offsets.clone()
    likelihood.log_prob_and_posterior(*data, backend=backend)
    likelihood.sample(*data, torch.Generator().manual_seed(0))
    likelihood.mode(*data)
    assert torch.equal(data.logits, logits)
    assert torch.equal(data.offsets, offsets)
