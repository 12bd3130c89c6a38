"""What every registered method must do, whatever it is."""

import re

import pytest
import torch
from torch import nn

import llpkit
from fits import Interrupt, same_weights
from llpkit import LLPError, datasets, methods, networks
from llpkit.likelihood import Evidence
from llpkit.methods import METHODS, Batch, LargeBag, Learner, Task
from llpkit.training import bag_batches, instance_batches, job

pytestmark = pytest.mark.parametrize("key", list(METHODS))

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture
def num_classes(request, key):
    """Binary labels (``None``), or a number of classes where the method can take it."""
    if request.param is not None and key == "amle-paper":
        pytest.skip("takes binary counts only")
    return request.param


def separable(num_classes=None, rows=240, seed=0):
    generator = torch.Generator().manual_seed(seed)
    classes = num_classes or 2
    truth = torch.randint(0, classes, (rows,), generator=generator)
    centres = 4.0 * torch.eye(classes, 4)
    x = centres[truth] + torch.randn(rows, 4, generator=generator)
    bags = llpkit.random_bags(truth, (1, 6), generator=seed, num_classes=num_classes)
    return x, truth, bags


def prepared(key, num_classes=None, device="cpu"):
    """The method after ``prepare``, a learner, and one batch of the kind it wants."""
    torch.manual_seed(0)
    x, truth, bags = separable(num_classes)
    method = methods.make(key)
    labels = truth[bags.rows].to(device) if method.needs_labels else None
    task = Task(bags.to(device), num_classes, (4,), labels, 32, torch.device(device), 1e-2)
    name = method.network_name or "mlp"
    network = networks.make(name, input_shape=(4,), num_outputs=num_classes or 1).to(device)
    method.prepare(task, network)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.0)
    learner = Learner(network, optimizer, lambda loss, **kw: loss.backward(**kw))
    if method.batches == "instances":
        positions = instance_batches(bags.num_instances, 32)[0]
        return method, learner, Batch(x[bags.rows[positions]].to(device), positions.to(device))
    chosen = bag_batches(bags.sizes, 32)[0]
    return method, learner, whole(x, bags, chosen, device)


def whole(x, bags, chosen, device="cpu"):
    some = bags[chosen]
    starts = bags.offsets[chosen]
    positions = torch.cat(
        [torch.arange(s, s + n) for s, n in zip(starts.tolist(), some.sizes.tolist(), strict=True)]
    )
    moved = some.to(device)
    return Batch(x[some.rows].to(device), positions.to(device), moved.offsets, moved.evidence)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("num_classes", [None, 3], indirect=True)
def test_loss_is_finite_and_the_gradient_reaches_every_parameter(key, num_classes, device):
    method, learner, batch = prepared(key, num_classes, device)
    loss, logits = method.step(batch, learner, num_classes)
    assert loss.isfinite()
    assert logits.shape == ((len(batch.inputs),) if num_classes is None else (len(batch.inputs), 3))
    for name, parameter in learner.network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


def test_the_order_inside_a_bag_does_not_matter(key):
    method, _, batch = prepared(key)
    if type(method).loss is methods.Method.loss:
        pytest.skip("this method's step draws fakes, which no order can undo")
    logits = torch.randn(len(batch.inputs))
    loss = method.loss(logits, batch)
    if batch.offsets is None:
        order = torch.randperm(len(batch.positions))
        shuffled = Batch(batch.inputs[order], batch.positions[order])
    else:
        bag = torch.repeat_interleave(torch.arange(len(batch.offsets) - 1), batch.offsets.diff())
        order = (bag + torch.rand(len(bag))).argsort()
        shuffled = batch._replace(inputs=batch.inputs[order], positions=batch.positions[order])
    torch.testing.assert_close(method.loss(logits[order], shuffled), loss)


@pytest.mark.parametrize("num_classes", [None, 3], indirect=True)
def test_it_learns_a_separable_toy(key, num_classes):
    x, truth, bags = separable(num_classes)
    labels = truth if METHODS[key].needs_labels else None
    # An adversary makes for slow learning; it gets the time it needs.
    epochs, options = (30, {"weight": 10.0}) if key == "llp-gan" else (25, {})
    network = METHODS[key].network_name or "mlp"
    model = llpkit.fit(
        network, bags, x, key, labels=labels, epochs=epochs, batch_size=32, lr=1e-2,
        method_options=options, progress=False,
    )  # fmt: skip
    accuracy = (model.predict(x) == truth).float().mean()
    assert accuracy > 0.93, f"{key}: {accuracy:.3f}"


def test_save_and_load_give_the_same_predictions(key, tmp_path):
    x, truth, bags = separable()
    labels = truth if METHODS[key].needs_labels else None
    network = METHODS[key].network_name or "mlp"
    model = llpkit.fit(network, bags, x, key, labels=labels, epochs=2, progress=False)
    again = llpkit.load(model.save(tmp_path / "model"))
    model.network.cpu(), model.preprocess.cpu()  # where a loaded model is: devices round apart
    assert torch.equal(again.predict_proba(x), model.predict_proba(x))
    assert again.history == model.history


@pytest.mark.parametrize("pad", [False, True])
def test_it_resumes_bit_for_bit(key, pad, tmp_path, monkeypatch):
    monkeypatch.setattr(job, "paddable", lambda *_: pad)
    data = datasets.load("digits", bag_size=4)
    bags, rows = data.bags[:12], data.inputs
    how = {"epochs": 4, "batch_size": 32, "device": "cpu", "progress": False, "held_out": 0.25}
    how |= {"augment": "geometric", "labels": data.truth if METHODS[key].needs_labels else None}
    network = METHODS[key].network_name or "small-cnn"
    whole = llpkit.fit(network, bags, rows, key, **how)
    with pytest.raises(KeyboardInterrupt):
        llpkit.fit(network, bags, rows, key, callbacks=Interrupt(2), run_dir=tmp_path, **how)
    resumed = llpkit.fit(network, bags, rows, key, run_dir=tmp_path, resume=True, **how)
    assert [row["loss"] for row in whole.history] == [row["loss"] for row in resumed.history]
    assert len(whole.history) == 4
    assert same_weights(whole.network, resumed.network)


def test_a_checkpoint_of_its_state_goes_through_files_without_code(key, tmp_path):
    method, learner, batch = prepared(key)
    method.step(batch, learner, None)
    torch.save(method.state_dict(), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    other, *_ = prepared(key)
    other.load_state_dict(state)
    for before, after in zip(tensors(method), tensors(other), strict=True):
        assert torch.equal(before, after)


def tensors(method):
    found = []

    def walk(value):
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, dict):
            for inner in value.values():
                walk(inner)

    walk(method.state_dict())
    return found


def test_imprecise_counts_are_taken_or_refused_in_words(key):
    x, truth, bags = separable()
    wide = Evidence.interval(bags.counts, torch.minimum(bags.counts + 1, bags.sizes))
    imprecise = llpkit.Bags(bags.offsets, wide, rows=bags.rows, num_rows=len(x))
    labels = truth if METHODS[key].needs_labels else None
    network = METHODS[key].network_name or "mlp"
    if METHODS[key].needs_exact_counts:
        with pytest.raises(LLPError, match=f'method "{key}" takes exact counts.*"mle" or "direct"'):
            llpkit.fit(network, imprecise, x, key, labels=labels, epochs=1, progress=False)
    else:
        llpkit.fit(network, imprecise, x, key, labels=labels, epochs=1, progress=False)


def test_the_gradient_of_a_bag_larger_than_a_batch_is_exact(key):
    """The two passes give the gradient of one pass, dropout and batch norm included."""
    if not issubclass(METHODS[key], methods.BagMethod):
        pytest.skip("only whole-bag losses need two passes")
    x, _, _ = separable(rows=50)
    bag = llpkit.Bags([0, 50], [20])
    method = methods.make(key)
    torch.manual_seed(1)
    body = [nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 1)]
    network = nn.Sequential(*body)
    method.prepare(Task(bag, None, (4,), None, 16, torch.device("cpu"), 1e-2), network)
    pieces = list(x.split(16))

    before = {name: value.clone() for name, value in network.state_dict().items()}
    torch.manual_seed(2)
    logits = torch.cat([network(piece)[:, 0] for piece in pieces])
    method.bag_loss(logits, bag.evidence, bag.offsets).mean().backward()
    expected = [p.grad.clone() for p in network.parameters()]
    statistics = {name: value.clone() for name, value in network.named_buffers()}

    network.load_state_dict(before)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.0)
    learner = Learner(network, optimizer, lambda out, **kw: out.backward(**kw))
    torch.manual_seed(2)
    large = LargeBag(lambda: iter(pieces), torch.arange(50), bag.offsets, bag.evidence)
    _, seen = method.large_step(large, learner, None)
    torch.testing.assert_close(seen, logits.detach())
    for parameter, gradient in zip(network.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-7)
    for name, value in network.named_buffers():
        torch.testing.assert_close(value, statistics[name])


def test_has_something_to_cite(key):
    reference = METHODS[key].reference
    authors, _, rest = reference.partition(", ")
    assert re.search(r"[A-Z]\. ", authors), reference
    assert re.search(r"\b(19|20)\d\d\b", rest), reference
