"""Known labels of some rows: exact for every kind of evidence, method and estimator."""

import numpy as np
import pytest
import torch

import llpkit
from llpkit import Bags, Evidence
from llpkit.errors import LLPError
from llpkit.estimators import LLPLogisticRegression
from llpkit.likelihood import log_prob_and_posterior

KINDS = {
    "exact": lambda y, n: Evidence.exact(y),  # noqa: ARG005
    "interval": lambda y, n: Evidence.interval(np.maximum(y - 1, 0), np.minimum(y + 1, n)),
    "at least": lambda y, n: Evidence.at_least(np.maximum(y - 1, 0)),  # noqa: ARG005
    "laplace": lambda y, n: Evidence.laplace(y + 0.3, n, scale=1.5),
    "binomial": lambda y, n: Evidence.binomial(np.maximum(y - 1, 0), n, probability=0.7),
    "unknown": lambda y, n: Evidence.unknown(len(y), y.shape[1] if y.ndim == 2 else None),  # noqa: ARG005
}


def random_bags(rng, num_classes, kind):
    """Bags in a shuffled table, labels that agree with them, and which labels are known."""
    sizes = rng.integers(1, 7, size=6)
    labels = rng.integers(0, num_classes or 2, size=sizes.sum())
    bag = np.repeat(np.arange(len(sizes)), sizes)
    if num_classes is None:
        counts = np.bincount(bag, labels, minlength=len(sizes)).astype(int)
        known = KINDS[kind](counts, sizes)
    else:
        hot = labels[:, None] == np.arange(num_classes)
        counts = np.stack([np.bincount(bag, h, minlength=len(sizes)) for h in hot.T], 1).astype(int)
        sized = sizes if kind in ("laplace", "binomial") else sizes[:, None]
        known = KINDS[kind](counts, sized)
    rows = rng.permutation(len(labels))
    truth = np.empty_like(labels)
    truth[rows] = labels
    some = np.where(rng.random(len(labels)) < 0.4, truth, -1)
    return Bags(np.append(0, np.cumsum(sizes)), known, rows=rows), some


@pytest.mark.parametrize("num_classes", [None, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_likelihood_is_that_of_infinite_logits(kind, num_classes):
    rng = np.random.default_rng(5)
    for _ in range(5):
        bags, some = random_bags(rng, num_classes, kind)
        split = bags.with_labels(some)
        shape = (bags.num_rows,) if num_classes is None else (bags.num_rows, num_classes)
        z = torch.from_numpy(rng.normal(size=shape))
        known = some >= 0
        sure = z.clone()
        if num_classes is None:
            log_h = torch.nn.functional.logsigmoid(torch.where(torch.tensor(some == 1), z, -z))
            sure[known] = torch.where(
                torch.tensor(some[known] == 1), torch.inf, -torch.inf
            ).double()
        else:
            log_h = z.log_softmax(1)[np.arange(len(z)), np.maximum(some, 0)]
            sure[known] = torch.where(
                torch.arange(num_classes) == torch.tensor(some[known])[:, None], torch.inf, 0.0
            ).double()
        log_p, phi = log_prob_and_posterior(sure[bags.rows], bags.evidence, bags.offsets)
        log_q, psi = log_prob_and_posterior(z[split.rows], split.evidence, split.offsets)
        # Weights of an emptied bag are a constant factor, which is left out; so compare its rest.
        emptied = np.array([known[b.rows].all() for b in bags])
        constant = log_p[emptied].sum() if kind in ("laplace", "binomial") else 0.0
        total = log_p.sum() - constant + log_h[known].sum()
        assert float(log_q.sum()) == pytest.approx(float(total), abs=1e-9)
        of_row, in_split = torch.zeros_like(phi), torch.zeros_like(psi)
        of_row[bags.rows], in_split[split.rows] = phi, psi
        np.testing.assert_allclose(of_row, in_split, atol=1e-9)


def test_every_row_stays_in_one_bag_and_emptied_bags_go():
    bags = Bags.from_groups(["a", "a", "b", "b", "c"], {"a": 1, "b": 2, "c": 0})
    known = bags.with_labels([0, 1, None, 1, float("nan")])
    assert sorted(known.rows.tolist()) == [0, 1, 2, 3, 4]
    assert known.ids == ("b", "c", "row 0", "row 1", "row 3")
    assert known.counts.tolist() == [1, 0, 0, 1, 1]
    assert bags.with_labels([-1] * 5) is bags


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, 1, -1], r"bag 'a', 1, contradicts .*, labels\[0\] = 1, labels\[1\] = 1; correct"),
        ([0, 0, -1], r"bag 'a', 1, contradicts .*, labels\[0\] = 0, labels\[1\] = 0; correct"),
        ([2, -1, -1], r"labels\[0\] = 2 but labels go from 0 to 1"),
        ([1, 0], "labels has shape"),
    ],
)
def test_labels_that_cannot_be_are_refused(labels, message):
    bags = Bags.from_groups(["a", "a", "b"], {"a": 1, "b": 1})
    with pytest.raises(LLPError, match=message):
        bags.with_labels(labels)


def test_labels_of_several_classes_that_cannot_be_are_refused():
    bags = Bags([0, 3, 6], [[1, 1, 1], [2, 1, 0]])
    message = r"bag 1, 2, 1, 0, contradicts the known labels of its rows, labels\[4\] = 2"
    with pytest.raises(LLPError, match=message):
        bags.with_labels([0, 1, -1, -1, 2, -1])


def test_a_noisy_count_that_contradicts_the_labels_is_refused():
    bags = Bags([0, 2], Evidence.binomial([2], [2], probability=0.5))
    with pytest.raises(LLPError, match="contradicts"):
        bags.with_labels([0, -1])


def test_labels_choose_between_the_two_solutions_of_half_positive_bags():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    labels = np.tile([0, 1], 200)
    x[:, 0] += 2.5 * labels
    bags = Bags(np.arange(0, 401, 4), np.full(100, 2))
    known = np.full(400, -1)
    known[:12] = labels[:12]
    split = bags.with_labels(known)
    model = LLPLogisticRegression().fit(x[split.rows], split.evidence, split.bag_index)
    assert (model.predict(x) == labels).mean() > 0.85
    net = llpkit.fit("linear", split, x, "mle", epochs=60, lr=0.1, progress=False)
    assert (net.predict(x).numpy() == labels).mean() > 0.85
