"""The methods of others: against their authors' code, against enumeration, and padded.

Values called "theirs" were computed with the authors' own functions in float64, from the inputs
given here: ``ProportionLoss`` and ``VATLoss`` of kevinorjohn/LLP-VAT (a111d67), the functions of
``LLP-AHIL.py`` and ``distributed_sinkhorn`` of ``ROT.py`` of TianhaoMa5/LLP-AHIL (0f44b15), and
``ci_loss_interval`` and ``ConfidentialIntervalLoss`` of asanomitakanori/Mixbag (ac6ceb9).
"""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import llpkit
from llpkit import LLPError, losses, methods
from llpkit.likelihood import Evidence, posterior
from llpkit.methods import Batch, Learner, Task
from llpkit.methods.llp_vat import rising
from llpkit.methods.mixbag import interval, interval_loss
from llpkit.methods.rot import transport

ROWS = [1.0, -0.5, 0.25, 0.0, 2.0, -1.0, -1.5, 0.5, 0.75]
ROWS += [0.3, 0.1, -0.2, 2.5, -2.0, 0.0, -0.4, 0.9, 1.1]
Z = torch.tensor(ROWS, dtype=torch.float64).view(6, 3)
TWO_AND_FOUR = torch.tensor([0, 2, 6])
COUNTS = torch.tensor([[1, 1, 0], [1, 1, 2]])


def test_the_proportion_loss_is_that_of_llp_vat():
    theirs = torch.tensor([0.881096383531161, 1.100228692837755], dtype=torch.float64)
    torch.testing.assert_close(losses.proportion_loss(Z, COUNTS, TWO_AND_FOUR), theirs)


class Smooth(nn.Module):
    """Two features, three classes."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 3, dtype=torch.float64)
        weight = [[0.5, -1.0], [1.5, 0.25], [-0.75, 0.6]]
        self.layer.weight.data.copy_(torch.tensor(weight))
        self.layer.bias.data.copy_(torch.tensor([0.1, -0.2, 0.0]))

    def forward(self, x):
        return self.layer(x.tanh())


POINTS = torch.tensor([[0.3, -0.8], [1.2, 0.4], [-0.5, 0.9], [0.1, 0.2]], dtype=torch.float64)
DIRECTIONS = torch.tensor([[0.6, 0.8], [-0.8, 0.6], [1.0, 0.0], [0.28, -0.96]])


def consistency(monkeypatch, **options):
    """The consistency term of one step with given random directions."""
    monkeypatch.setattr(torch, "randn_like", lambda x: DIRECTIONS.to(x.dtype))
    bags = llpkit.Bags([0, 4], [[2, 1, 1]])
    values = []
    for weight in (0.0, 1.0):
        network, method = Smooth(), methods.make("llp-vat", {"weight": weight, **options})
        method.prepare(Task(bags, 3, (2,), None, 4, torch.device("cpu"), 0.1, epochs=1), network)
        method.strength.fill_(weight)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.0)
        learner = Learner(network, optimizer, torch.Tensor.backward)
        batch = Batch(POINTS, torch.arange(4), bags.offsets, bags.evidence)
        values.append(float(method.step(batch, learner, 3)[0]))
    return values[1] - values[0]


@pytest.mark.parametrize(
    ("xi", "eps", "iterations", "theirs"),
    [
        (0.1, 1.0, 1, 0.2023079234390514),
        (1.0, 0.5, 1, 0.056881823328872476),
        (0.1, 1.0, 2, 0.1915773156887156),
    ],
)
def test_virtual_adversarial_training_is_theirs(monkeypatch, xi, eps, iterations, theirs):
    found = consistency(monkeypatch, xi=xi, eps=eps, iterations=iterations)
    assert found == pytest.approx(theirs, rel=5e-5)  # theirs adds 1e-8 to the gradient's length


def test_with_the_default_step_the_change_has_its_full_length(monkeypatch):
    """Theirs divides by the gradient's length plus 1e-8, and gives 1.2e-9: no change at all."""
    assert consistency(monkeypatch, xi=1e-2, eps=6.0) > 0.5
    assert consistency(monkeypatch, xi=1e-6, eps=6.0) > 0.5


def test_virtual_adversarial_training_leaves_batch_norm_alone():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
    bags = llpkit.Bags([0, 4], [2])
    method = methods.make("llp-vat")
    method.prepare(Task(bags, None, (2,), None, 4, torch.device("cpu"), 0.1), network)
    learner = Learner(network, torch.optim.SGD(network.parameters(), lr=0.0), torch.Tensor.backward)
    x = POINTS.float()
    method.step(Batch(x, torch.arange(4), bags.offsets, bags.evidence), learner, None)
    assert network[1].num_batches_tracked == 1
    expected = 0.1 * network[0](x).mean(0)
    torch.testing.assert_close(network[1].running_mean, expected.detach())


def test_the_weight_rises_over_the_first_part_of_training():
    assert rising(1, 100, 0.4) == pytest.approx(math.exp(-5))
    assert rising(21, 100, 0.4) == pytest.approx(math.exp(-5 / 4))
    assert rising(41, 100, 0.4) == rising(100, 100, 0.4) == 1
    assert rising(1, 100, 0) == 1


def test_transport_gives_the_pseudo_labels_of_rot():
    theirs = [[0.8519528, 0.1480472, 0.0], [0.1480472, 0.8519528, 0.0]]
    theirs += [[0.01867762, 0.30966042, 0.67166196], [0.19470681, 0.35768235, 0.44761084]]
    theirs += [[0.74847627, 0.01865641, 0.23286731], [0.0381393, 0.31400081, 0.64785989]]
    found = transport(Z, COUNTS, TWO_AND_FOUR, sweeps=25)
    # Theirs ends with exact class totals, ours with exact rows.
    torch.testing.assert_close(found, torch.tensor(theirs, dtype=found.dtype), rtol=0, atol=1e-5)
    exact = posterior(Z, COUNTS, TWO_AND_FOUR, approximation="sinkhorn")
    torch.testing.assert_close(transport(Z, COUNTS, TWO_AND_FOUR, sweeps=200), exact)
    assert found.argmax(1).tolist() == [0, 1, 2, 2, 0, 2]
    evidence = Evidence.exact(COUNTS)
    hard = methods.make("rot", {"alpha": 0.0, "hard": True}).bag_loss(Z, evidence, TWO_AND_FOUR)
    errors = F.cross_entropy(Z, found.argmax(1), reduction="none")
    expected = torch.stack([errors[:2].mean(), errors[2:].mean()])
    torch.testing.assert_close(hard, expected, check_dtype=False)


def test_ahil_is_theirs():
    method, offsets = methods.make("ahil"), torch.tensor([0, 3, 6])
    counts = torch.tensor([[1, 2, 0], [1, 0, 2]])
    labels, weights = method.pseudo_labels(Z, counts, offsets)
    theirs = [0.76695168, 0.93944526, 0.0, 0.68777519, 0.850043, 0.82600491]
    assert labels.tolist() == [0, 1, 2, 0, 0, 2]
    torch.testing.assert_close(weights, torch.tensor(theirs).double(), rtol=0, atol=1e-6)

    class Given(nn.Module):
        """Its inputs are its logits."""

        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x):
            return x * self.scale

    network = Given()
    learner = Learner(network, torch.optim.SGD(network.parameters(), lr=0.0), torch.Tensor.backward)
    strong = Z.flip(0) * 0.5
    batch = Batch(Z, torch.arange(6), offsets, Evidence.exact(counts), strong=strong)
    assert float(method.step(batch, learner, 3)[0]) == pytest.approx(1.640480807021699, rel=1e-5)


def test_the_interval_of_mixbag_is_theirs():
    share, other = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.1, 0.0, 0.9]).double()
    reach = methods.make("mixbag").reach
    target, half = interval(share, other, torch.tensor(4), torch.tensor(6), reach)
    low = [-0.1868669541009912, -0.11607865521596444, 0.22464963196998694]
    high = [0.7068669541009912, 0.35607865521596443, 1.0153503680300133]
    torch.testing.assert_close(target - half, torch.tensor(low).double())
    torch.testing.assert_close(target + half, torch.tensor(high).double())
    means = [[0.2, 0.05, 0.75], [0.7, 0.25, 0.05], [0.9, 0.05, 0.05]]
    theirs = torch.tensor([0.9010529393999898, 2.462024638418817, 2.1391792311296443])
    found = interval_loss(torch.tensor(means).double(), target, half)
    torch.testing.assert_close(found, theirs.double(), rtol=1e-6, atol=1e-6)
    inside = torch.tensor([[0.2, 0.05, 0.75]]).double().requires_grad_()
    interval_loss(inside, target, half).sum().backward()
    assert inside.grad.abs().sum() == 0


def test_mixtures_have_the_mean_of_their_parts():
    """With predictions that are the labels, mixtures differ from their target as samples do."""
    torch.manual_seed(0)
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 1, 1, 0, 1])
    logits = 40.0 * F.one_hot(labels, 2).double()
    offsets, counts = torch.tensor([0, 4, 10]), torch.tensor([[3, 1], [1, 5]])
    method = methods.make("mixbag")
    draws = torch.stack([method._mixed(logits, counts, offsets, None) for _ in range(400)])
    # Inside the interval the loss is the entropy of the target, at most log 2.
    assert (draws <= math.log(2) + 1e-9).double().mean() > 0.97
    assert draws.std() > 0.01
    padded = torch.cat([offsets, torch.tensor([11, 12, 12])])
    more = torch.cat([logits, 40.0 * torch.eye(2).double()])
    known = torch.cat([counts, torch.tensor([[1, 0], [1, 0], [0, 0]])])
    weights = torch.tensor([0.5, 0.5, 0, 0, 0])
    same = torch.stack([method._mixed(more, known, padded, weights)[:2] for _ in range(400)])
    torch.testing.assert_close(same.mean(0), draws.mean(0), rtol=0, atol=0.02)


def test_mixbag_without_mixing_is_dllp():
    bags = llpkit.random_bags(torch.randint(0, 2, (40,)), (2, 6), generator=0)
    x = torch.randn(40, 3)
    how = {"epochs": 2, "lr": 0.01, "device": "cpu", "progress": False}
    plain = llpkit.fit("linear", bags, x, "dllp", **how)
    unmixed = llpkit.fit("linear", bags, x, "mixbag", method_options={"share": 0.0}, **how)
    torch.testing.assert_close(plain.predict_proba(x), unmixed.predict_proba(x))


@pytest.mark.parametrize("classes", [None, 3])
def test_the_debiased_square_loss_is_the_brier_score_on_average(classes):
    """Over all ways to draw two bags, of one and two instances, from a population of four."""
    generator = torch.Generator().manual_seed(0)
    shape = (4,) if classes is None else (4, classes)
    z = torch.randn(shape, generator=generator, dtype=torch.float64)
    labels = torch.tensor([0, 1, 1, 0]) if classes is None else torch.tensor([0, 2, 1, 2])
    known = labels if classes is None else F.one_hot(labels, classes)
    p = z.sigmoid() if classes is None else z.softmax(1)
    brier = (p - known).square().sum() / 4
    offsets = torch.tensor([0, 1, 3])
    found = []
    for drawn in itertools.product(range(4), repeat=3):
        rows = torch.tensor(drawn)
        counts = torch.stack([known[rows[:1]].sum(0), known[rows[1:]].sum(0)])
        found.append(losses.debiased_square_loss(z[rows], counts, offsets))
    mean = torch.stack(found).mean(0)
    torch.testing.assert_close(mean, brier.expand(2))


def test_a_bag_alone_has_the_square_of_its_proportion_error():
    z, counts = torch.tensor([0.0, 2.0, -1.0]), torch.tensor([2])
    found = losses.debiased_square_loss(z, counts, torch.tensor([0, 3]))
    torch.testing.assert_close(found, (z.sigmoid().mean() - 2 / 3).square()[None])


def test_one_vs_rest_is_the_sum_of_binary_likelihoods():
    """By enumeration: the probability that exactly so many instances are of the class."""
    p = Z.softmax(1)
    expected = []
    for (start, end), counts in zip(((0, 2), (2, 6)), COUNTS, strict=True):
        total = 0.0
        for k, count in enumerate(counts.tolist()):
            q = p[start:end, k]
            ways = itertools.product((0, 1), repeat=end - start)
            right = [torch.tensor(way) for way in ways if sum(way) == count]
            total -= math.log(sum(float(torch.where(w == 1, q, 1 - q).prod()) for w in right))
        expected.append(total)
    found = losses.one_vs_rest_loss(Z, COUNTS, TWO_AND_FOUR)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    binary = losses.one_vs_rest_loss(Z[:, 0], COUNTS[:, 0], TWO_AND_FOUR)
    exact = losses.count_loss(Z[:, 0], Evidence.exact(COUNTS[:, 0]), TWO_AND_FOUR)
    torch.testing.assert_close(binary, exact)


@pytest.mark.parametrize("key", ["llp-vat", "rot", "ahil", "dsq", "one-vs-rest"])
@pytest.mark.parametrize("classes", [None, 3])
def test_padding_changes_nothing(key, classes, monkeypatch):
    """A step with a padded batch is the step with the batch alone."""
    monkeypatch.setattr(torch, "randn_like", torch.ones_like)
    x = torch.randn(5, 3)
    counts = torch.tensor([[1, 1, 0], [0, 0, 1], [1, 0, 0], [1, 0, 0], [0, 0, 0]])
    counts = counts if classes else counts[:, 0]
    offsets = torch.tensor([0, 2, 3, 4, 5, 5])
    alone = Batch(x[:3], torch.arange(3), offsets[:3], Evidence.exact(counts[:2]), strong=x[:3] / 2)
    weights = torch.tensor([0.5, 0.5, 0.0, 0.0, 0.0])
    padded = Batch(x, torch.arange(5), offsets, Evidence.exact(counts), weights, strong=x / 2)
    learnt = []
    for batch in (alone, padded):
        torch.manual_seed(0)
        network, method = nn.Linear(3, classes or 1), methods.make(key)
        bags = llpkit.Bags([0, 2, 3], counts[:2])
        task = Task(bags, classes, (3,), None, 5, torch.device("cpu"), 0.1, epochs=1)
        method.prepare(task, network)
        method.begin_epoch(1)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        learner = Learner(network, optimizer, torch.Tensor.backward)
        loss, _ = method.step(batch, learner, classes)
        learnt.append((loss, network.weight.detach().clone()))
    for a, b in zip(*learnt, strict=True):
        torch.testing.assert_close(a, b)


def test_options_are_checked():
    for key, options, message in (
        ("llp-vat", {"eps": 0}, "eps = 0"),
        ("rot", {"alpha": 1.5}, "alpha = 1.5"),
        ("rot", {"hard": "false"}, "hard = 'false'; give true or false"),
        ("ahil", {"beta_bag": -1}, "beta_bag = -1"),
        ("mixbag", {"confidence": 1.0}, "confidence = 1.0"),
    ):
        with pytest.raises(LLPError, match=message):
            methods.make(key, options)
