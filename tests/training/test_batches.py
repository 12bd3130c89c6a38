"""Padded batches hold every instance once, and train as batches of any shape do."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import llpkit
from llpkit.likelihood import Evidence
from llpkit.training import job
from llpkit.training.batches import plan_bags, plan_instances
from llpkit.training.cuda_graph import ReplayedSteps


@given(st.integers(1, 60), st.integers(1, 20))
def test_every_instance_is_planned_once(number, size):
    plan = plan_instances(number, size, pad=True)
    into = torch.cat([step.into for step in plan])
    assert sorted(into[into < number].tolist()) == list(range(number))
    for step in plan:
        assert step.positions.shape == step.into.shape == step.weights.shape == (min(size, number),)
        assert torch.equal(step.weights > 0, step.into < number)
        assert float(step.weights.sum()) == pytest.approx(1)
        assert step.positions.max() < number
    assert sum(float(step.share) for step in plan) == pytest.approx(1)


@pytest.mark.parametrize("pad", [False, True])
def test_most_bags_of_a_step(pad):
    bags = llpkit.Bags([0, 2, 5, 7, 10, 12], [1, 2, 0, 3, 1])
    plan = plan_bags(bags, 12, pad, max_bags=2)
    real = [int((step.weights > 0).sum()) if pad else len(step.bags) for step in plan]
    assert real == [2, 2, 1]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(1, 12), st.booleans())
def test_every_bag_is_planned_once(sizes, size, classes):
    if sum(sizes) == 0:
        sizes[0] = 1
    rng = np.random.default_rng(len(sizes))
    n = np.array(sizes)
    if classes:
        first = rng.integers(0, n + 1)
        counts = np.stack([first, n - first, 0 * n], 1)
    else:
        counts = rng.integers(0, n + 1)
    bags = llpkit.Bags(np.concatenate([[0], n.cumsum()]), counts)
    plan = plan_bags(bags, size, pad=True)
    found, large = [], []
    for step in plan:
        if step.large:
            large += step.bags.tolist()
            continue
        offsets, weights = step.offsets, step.weights
        assert offsets[0] == 0
        assert offsets[-1] == len(step.positions) == min(size, bags.num_instances)
        assert bool((offsets.diff() >= 0).all())
        torch.testing.assert_close(weights.sum(), torch.tensor(1.0))
        for bag in range(len(weights)):
            inside = slice(int(offsets[bag]), int(offsets[bag + 1]))
            where, into = step.positions[inside], step.into[inside]
            if weights[bag] == 0:  # padding, or an empty bag
                assert len(where) <= 1
                assert bool((into == bags.num_instances).all())
                assert step.counts[bag].sum() == (len(where) if classes else 0)
            else:
                assert torch.equal(where, into)
                index = int(bags.bag_index[where[0]])
                assert where.tolist() == list(range(bags.offsets[index], bags.offsets[index + 1]))
                assert torch.equal(step.counts[bag], bags.counts[index])
                found.append(index)
    small = [b for b, s in enumerate(sizes) if 0 < s <= min(size, sum(sizes))]
    assert sorted(found) == small
    assert sorted(large) == [b for b, s in enumerate(sizes) if s > min(size, sum(sizes))]


@pytest.fixture
def problem():
    rng = torch.Generator().manual_seed(3)
    x = torch.randn(320, 5, generator=rng)
    labels = (x[:, 0] + x[:, 1] > 0).long()
    return x, labels


@pytest.mark.parametrize("method", ["supervised", "mle", "direct", "amle", "dllp", "teacher"])
@pytest.mark.parametrize("size", [8, 3, 40])
def test_padded_batches_train_the_same_network(problem, method, size, monkeypatch):
    """With no dropout and no batch norm, padding must not change the result.

    Bags of 40 are larger than the batch of 32, those of 3 leave room in it.
    """
    x, labels = problem
    bags = llpkit.random_bags(labels, size, generator=0)
    arguments = {"epochs": 3, "lr": 0.05, "batch_size": 32, "progress": False, "device": "cpu"}
    if method == "supervised":
        arguments["labels"] = labels

    def train(pad):
        monkeypatch.setattr(job, "paddable", lambda *_: pad)
        return llpkit.fit("linear", bags, x, method, **arguments)

    usual, padded = train(False), train(True)
    torch.testing.assert_close(padded.predict_proba(x), usual.predict_proba(x))
    for a, b in zip(usual.history, padded.history, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
        assert a["log_likelihood"] == pytest.approx(b["log_likelihood"], rel=1e-4)


@pytest.mark.parametrize("method", ["mle", "amle", "dllp", "direct", "llp-gan"])
def test_padded_batches_with_classes(problem, method, monkeypatch):
    x, _ = problem
    labels = (x[:, 0] > 0.4).long() + (x[:, 0] > -0.4).long()
    bags = llpkit.random_bags(labels, (1, 6), generator=0, num_classes=3)
    network = None if method == "llp-gan" else "linear"
    results = []
    for fixed in (False, True):
        monkeypatch.setattr(job, "paddable", lambda *_, fixed=fixed: fixed)
        results.append(
            llpkit.fit(
                network, bags, x, method, epochs=2, lr=0.05, cuda_graph=False, progress=False
            )
        )
    usual, fixed = results
    if method != "llp-gan":  # whose noise is drawn for the padding too
        torch.testing.assert_close(fixed.predict_proba(x), usual.predict_proba(x))


def fixed(method, bags, device="cuda", batch_size=4):
    task = type("Task", (), {})()
    task.device, task.bags, task.batch_size = torch.device(device), bags, batch_size
    return job.paddable(method, task)


def test_when_batches_have_one_shape():
    make = llpkit.methods.make
    exact = llpkit.Bags([0, 2], [1])
    vague = llpkit.Bags([0, 2], Evidence.at_least([1]))
    large = llpkit.Bags([0, 6], [1])
    assert fixed(make("mle"), vague)
    assert fixed(make("direct"), exact)
    assert not fixed(make("direct"), vague)
    assert not fixed(make("mle"), exact, device="cpu")
    assert fixed(make("direct"), large)  # by two passes
    assert not fixed(make("llp-gan"), large)  # which has no such step
    assert fixed(make("llp-gan"), exact)

    class Mine(type(make("mle"))):
        """Changes something, and promises nothing."""

    assert not fixed(Mine(), exact)
    assert not Mine.shardable


def test_direct_of_many_classes_is_not_replayed(problem):
    class Mine(llpkit.methods.METHODS["direct"]):
        key = "mine"

    x, _ = problem
    labels = (x[:, 0] > 0.4).long() + (x[:, 0] > -0.4).long()
    for classes, expected in ((None, True), (3, False)):
        seen = labels.clamp(max=1) if classes is None else labels
        bags = llpkit.random_bags(seen, 4, generator=0, num_classes=classes)
        method, mine = llpkit.methods.make("direct"), Mine()
        for one in (method, mine):
            llpkit.fit("linear", bags, x, one, epochs=1, progress=False, device="cpu")
        assert method.replayable is expected
        assert not mine.replayable


def test_a_graph_is_dropped_when_what_it_read_has_changed(problem):
    """On the CPU nothing is captured, but what a graph would hold is known."""
    x, labels = problem
    marks = []

    class Watch(llpkit.training.Callback):
        def on_epoch(self, session, row):
            steps = ReplayedSteps(
                session.method, session.learner, len(x), None, torch.device("cpu")
            )
            marks.append(steps._read_by_a_step())
            group = session.learner.optimizer.param_groups[0]
            if row["epoch"] == 2:
                group["betas"] = (0.8, 0.9)
            if row["epoch"] == 3:
                session.method.targets = session.method.targets.clone()
            if row["epoch"] == 4:
                session.method.something = 3.0
            if row["epoch"] == 5:
                next(session.network.parameters()).requires_grad_(False)

    bags = llpkit.random_bags(labels, 4, generator=0)
    settings = {"epochs": 6, "schedule": "constant", "progress": False}
    llpkit.fit("mlp", bags, x, "mle", callbacks=[Watch()], **settings)
    assert marks[0] == marks[1]  # an ordinary epoch changes values only
    assert all(a != b for a, b in pairwise(marks[1:]))


def test_kept_logits_stay_what_they_were(problem, monkeypatch):
    x, labels = problem

    class Keeps(llpkit.methods.Method):
        key = "keeps"
        summary = "remembers the logits of every epoch"

        def prepare(self, task, network):
            super().prepare(task, network)
            self.kept, self.copies = [], []

        def loss(self, logits, batch):  # noqa: ARG002
            return logits.square().mean()

        def end_epoch(self, logits):
            self.kept.append(logits)
            self.copies.append(logits.clone())

    monkeypatch.setattr(job, "paddable", lambda *_: True)
    method = Keeps()
    bags = llpkit.random_bags(labels, 4, generator=0)
    llpkit.fit("linear", bags, x, method, epochs=3, progress=False)
    assert all(torch.equal(a, b) for a, b in zip(method.kept, method.copies, strict=True))


def test_the_generator_follows_the_schedule(problem):
    x, labels = problem
    bags = llpkit.random_bags(labels, 4, generator=0)
    method, rates = llpkit.methods.make("llp-gan"), []

    class Watch(llpkit.training.Callback):
        def on_epoch(self, session, row):  # noqa: ARG002
            rates.append(float(method.optimizer.param_groups[0]["lr"]))

    llpkit.fit(
        None, bags, x, method, epochs=4, schedule="cosine", callbacks=[Watch()], progress=False
    )
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.2 * rates[0]


def test_padding_may_be_anything(problem, monkeypatch):
    """A loss that divides by the size of the bag is not finite for the empty bags of a batch."""
    x, labels = problem

    class PerInstance(llpkit.methods.BagMethod):
        key = "per-instance"
        summary = "the likelihood of a bag over its size"

        def bag_loss(self, logits, evidence, offsets):
            return llpkit.losses.count_loss(logits, evidence, offsets) / offsets.diff()

    bags = llpkit.random_bags(labels, (1, 6), generator=0)
    monkeypatch.setattr(job, "paddable", lambda *_: True)
    model = llpkit.fit("linear", bags, x, PerInstance(), epochs=3, lr=0.05, progress=False)
    assert model.history[-1]["log_likelihood"] > model.history[0]["log_likelihood"]
