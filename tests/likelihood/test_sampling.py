"""Samples and modes against the enumerated posterior.

Every frequency check raises a false alarm with probability at most 1e-6 for a right sampler, and
the seeds are fixed.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import strategies
from llpkit import likelihood
from llpkit.likelihood import Evidence
from oracle import Enumeration, assert_close, assert_frequencies, forward_backward
from strategies import batch

DRAWS = 20_000


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def split(labels, offsets):
    """The labels of each bag, ``(draws, n_b)`` each."""
    return np.split(labels.numpy(), offsets[1:-1].numpy(), axis=-1)


def check_joint(labels, enumeration, log_weight):
    """Frequencies of whole combinations, and of each instance's labels."""
    num_classes = enumeration.log_p.shape[1]
    code = (labels * num_classes ** np.arange(labels.shape[1])).sum(axis=1)
    probabilities = enumeration.probabilities(log_weight)
    hits = np.bincount(code, minlength=len(probabilities))
    assert_frequencies(hits, len(labels), probabilities)
    for k in range(num_classes):
        marginal = probabilities @ (enumeration.labels == k)
        assert_frequencies((labels == k).sum(axis=0), len(labels), marginal)


def test_binary_frequencies_for_all_evidence():
    rng = np.random.default_rng(0)
    bags, kinds = [], []
    for n in (1, 2, 6):
        for kind in strategies.evidence_kinds(n, rng).values():
            bags.append(rng.normal(size=n) * 1.5)
            kinds.append(kind)
    data = batch(bags, [k.evidence for k in kinds])
    labels = likelihood.sample(*data, seeded(), num_samples=DRAWS)
    assert labels.shape == (DRAWS, len(data.logits))
    assert labels.dtype == torch.int64
    for z, kind, drawn in zip(bags, kinds, split(labels, data.offsets), strict=True):
        check_joint(drawn, Enumeration.binary(z), kind.log_weight)


@pytest.mark.parametrize("num_classes", [2, 3, 4])
def test_class_frequencies_for_all_evidence(num_classes):
    rng = np.random.default_rng(1)
    bags, kinds = [], []
    for n in (1, 4):
        for kind in strategies.class_evidence_kinds(n, num_classes, rng).values():
            bags.append(rng.normal(size=(n, num_classes)) * 1.5)
            kinds.append(kind)
    # Twenty draws from each of a thousand copies of every bag.
    copies = np.repeat(np.arange(len(bags)), DRAWS // 20)
    evidence = Evidence.concat([k.evidence for k in kinds])[copies]
    data = batch([bags[b] for b in copies], evidence)
    labels = likelihood.sample(*data, seeded(1), num_samples=20)
    assert labels.shape == (20, len(data.logits))
    start = 0
    for z, kind in zip(bags, kinds, strict=True):
        end = start + len(z) * DRAWS // 20
        check_joint(
            labels[:, start:end].reshape(DRAWS, len(z)).numpy(),
            Enumeration.softmax(z),
            kind.log_weight,
        )
        start = end


def test_frequencies_of_separate_calls():
    z = np.array([0.5, -1.0, 2.0, 0.0])
    data = batch([z] * 4000, Evidence.exact([2] * 4000))
    labels = likelihood.sample(*data, seeded(2))
    assert labels.shape == data.logits.shape
    check_joint(labels.view(4000, 4).numpy(), Enumeration.binary(z), strategies.within(2, 2))


@pytest.mark.parametrize("sd", [0.5, 20])
@pytest.mark.parametrize("n", [20, 300])
def test_large_bag_frequencies(n, sd):
    z = np.random.default_rng(n).normal(size=n) * sd
    y = n // 3
    draws = 4000
    labels = likelihood.sample(
        *batch([z], Evidence.exact([y])), seeded(3), num_samples=draws
    ).numpy()
    assert (labels.sum(axis=1) == y).all()
    assert_frequencies(labels.sum(axis=0), draws, forward_backward(z, [y])[y].posterior)
    # Pairs (first, i) given that the first is positive: the rest is a bag with one positive less.
    given_first = labels[labels[:, 0] == 1]
    if len(given_first) > 100:
        rest = forward_backward(z[1:], [y - 1])[y - 1].posterior
        assert_frequencies(given_first[:, 1:].sum(axis=0), len(given_first), rest)


def test_large_bag_with_an_interval_spreads_over_it():
    z = np.random.default_rng(4).normal(size=200)
    draws = 4000
    evidence = Evidence.interval([95], [110])
    counts = (
        likelihood.sample(*batch([z], evidence), seeded(4), num_samples=draws).sum(dim=1).numpy()
    )
    single = forward_backward(z, range(95, 111))
    mass = np.exp([a.log_prob for a in single.values()])
    assert_frequencies(np.bincount(counts - 95, minlength=16), draws, mass / mass.sum())


def test_a_wrong_sampler_would_be_caught():
    z = np.array([0.5, -1.0, 2.0, 0.0, 0.3])
    data = batch([z], Evidence.exact([2]))
    labels = likelihood.sample(*data, seeded(5), num_samples=DRAWS).numpy()
    check_joint(labels, Enumeration.binary(z), strategies.within(2, 2))
    with pytest.raises(AssertionError, match="surprise"):
        check_joint(
            labels, Enumeration.binary(z + np.array([0.2, 0, 0, 0, 0])), strategies.within(2, 2)
        )
    with pytest.raises(AssertionError, match="surprise"):
        check_joint(labels, Enumeration.binary(z), strategies.within(2, 3))


def test_a_seed_is_as_good_as_a_generator():
    data = batch([np.zeros(10), np.zeros(80)], Evidence.exact([4, 31]))
    before = torch.get_rng_state()
    first = likelihood.sample(*data, seeded(6))
    for seed in (seeded(6), 6, np.int64(6)):
        assert torch.equal(first, likelihood.sample(*data, generator=seed))
    assert not torch.equal(first, likelihood.sample(*data, generator=7))
    assert torch.equal(before, torch.get_rng_state())


def test_without_a_generator_the_global_seed_counts():
    data = batch([np.zeros(80)], Evidence.exact([31]))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first = likelihood.sample(*data)
        second = likelihood.sample(*data)
        torch.manual_seed(0)
        again = likelihood.sample(*data)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def counts_of(labels, enumeration):
    if enumeration.is_binary:
        return int(labels.sum())
    return tuple(int(c) for c in np.bincount(labels, minlength=enumeration.log_p.shape[1]))


def enumerate_bag(z):
    return Enumeration.binary(z) if z.ndim == 1 else Enumeration.softmax(z)


def check_mode(bags):
    logits, kinds = zip(*bags, strict=True)
    data = batch(logits, [k.evidence for k in kinds])
    labels = likelihood.mode(*data)
    assert labels.shape == (len(data.logits),)
    assert labels.dtype == torch.int64
    for (z, kind), best in zip(bags, split(labels, data.offsets), strict=True):
        enumeration = enumerate_bag(z)
        place = enumeration.log_p.shape[1] ** np.arange(len(best))
        scores = enumeration.scores(kind.log_weight)
        score = scores[int(best @ place)]
        assert score > -np.inf
        assert_close(float(score), float(scores.max()), 1e-12)


@pytest.mark.parametrize("style", [0, 1, 50, "ties"])
def test_mode_is_the_enumerated_best(style):
    rng = np.random.default_rng(9)
    bags = []
    for n in range(11):
        for kind in strategies.evidence_kinds(n, rng).values():
            z = rng.integers(-1, 2, size=n) * 1.0 if style == "ties" else rng.normal(size=n) * style
            bags.append((z, kind))
    check_mode(bags)


@pytest.mark.parametrize("style", [0, 1, 50, "ties"])
@pytest.mark.parametrize("num_classes", [2, 3, 4])
def test_class_mode_is_the_enumerated_best(num_classes, style):
    rng = np.random.default_rng(10)
    bags = []
    for n in range(7):
        for kind in strategies.class_evidence_kinds(n, num_classes, rng).values():
            shape = (n, num_classes)
            z = (
                rng.integers(-1, 2, size=shape) * 1.0
                if style == "ties"
                else rng.normal(size=shape) * style
            )
            bags.append((z, kind))
    check_mode(bags)


@given(bags=strategies.ragged_batches(sizes=st.integers(0, 8)))
def test_mode_of_any_batch(bags):
    check_mode(bags)


@given(data=st.data(), num_classes=st.integers(2, 4))
def test_mode_of_any_batch_of_classes(data, num_classes):
    one = strategies.class_bags_with_evidence(num_classes, st.integers(0, 5))
    check_mode(data.draw(st.lists(one, min_size=1, max_size=3)))


def test_mode_of_a_large_bag_is_the_largest_logits():
    z = np.random.default_rng(11).normal(size=5000) * 10
    labels = likelihood.mode(*batch([z], Evidence.exact([1234]))).numpy()
    assert labels.sum() == 1234
    assert z[labels == 1].min() > z[labels == 0].max()


@given(bags=strategies.ragged_batches(), seed=st.integers(0, 2**31))
def test_samples_satisfy_the_evidence(bags, seed):
    logits, kinds = zip(*bags, strict=True)
    data = batch(logits, [k.evidence for k in kinds])
    labels = likelihood.sample(*data, seeded(seed), num_samples=3)
    for (z, kind), drawn in zip(bags, split(labels, data.offsets), strict=True):
        for row in drawn:
            assert set(row) <= {0, 1}
            assert kind.log_weight(int(row.sum())) > -math.inf
            assert (row[z == np.inf] == 1).all()
            assert (row[z == -np.inf] == 0).all()


@given(data=st.data(), num_classes=st.integers(2, 4), seed=st.integers(0, 2**31))
def test_class_samples_satisfy_the_evidence(data, num_classes, seed):
    one = strategies.class_bags_with_evidence(num_classes, st.integers(0, 9))
    bags = data.draw(st.lists(one, min_size=1, max_size=3))
    logits, kinds = zip(*bags, strict=True)
    given_batch = batch(logits, [k.evidence for k in kinds])
    labels = likelihood.sample(*given_batch, seeded(seed), num_samples=3)
    for (z, kind), drawn in zip(bags, split(labels, given_batch.offsets), strict=True):
        for row in drawn:
            counts = tuple(int(c) for c in np.bincount(row, minlength=num_classes))
            assert kind.log_weight(counts) > -math.inf
            assert (z[np.arange(len(row)), row] > -np.inf).all()


def test_huge_logits_leave_one_piece_of_the_evidence_to_each_bag():
    """Weights with a gap make two pieces, and beside logits like these both are equally likely."""
    z = torch.tensor([-1e18, 1e18], dtype=torch.float64)
    gap = Evidence.weights(torch.tensor([0.0, -torch.inf, 0.0]), torch.tensor([0, 3]))
    drawn = likelihood.sample(z, gap, [0, 2], generator=0, num_samples=400)
    assert drawn.shape == (400, 2)
    assert 150 < int((drawn.sum(1) == 2).sum()) < 250
    assert int((drawn.sum(1) == 1).sum()) == 0
