"""Teacher EM: targets, the teacher's average, the linear start, graph capture."""

import copy
import itertools
import warnings

import pytest
import torch
from torch import nn

import llpkit
from llpkit import Evidence, datasets, methods
from llpkit.errors import ApproximationWarning
from llpkit.likelihood import log_prob
from llpkit.methods import Batch, Learner, Task
from llpkit.methods.linear_start import LastFeatures, linear_logits
from llpkit.ragged import segment_sum
from llpkit.training import Callback
from llpkit.training.cuda_graph import ReplayedSteps

CPU = torch.device("cpu")


def task_of(bags, num_classes=None, epochs=4):
    return Task(bags, num_classes, (2,), None, 8, CPU, 1e-2, epochs)


def prepared(bags, num_classes=None, network=None, epochs=4, **options):
    method = methods.make("teacher", options)
    method.prepare(task_of(bags, num_classes, epochs), network or nn.Linear(2, num_classes or 1))
    return method


def classes_of(bags, num_classes):
    """For each bag, all labellings that its evidence allows, with their logarithmic weights."""
    for b in range(len(bags)):
        n = int(bags.sizes[b])
        known = bags.evidence[b : b + 1]
        allowed = []
        for labels in itertools.product(range(num_classes), repeat=n):
            y = torch.bincount(torch.tensor(labels), minlength=num_classes)
            if ((known.low[0] <= y) & (y <= known.high[0])).all():
                allowed.append(labels)
        yield torch.tensor(allowed)


def enumerated(logits, bags, num_classes):
    """The posterior by its definition: a sum over all labellings."""
    log_p, parts, start = logits.log_softmax(1), [], 0
    for allowed in classes_of(bags, num_classes):
        n = allowed.shape[1]
        own = log_p[start : start + n]
        weight = own[torch.arange(n), allowed].sum(1).softmax(0)  # of each labelling
        chosen = nn.functional.one_hot(allowed, num_classes).to(own.dtype)
        parts.append((weight[:, None, None] * chosen).sum(0))
        start += n
    return torch.cat(parts)


def intervals():
    low = torch.tensor([[1, 0, 1], [0, 2, 0]])
    high = torch.tensor([[2, 1, 3], [2, 3, 1]])
    return llpkit.Bags([0, 4, 8], Evidence.interval(low, high))


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_targets_are_posteriors_of_logits_and_of_sharpened_logits(temperature):
    """K classes, known only by intervals: against the sum over all labellings."""
    bags, z = intervals(), torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    method = prepared(bags, 3, epochs=100, temperature=temperature, start=0.0)
    method.begin_epoch(1)
    log_p = method.end_epoch(z)
    torch.testing.assert_close(method.targets, enumerated(z, bags, 3))
    torch.testing.assert_close(method.sharp, enumerated(z / temperature, bags, 3))
    torch.testing.assert_close(log_p, log_prob(z, bags.evidence, bags.offsets))


def test_sharp_targets_still_sum_to_the_counts():
    x = torch.randn(40, generator=torch.Generator().manual_seed(1))
    bags = llpkit.random_bags((x > 0).long(), 10, generator=0)
    method = prepared(bags, start=0.0)
    method.begin_epoch(1)
    method.end_epoch(2 * x[bags.rows])
    for targets in (method.targets, method.sharp):
        torch.testing.assert_close(segment_sum(targets, bags.offsets), bags.counts.float())
    spread = [(p * (1 - p)).mean() for p in (method.targets, method.sharp)]
    assert spread[1] < 0.8 * spread[0]


@pytest.mark.parametrize("num_classes", [None, 3])
def test_em_never_lowers_the_likelihood(num_classes):
    """Instances share logits in threes, and the M-step is exact: the logits of mean targets."""
    draw = torch.Generator().manual_seed(3)
    labels = torch.randint(num_classes or 2, (24,), generator=draw)
    bags = llpkit.random_bags(labels, (2, 6), generator=0, num_classes=num_classes)
    method = prepared(bags, num_classes, weight=0.0, start=0.0)
    method.begin_epoch(1)
    group, before = torch.arange(24) % 8, -torch.inf
    z = torch.randn((8,) if num_classes is None else (8, num_classes), generator=draw)[group]
    for _ in range(8):
        after = float(method.end_epoch(z).sum())
        assert after >= before - 1e-5
        before = after
        phi = method.targets.double()
        mean = torch.stack([phi[group == g].mean(0) for g in range(8)])[group]
        z = (mean.logit() if num_classes is None else mean.log()).float()


def test_without_a_strong_view_it_is_mle():
    """The same targets and the same student; only the model differs, an average."""
    data = datasets.load("synthetic", bag_size=6)
    how = {"epochs": 3, "batch_size": 64, "lr": 0.01, "device": "cpu", "progress": False}
    students = []

    class Keep(Callback):
        def on_end(self, session):
            students.append(copy.deepcopy(session.network).state_dict())

    options = {"weight": 0.0, "start": 0.0, "decay": 0.0}
    llpkit.fit("linear", data.bags, data.inputs, "teacher", method_options=options,
               callbacks=Keep(), **how)  # fmt: skip
    llpkit.fit("linear", data.bags, data.inputs, "mle", callbacks=Keep(), **how)
    first = [next(iter(state.values())) for state in students]
    # The teacher's logits are from after the step, those of mle from before it.
    assert (first[0] - first[1]).abs().max() < 0.05


def learner_of(network):
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    return Learner(network, optimizer, lambda loss, **kw: loss.backward(**kw))


def normed():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))


def test_the_teacher_averages_weights_and_batch_norm_and_starts_fast():
    bags = llpkit.Bags([0, 4, 8], [1, 3])
    network = normed()
    method = prepared(bags, network=network, decay=0.9)
    method.model.train(False)
    average = {k: v.clone().double() for k, v in network.state_dict().items()}
    batch = Batch(torch.randn(8, 2), torch.arange(8), strong=torch.randn(8, 2))
    for step in range(120):
        method.step(batch, learner_of(network), None)
        new = max(0.1, 9 / (10 + step))
        for name, value in network.state_dict().items():
            average[name] += new * (value.double() - average[name])
    for name, value in method.model.state_dict().items():
        if name.endswith("tracked"):
            assert value == 120
        else:
            torch.testing.assert_close(value.double(), average[name], rtol=1e-4, atol=1e-5)
    assert not method.model.training


def test_the_linear_start_finds_classes_in_bags_too_large_for_flat_targets():
    draw = torch.Generator().manual_seed(0)
    truth = torch.randint(5, (6000,), generator=draw)
    x = torch.randn(6000, 12, generator=draw)
    x[torch.arange(6000), truth] += 2.5
    bags = llpkit.random_bags(truth, 100, generator=0, num_classes=5)
    z = linear_logits(x[bags.rows], bags.counts, bags.offsets)
    assert (z.argmax(1) == truth[bags.rows]).float().mean() > 0.75
    # Binary counts, and the order of instances within a bag, which must not matter.
    few = llpkit.random_bags((truth < 2).long(), 100, generator=1)
    z = linear_logits(x[few.rows], few.counts, few.offsets)
    assert ((z > 0) == (truth[few.rows] < 2)).float().mean() > 0.8
    order = torch.cat([100 * b + torch.randperm(100) for b in range(60)])
    again = linear_logits(x[few.rows[order]], few.counts, few.offsets)
    torch.testing.assert_close(again, z[order], rtol=1e-2, atol=1e-2)


def test_features_are_the_input_of_the_last_dense_layer():
    body, head = nn.Sequential(nn.Linear(3, 8), nn.ReLU()), nn.Linear(8, 2)
    x = torch.randn(5, 3)
    assert torch.equal(LastFeatures(nn.Sequential(body, head))(x), body(x))
    convolution = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    images = torch.randn(5, 1, 8, 8)
    assert torch.equal(LastFeatures(convolution)(images), convolution(images))


def test_it_learns_large_bags_from_the_first_epoch():
    draw = torch.Generator().manual_seed(0)
    truth = torch.randint(4, (4000,), generator=draw)
    x = torch.randn(4000, 10, generator=draw)
    x[torch.arange(4000), truth] += 3
    bags = llpkit.random_bags(truth, 200, generator=0, num_classes=4)
    warnings.simplefilter("ignore", ApproximationWarning)
    reached = {}
    for start in (0.0, 0.1):
        model = llpkit.fit(
            "mlp", bags, x, "teacher", epochs=1, batch_size=100, lr=1e-2, measure="off",
            method_options={"start": start}, device="cpu", progress=False,
        )  # fmt: skip
        reached[start] = float((model.predict(x) == truth).float().mean())
    assert reached[0.1] > max(0.5, reached[0.0] + 0.2)


def test_a_bag_may_be_larger_than_a_batch():
    data = datasets.load("synthetic", bag_size=100)
    model = llpkit.fit("mlp", data.bags, data.inputs, "teacher", epochs=3, batch_size=32, lr=0.01,
                       device="cpu", progress=False)  # fmt: skip
    assert model.predict(data.inputs).shape == data.truth.shape


@pytest.mark.parametrize("num_classes", [None, 3])
def test_a_graph_stays_valid_from_epoch_to_epoch(num_classes):
    """Weights, temperature and targets change in place, so one graph serves the whole run."""
    truth = torch.arange(30) % (num_classes or 2)
    bags = llpkit.random_bags(truth, 6, generator=0, num_classes=num_classes)
    network = nn.Linear(2, num_classes or 1)
    method = prepared(bags, num_classes, network, epochs=10, start=0.0)
    learner = learner_of(network)
    steps = ReplayedSteps(method, learner, 30, num_classes, CPU)
    method.begin_epoch(1)
    steps.graph, steps.captured = "a graph", steps._read_by_a_step()
    for epoch in range(1, 11):
        method.begin_epoch(epoch)
        steps.begin_epoch()
        assert steps.graph == "a graph", epoch
        batch = Batch(torch.randn(8, 2), torch.arange(8), strong=torch.randn(8, 2))
        method.step(batch, learner, num_classes)
        shape = (30,) if num_classes is None else (30, num_classes)
        method.end_epoch(torch.randn(shape))


def test_padding_is_not_banked():
    bags = llpkit.Bags([0, 4, 8], [1, 3])
    network = normed()
    method = prepared(bags, network=network)
    method.outputs = lambda module: module(torch.zeros(8, 2))
    method.begin_epoch(1)
    before = method.bank.clone()
    weights = torch.tensor([0.5, 0.5, 0.0, 0.0])
    batch = Batch(torch.randn(4, 2), torch.tensor([5, 6, 0, 5]), weights=weights)
    method.step(batch, learner_of(network), None)
    changed = (method.bank != before).any(1)[:8].nonzero()[:, 0].tolist()
    assert changed == [5, 6]  # not 0, and not 5 a second time


def test_a_step_never_looks_at_a_value():
    """The meta device has no values to wait for."""
    bags = llpkit.Bags([0, 4, 8], [1, 3])
    network = normed()
    method = prepared(bags, network=network)
    for name in ("targets", "sharp", "steps", "strength"):
        setattr(method, name, getattr(method, name).to("meta"))
    method.model, network = method.model.to("meta"), network.to("meta")
    network[1].num_batches_tracked = network[1].num_batches_tracked.to("meta")
    inputs = torch.randn(8, 2, device="meta")
    batch = Batch(inputs, torch.arange(8, device="meta"), weights=torch.ones(8, device="meta") / 8,
                  strong=inputs)  # fmt: skip
    loss, logits = method.step(batch, learner_of(network), None)
    assert loss.shape == ()
    assert logits.shape == (8,)


@pytest.mark.parametrize(
    ("option", "value"),
    [("temperature", 0), ("temperature", 1.5), ("weight", -1), ("ramp", 2), ("decay", 1.5)],
)
def test_options_out_of_range(option, value):
    with pytest.raises(llpkit.LLPError, match=f"{option} = {value}"):
        methods.make("teacher", {option: value})


@pytest.mark.parametrize(
    ("weak", "flips"), [(None, False), ("weak", True), ("weak-no-flip", False), (torch.sqrt, False)]
)
def test_the_strong_view_is_mirrored_only_if_the_weak_one_is(weak, flips):
    data = llpkit.datasets.load("digits", bag_size=16)
    few = data.bags[:4]
    how = {"epochs": 1, "device": "cpu", "progress": False, "augment": weak}
    model = llpkit.fit("linear", few, data.inputs, "teacher", **how)
    assert f"flip={flips}" in model.details["settings"]["strong_augment"]
    chosen = llpkit.fit("linear", few, data.inputs, "teacher", strong_augment="strong", **how)
    assert "flip=True" in chosen.details["settings"]["strong_augment"]
