"""What training measures and what that costs, and the baseline that tells whether it learned."""

import io
import warnings

import numpy as np
import pytest
import torch
from scipy.stats import binom, multinomial

import llpkit
from llpkit import Bags, Evidence, LLPError, evaluation
from llpkit.errors import BaselineWarning
from llpkit.training import Callback


def blobs(seed, classes=None, scrambled=False, rows=600, size=(1, 8)):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 3, generator=generator)
    truth = (x[:, 0] > 0).long() if classes is None else x[:, :classes].argmax(1)
    if scrambled:
        truth = truth[torch.randperm(rows, generator=generator)]
    return x, llpkit.random_bags(truth, size, generator=seed, num_classes=classes)


def many_classes(size=24, bags=24, classes=10, seed=0):
    """Bags whose exact likelihood is within reach, but takes long."""
    rng = np.random.default_rng(seed)
    truth = torch.from_numpy(rng.integers(0, classes, size * bags))
    x = torch.from_numpy(rng.normal(size=(size * bags, 4))).float()
    return x, llpkit.random_bags(truth, size, generator=seed, num_classes=classes)


# The baseline


def test_the_constant_rate_of_exact_counts_is_binomial():
    _, bags = blobs(0)
    rate = bags.counts.sum().double() / bags.num_instances
    assert float(evaluation.constant_rate(bags)) == pytest.approx(float(rate), rel=1e-12)
    wanted = binom.logpmf(bags.counts.numpy(), bags.sizes.numpy(), float(rate))
    np.testing.assert_allclose(evaluation.baseline_log_likelihood(bags).numpy(), wanted, atol=1e-10)
    wanted = binom.logpmf(bags.counts.numpy(), bags.sizes.numpy(), 0.3)
    found = evaluation.baseline_log_likelihood(bags, 0.3)
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-10)


def test_the_constant_rate_of_classes_is_multinomial_whatever_the_size():
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(0, 10, (3000,), generator=generator)
    bags = llpkit.random_bags(truth, 1000, generator=0, num_classes=10)
    rate = bags.counts.sum(0).double().numpy() / 3000
    wanted = [multinomial.logpmf(y, 1000, rate) for y in bags.counts.numpy()]
    np.testing.assert_allclose(evaluation.baseline_log_likelihood(bags).numpy(), wanted, atol=1e-8)


@pytest.mark.parametrize("classes", [None, 3])
def test_the_constant_rate_of_ranges_is_the_most_likely_one(classes):
    _, bags = blobs(0, classes, rows=120, size=(3, 8))
    n = bags.sizes if classes is None else bags.sizes[:, None]
    low = (bags.counts - 1).clamp(min=0)
    wide = Evidence.interval(low, torch.minimum(bags.counts + 2, n))
    bags = Bags(bags.offsets, wide, bags.rows)
    rate = evaluation.constant_rate(bags)
    best = float(evaluation.baseline_log_likelihood(bags, rate).sum())
    for step in (-0.01, 0.01):
        moved = rate + step
        if classes is not None:
            moved = rate + step * torch.tensor([1.0, -1.0, 0.0])
        assert float(evaluation.baseline_log_likelihood(bags, moved).sum()) < best
    z = rate.logit() if classes is None else rate.log()
    engine = evaluation.bag_log_likelihood(z.expand(bags.num_instances, *rate.shape), bags)
    torch.testing.assert_close(evaluation.baseline_log_likelihood(bags), engine)


def test_a_class_that_training_never_had_is_unlikely_but_not_impossible():
    bags = Bags(offsets=[0, 2, 4], counts=[0, 1])
    rate = evaluation.constant_rate(bags[:1])
    assert evaluation.baseline_log_likelihood(bags, rate).isfinite().all()
    with pytest.raises(LLPError, match=r"rate has shape \(2,\); these bags need one number"):
        evaluation.baseline_log_likelihood(bags, [0.5, 0.5])


def judged(x, bags, network="mlp", lr=1e-2, **options):
    """The verdict that a fit reports, after a look at its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = llpkit.fit(network, bags, x, lr=lr, device="cpu", progress=False, **options)
    caught = [w for w in caught if w.category is BaselineWarning]
    found = evaluation.Verdict(**model.details["verdict"])
    assert [str(w.message) for w in caught] == ([found.text] if found.ok is False else [])
    assert found.text in repr(model)
    assert all(w.filename == __file__ for w in caught)
    return model, found


@pytest.mark.parametrize(("classes", "network"), [(None, "linear"), (3, "mlp")])
def test_scrambled_counts_warn_and_right_ones_do_not(classes, network):
    """Two standard errors at the best epoch: now and then chance passes."""
    rate = 3e-2 if network == "linear" else 1e-2
    warned = {True: 0, False: 0}
    for seed in range(6):
        for scrambled in (True, False):
            x, bags = blobs(seed, classes, scrambled)
            _, found = judged(x, bags, network, rate, epochs=20, held_out=0.2, seed=seed)
            warned[scrambled] += not found.ok
            assert found.ok is not None
    assert warned[True] >= 5
    assert warned[False] == 0


def test_scrambled_counts_warn_after_long_training_too():
    x, bags = blobs(0, scrambled=True, rows=300)
    model, found = judged(x, bags, epochs=200, held_out=0.2)
    end = model.history[-1]
    assert end["log_likelihood"] > end["baseline_log_likelihood"]  # learned by heart
    assert found.ok is False


@pytest.mark.parametrize(("network", "rows"), [("linear", 600), ("mlp", 150)])
def test_without_held_out_bags_nobody_can_tell(network, rows):
    """A flexible model with far more parameters than bags may still be right."""
    for scrambled in (True, False):
        x, bags = blobs(0, scrambled=scrambled, rows=rows)
        model, found = judged(x, bags, network, 0.1 if network == "linear" else 1e-2, epochs=40)
        end = model.history[-1]
        assert end["log_likelihood"] > end["baseline_log_likelihood"]
        assert found.ok is None


def test_a_model_that_does_not_even_explain_its_training_bags_warns():
    x, bags = blobs(0)
    network = torch.nn.Linear(3, 1)
    torch.nn.init.constant_(network.bias, 3.0)
    model, found = judged(x, bags, network, 1e-9, epochs=1)
    end = model.history[-1]
    assert end["log_likelihood"] < end["baseline_log_likelihood"]
    assert "no better" in found.text


@pytest.mark.parametrize("training", [-1.0, -3.0, None])
def test_never_no_better_beside_a_better_number(training):
    error = 0.1
    seen = None if training is None else evaluation.Gain(training, -2.0, error, 100)
    for value in (-2.5, -2.0, -1.95, -1.85, -1.7):
        found = evaluation.verdict(seen, evaluation.Gain(value, -2.0, error, 100))
        assert found.ok == (value == -1.7)
        assert ("no better" in found.text) == (value <= -2)


def test_the_fewer_bags_the_wider_the_interval():
    bags = Bags(offsets=range(0, 82, 2), counts=[0, 2] * 20)
    widths = []
    for number in (40, 10, 4):
        part = bags[:number]
        log_p = torch.full((number,), -1.0).index_fill(0, torch.arange(0, number, 2), -0.4)
        found = evaluation.gain(log_p, part, 0.5)
        low, high = found.interval
        assert low < found.mean < high
        widths.append(high - low)
        text = evaluation.verdict(None, found).text
        assert f"{number} held-out bags" in text
        assert f"{low:.2f} to {high:.2f}" in text
    assert widths == sorted(widths)
    one = evaluation.gain(torch.tensor([-0.1]), bags[:1], 0.5)
    assert evaluation.verdict(None, one).ok is False  # one bag shows nothing


def test_every_log_likelihood_has_its_baseline_beside_it():
    x, bags = blobs(0)
    model = llpkit.fit("mlp", bags, x, epochs=2, held_out=0.25, progress=False)
    training, held_out = bags.split(0.75, 0)
    rate = evaluation.constant_rate(training)
    assert model.details["baseline"]["rate"] == pytest.approx(float(rate))
    for row in model.history:
        for prefix, part in (("", training), ("held_out_", held_out)):
            base = float(evaluation.baseline_log_likelihood(part, rate).mean())
            assert row[f"{prefix}baseline_log_likelihood"] == pytest.approx(base)


# What measuring costs


class Engine:
    """Counts the states that the exact recursion is asked for."""

    def __init__(self, monkeypatch):
        from llpkit.likelihood import budget

        self.states, self.bags = 0.0, []
        inner = budget.log_prob_and_posterior

        def counting(logits, evidence, offsets, **options):
            if options.get("approximation") is None:
                self.states += float(budget.count_states(evidence, offsets.diff()).sum())
                self.bags.append(len(evidence))
            return inner(logits, evidence, offsets, **options)

        monkeypatch.setattr(budget, "log_prob_and_posterior", counting)


@pytest.mark.parametrize("method", ["dllp", "amle", "supervised"])
def test_measures_of_many_classes_are_bounded_and_counted(method, monkeypatch):
    x, bags = many_classes()
    labels = torch.zeros(bags.num_rows, dtype=torch.long) if method == "supervised" else None
    engine, options = Engine(monkeypatch), {"labels": labels, "progress": False, "device": "cpu"}
    model = llpkit.fit("linear", bags, x, method, epochs=2, **options)
    assert engine.states < 3.1 * 2**22  # two epochs and the end
    for row in model.history:
        assert row["measured_bags"] < len(bags)
        assert row["measure_seconds"] > 0
        assert np.isfinite(row["log_likelihood"])
        assert row["proportion_error"] > 0


def test_measured_bags_are_measured_exactly():
    # One large bag that is beyond the budget, and small ones that are within it.
    truth = torch.arange(200) % 10
    large = llpkit.random_bags(truth[:32], 32, generator=0, num_classes=10)
    small = llpkit.random_bags(truth, 4, generator=0, num_classes=10)
    bags = Bags.concat([large, small])
    x = torch.randn(232, 4, generator=torch.Generator().manual_seed(0))

    class Last(Callback):
        def on_epoch(self, session, row):
            self.row = row
            z = session.logits(x)[bags.rows]
            self.every = evaluation.bag_log_likelihood(z, bags)

    last = Last()
    llpkit.fit(
        "linear", bags, x, "dllp", epochs=1, batch_size=10**6, optimizer=still, callbacks=[last],
        progress=False, device="cpu",
    )  # fmt: skip
    assert last.row["measured_bags"] == len(small)
    assert last.row["log_likelihood"] == pytest.approx(float(last.every[1:].mean()), abs=1e-4)


def still(parameters):
    return torch.optim.SGD(parameters, lr=0.0)


def test_all_bags_are_measured_on_request_and_none_without():
    x, bags = many_classes(bags=6)
    options = {"epochs": 1, "progress": False, "device": "cpu"}
    every = llpkit.fit("linear", bags, x, "dllp", measure="all", **options)
    assert "measured_bags" not in every.history[0]
    for off in ("off", False):
        model = llpkit.fit("linear", bags, x, "dllp", measure=off, held_out=0.5, **options)
        assert "log_likelihood" not in model.history[0]
        assert np.isfinite(model.history[0]["held_out_log_likelihood"])
    with pytest.raises(LLPError, match="measure = 'some'; give auto, all or off"):
        llpkit.fit("linear", bags, x, "dllp", measure="some", **options)


@pytest.mark.parametrize("measure", ["auto", "all", "off"])
def test_measuring_changes_no_weight(measure):
    x, bags = blobs(0, 3)
    options = {"epochs": 3, "progress": False, "device": "cpu"}
    wanted = llpkit.fit("mlp", bags, x, "dllp", **options).logits(x)
    found = llpkit.fit("mlp", bags, x, "dllp", measure=measure, **options).logits(x)
    assert torch.equal(found, wanted)


def test_what_the_method_computes_is_not_measured_again(monkeypatch):
    x, bags = blobs(0, 3)
    engine = Engine(monkeypatch)
    model = llpkit.fit("linear", bags, x, "mle", epochs=3, measure="all", progress=False)
    assert len(engine.bags) == 1  # at the end
    monkeypatch.undo()
    again = llpkit.fit("linear", bags, x, "dllp", epochs=1, measure="all", progress=False)
    assert again.history[0].keys() == model.history[0].keys()


@pytest.mark.parametrize("measure", ["auto", "off"])
def test_progress_goes_without_measures(measure, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    x, bags = blobs(0)
    llpkit.fit("linear", bags, x, epochs=1, measure=measure, progress=True)
    assert ("constant rate" in stream.getvalue()) == (measure == "auto")
    assert "epoch 1/1" in stream.getvalue()
    assert "no held-out bags to check it on" in stream.getvalue()
    llpkit.fit("linear", bags, x, epochs=2, measure=measure, progress=True, held_out=0.2)
    assert stream.getvalue().count("no held-out bags to check it on") == 1
