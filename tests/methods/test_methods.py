"""What is particular to single methods, and the registry."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

import llpkit
from llpkit import LLPError, methods
from llpkit.evaluation import bag_log_likelihood
from llpkit.likelihood import Evidence, log_prob, posterior
from llpkit.methods import METHODS, BagMethod, Batch, Learner, Method


def linear_toy(rows=300, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 3, generator=generator, dtype=torch.float64)
    p = (x @ torch.tensor([1.5, -1.0, 0.5], dtype=torch.float64)).sigmoid()
    truth = torch.bernoulli(p, generator=generator).long()
    return x, truth, llpkit.random_bags(truth, (1, 8), generator=seed)


def minimise(loss, start, steps=200):
    """L-BFGS to convergence."""
    w = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [w], max_iter=steps, tolerance_grad=1e-12, tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure():
        optimizer.zero_grad()
        value = loss(w)
        value.backward()
        return value

    optimizer.step(closure)
    return w.detach()


def design(x, bags):
    return torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1)[bags.rows]


def test_em_with_full_m_steps_never_lowers_the_bag_likelihood():
    x, _, bags = linear_toy()
    X = design(x, bags)
    method = methods.make("mle-pass")
    task = methods.Task(bags, None, (3,), None, 32, torch.device("cpu"), 1e-2)
    method.prepare(task, nn.Linear(3, 1))
    everything = methods.Batch(X, torch.arange(len(X)))
    w = torch.zeros(4, dtype=torch.float64)
    values = []
    for _ in range(40):
        w = minimise(lambda w: method.loss(X @ w, everything), w)
        method.end_epoch(X @ w)
        values.append(float(bag_log_likelihood(X @ w, bags).sum()))
    assert all(b >= a - 1e-7 for a, b in pairwise(values)), values
    assert values[-1] > values[0] + 1


def test_mle_and_direct_reach_the_same_optimum():
    x, _, bags = linear_toy()
    X = design(x, bags)

    def loss(w):
        return -log_prob(X @ w, bags.evidence, bags.offsets).sum()

    direct = minimise(loss, torch.zeros(4, dtype=torch.float64))
    em = torch.zeros(4, dtype=torch.float64)
    for _ in range(300):
        phi = posterior(X @ em, bags.evidence, bags.offsets)

        def m_step(w, phi=phi):
            return torch.nn.functional.binary_cross_entropy_with_logits(X @ w, phi, reduction="sum")

        em = minimise(m_step, em, steps=50)
    assert loss(em) - loss(direct) < 1e-6
    torch.testing.assert_close(em, direct, rtol=0, atol=1e-3)


def test_over_relaxed_em_reaches_the_same_optimum_sooner():
    x, _, bags = linear_toy()
    X = design(x, bags)

    def loss(w):
        return float(-log_prob(X @ w, bags.evidence, bags.offsets).sum())

    everything = methods.Batch(X, torch.arange(len(X)))
    task = methods.Task(bags, None, (3,), None, 32, torch.device("cpu"), 1e-2)

    def losses(step):
        method = methods.make("mle", {"step": step})
        method.prepare(task, nn.Linear(3, 1))
        w, found = torch.zeros(4, dtype=torch.float64), []
        for _ in range(60):
            w = minimise(lambda w: method.loss(X @ w, everything), w, steps=50)
            method.end_epoch(X @ w)
            found.append(loss(w))
        return found

    best = loss(
        minimise(
            lambda w: -log_prob(X @ w, bags.evidence, bags.offsets).sum(),
            torch.zeros(4, dtype=torch.float64),
        )
    )
    needed = {}
    for step in (1, 1.6):
        found = losses(step)
        assert found[-1] - best < 1e-3
        needed[step] = next(i for i, value in enumerate(found) if value - best < 1e-2)
    assert needed[1.6] < 0.75 * needed[1]


def test_mle_starts_at_the_bag_proportions():
    bags = llpkit.Bags([0, 4, 6], [1, 2])
    method = methods.make("mle")
    task = methods.Task(bags, None, (1,), None, 8, torch.device("cpu"), 1e-3)
    method.prepare(task, nn.Linear(1, 1))
    torch.testing.assert_close(method.targets, torch.tensor([0.25] * 4 + [1.0] * 2))


def test_both_e_steps_learn_digits_alike():
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32)
    truth = torch.tensor(digits.target) % 2
    bags = llpkit.random_bags(truth[:1200], (1, 12), generator=0)
    scores = {}
    for key in ("mle", "mle-pass"):
        model = llpkit.fit(
            "mlp", bags, x[:1200], key, epochs=40, lr=3e-3, batch_size=64, progress=False
        )
        scores[key] = float((model.predict(x[1200:]) == truth[1200:]).float().mean())
    assert min(scores.values()) > 0.9
    assert abs(scores["mle"] - scores["mle-pass"]) < 0.03


def test_unknown_methods_and_options_are_refused_with_the_nearest():
    with pytest.raises(LLPError, match="there is no method 'amlee'; did you mean 'amle'"):
        methods.make("amlee")
    with pytest.raises(LLPError, match=f"available: {', '.join(METHODS)}"):
        methods.make("???")
    with pytest.raises(LLPError, match="\"mle\" has no option 'stepp'; did you mean 'step'"):
        methods.make("mle", {"stepp": 1})
    with pytest.raises(LLPError, match="\"mle\" has no option 'foo'; available: step, approx"):
        methods.make("mle", {"foo": 1})
    with pytest.raises(LLPError, match="\"supervised\" has no option 'foo'; it takes none"):
        methods.make("supervised", {"foo": 1})
    with pytest.raises(LLPError, match="step = 3; give a number above 0 and up to 2"):
        methods.make("mle", {"step": 3})
    with pytest.raises(LLPError, match="floor = -1; give a number from 0"):
        methods.make("amle", {"floor": -1})
    with pytest.raises(LLPError, match="weight = 0"):
        methods.make("llp-gan", {"weight": 0})
    with pytest.raises(LLPError, match="method_options are for a method named by its key"):
        methods.make(methods.make("mle"), {"step": 1})


@pytest.mark.parametrize("value", ["heavy", True, None, [1.0]])
def test_an_option_has_the_type_of_its_annotation(value):
    class Mine(methods.DLLP):
        key = "mine"

        def __init__(self, weight: float = 1.0, steps: int = 1) -> None:
            self.weight, self.steps = weight, steps

    assert methods.make(Mine, {"weight": 2, "steps": np.int64(-1)}).weight == 2
    with pytest.raises(LLPError, match=r'steps of method "mine" = .*; give a whole number$'):
        methods.make(Mine, {"steps": value})
    with pytest.raises(LLPError, match=r'option weight of method "mine" = .*; give a number'):
        methods.make(Mine, {"weight": value})


@pytest.mark.usefixtures("registries")
def test_a_method_of_ones_own_joins_the_registry_once():
    class Mine(Method):
        key = "mine-alone"
        summary = "for a test"

    assert methods.register(Mine) is Mine
    assert isinstance(methods.make("mine-alone"), Mine)
    clone = type("Clone", (Method,), {"key": "mine-alone", "summary": "another"})
    with pytest.raises(LLPError, match="already a method 'mine-alone'"):
        methods.register(clone)


def test_a_method_may_be_given_as_a_class():
    assert methods.make(METHODS["mle"], {"step": 1.5}).stride == 1.5
    with pytest.raises(LLPError, match="\"mle\" has no option 'foo'"):
        methods.make(METHODS["mle"], {"foo": 1})
    with pytest.raises(LLPError, match="method = 3; give a key of"):
        methods.make(3)


def test_a_method_without_a_key_is_told_so():
    class Mine(Method):
        pass

    for use in (methods.register, methods.make, lambda mine: methods.make(mine())):
        with pytest.raises(LLPError, match='method Mine has no key; give the class one, key = "mi'):
            use(Mine)


@pytest.mark.parametrize("batch_size", [1000, 4])
@pytest.mark.parametrize("shape", ["scalar", "instances", "float"])
def test_a_bag_loss_has_one_value_a_bag(shape, batch_size):
    class Mine(BagMethod):
        key = "mine"

        def bag_loss(self, logits, evidence, offsets):  # noqa: ARG002
            return {"scalar": logits.mean(), "instances": logits, "float": 0.0}[shape]

    gave = {"scalar": r"\(\)", "instances": r"\(10,\)", "float": "float"}[shape]
    bags = llpkit.Bags([0, 10], [5])
    with pytest.raises(LLPError, match=rf"bag_loss of Mine gave {gave}; return one value per bag"):
        llpkit.fit("mlp", bags, torch.randn(10, 3), Mine(), batch_size=batch_size, progress=False)


def test_a_loss_of_ones_own_is_a_scalar():
    class Mine(Method):
        key = "mine"

        def loss(self, logits, batch):  # noqa: ARG002
            return logits

    x, _, bags = linear_toy()
    with pytest.raises(LLPError, match=r"^loss of Mine gave \(128,\); return a scalar"):
        llpkit.fit("mlp", bags, x, Mine(), progress=False)


@pytest.mark.parametrize("validate", [True, False])
def test_a_loss_of_ones_own_that_is_not_a_number_is_told_from_a_bad_network(validate):
    class Mine(BagMethod):
        key = "mine"

        def bag_loss(self, logits, evidence, offsets):
            return log_prob(logits, evidence, offsets, validate=validate) * float("nan")

    x, _, bags = linear_toy()
    with pytest.raises(LLPError, match=r"epoch 1: the loss is nan.* by zero in the loss of Mine"):
        llpkit.fit("mlp", bags, x, Mine(), epochs=1, batch_size=32, progress=False)


@pytest.mark.parametrize("key", ["mle", "mle-pass"])
def test_first_targets_of_the_network_are_its_posterior(key):
    x, _, bags = linear_toy()
    torch.manual_seed(0)
    network = nn.Linear(3, 1)
    start = [p.detach().clone() for p in network.parameters()]
    seen = {}

    for first in ("counts", "network"):
        for p, value in zip(network.parameters(), start, strict=True):
            p.data.copy_(value)
        method = methods.make(key, {"first": first})
        loss = method.loss

        def noted(logits, batch, first=first, method=method, loss=loss):
            seen.setdefault(first, method.targets.cpu().clone())
            return loss(logits, batch)

        method.loss = noted
        plain = {"precision": "32-true", "cuda_graph": False}  # the loss is called at every step
        llpkit.fit(network, bags, x.float(), method, epochs=1, progress=False, **plain)
    share = (bags.counts / bags.sizes).repeat_interleave(bags.sizes)
    torch.testing.assert_close(seen["counts"].float(), share.float())
    scaled = (x.float() - x.float().mean(0)) / x.float().std(0, correction=0)
    z = (scaled @ start[0].T + start[1])[:, 0][bags.rows]
    torch.testing.assert_close(
        seen["network"].float(),
        posterior(z, bags.evidence, bags.offsets).float(),
        rtol=1e-4,
        atol=1e-4,
    )
    with pytest.raises(LLPError, match="first = 'labels'; give counts or network"):
        methods.make(key, {"first": "labels"})


def test_a_method_knows_its_options():
    assert methods.make("mle", {"step": 1.5}).options == {
        "step": 1.5,
        "approximation": "auto",
        "first": "counts",
    }
    assert methods.make("supervised").options == {}


def test_the_paper_s_normal_approximation_is_binary():
    x = torch.randn(8, 3)
    bags = llpkit.Bags([0, 4, 8], [[1, 2, 1], [0, 2, 2]])
    with pytest.raises(LLPError, match="floor = 1e-12 takes binary counts"):
        llpkit.fit("linear", bags, x, "amle-paper", epochs=1, progress=False)


def test_llp_gan_refuses_a_network_without_features():
    bags = llpkit.Bags([0, 4], [2])
    with pytest.raises(LLPError, match="forward_features"):
        llpkit.fit("mlp", bags, torch.randn(4, 3), "llp-gan", epochs=1, progress=False)


def test_network_outputs_are_read_or_refused():
    assert methods.as_logits(torch.zeros(3, 1), None).shape == (3,)
    two = methods.as_logits(torch.tensor([[1.0, 3.0]]), None)
    assert two.tolist() == [2.0]
    with pytest.raises(LLPError, match=r"shape \(3, 4\); binary counts need one logit"):
        methods.as_logits(torch.zeros(3, 4), None)
    with pytest.raises(LLPError, match=r"shape \(3, 2\); 4 class counts need \(n, 4\)"):
        methods.as_logits(torch.zeros(3, 2), 4)


def test_fillers_do_not_count_in_llp_gan():
    """A step with a batch that is filled up is the step with the batch alone."""

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward_features(self, x):
            z = self.layer(x)
            return z, z.sin()

    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.row = nn.Parameter(torch.full((3,), 0.5))

        def draw(self, number):
            return self.row.expand(number, 3)

    x = torch.randn(5, 3)
    alone = Batch(x[:3], torch.arange(3), torch.tensor([0, 2, 3]), Evidence.exact([1, 0]), None)
    filled = Batch(
        x,
        torch.arange(5),
        torch.tensor([0, 2, 3, 4, 5, 5]),
        Evidence.exact([1, 0, 1, 0, 0]),
        torch.tensor([0.5, 0.5, 0.0, 0.0, 0.0]),
    )
    learnt = []
    for batch in (alone, filled):
        torch.manual_seed(0)
        network, method = Network(), methods.make("llp-gan")
        method.generator = Generator()
        method.optimizer = torch.optim.SGD(method.generator.parameters(), lr=0.1)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        learner = Learner(network, optimizer, torch.Tensor.backward)
        loss, _ = method.step(batch, learner, None)
        learnt.append((loss, network.layer.weight, method.generator.row))
    for a, b in zip(*learnt, strict=True):
        torch.testing.assert_close(a, b)
