"""The models that learn while somebody counts, and what they believe.

Several models are trained, each without one part of the counted bags. A bag is judged by the model
that has not seen it, so the likelihoods, the calibration and the search for miscounts are honest;
an item in no counted bag gets the mean of all models.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from llpkit.bags import Bags
from llpkit.evaluation import baseline_log_likelihood, constant_rate
from llpkit.likelihood import log_prob, pmf, posterior

FOLDS = 3
LEAST = 6
"""Counted bags before the first training."""

_EPOCHS = 40

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Beliefs:
    """What the models believe after one round of training."""

    counted: int
    """Counted bags that they learned from."""
    members: Array
    """Logits ``(FOLDS, N)`` of all items by all models."""
    unseen_by: NDArray[np.int64]
    """``(N,)``: the model that has not seen the item's bag; -1 for items in no counted bag."""
    log_likelihood: float
    """Mean log-likelihood of counted bags, each under the model that has not seen it."""
    baseline: float
    """The same if every item had the same probability."""
    test: Array | None = None
    """Mean logits of test inputs, in demonstrations."""

    @property
    def logits(self) -> Array:
        """One logit ``(N,)`` per item: of the model that has not seen it, else the mean."""
        seen = self.members[np.maximum(self.unseen_by, 0), np.arange(self.members.shape[1])]
        return np.where(self.unseen_by >= 0, seen, self.members.mean(0))


def train(inputs: Tensor, bags: Bags, seed: int = 0, test: Tensor | None = None) -> Beliefs:
    """Train the models on the bags. A function of its arguments: it may run in another process.

    Args:
        inputs: Those of all items.
        bags: What is known about some of them.
        seed: Of the division into parts and of training.
        test: Inputs that nobody counts, to see in a demonstration how good the models are.
    """
    from llpkit.training import fit

    torch.set_num_threads(1)  # the page must stay responsive
    # Bags go to the parts in a random order of their own; a part is never empty.
    order = np.random.default_rng(seed).permutation(len(bags))
    part = np.empty(len(bags), np.int64)
    part[order] = np.arange(len(bags)) % FOLDS
    members, tested, total, base = [], [], 0.0, 0.0
    unseen_by = np.full(len(inputs), -1)
    for fold in range(FOLDS):
        training = bags[np.flatnonzero(part != fold)]
        unseen = bags[np.flatnonzero(part == fold)]
        model = fit(
            _network(inputs),
            training,
            inputs,
            method="mle",
            epochs=_EPOCHS,
            batch_size=64,
            lr=2e-3,
            weight_decay=0.01,
            seed=seed,
            device="cpu",
            measure="off",
            progress=False,
        )
        z = model.logits(inputs).double()
        members.append(z.numpy())
        if test is not None:
            tested.append(model.logits(test).double().numpy())
        unseen_by[unseen.rows.numpy()] = fold
        total += float(log_prob(z[unseen.rows], unseen.evidence, unseen.offsets).sum())
        rate = constant_rate(training)
        base += float(baseline_log_likelihood(unseen, rate=rate).sum())
    return Beliefs(
        len(bags),
        np.stack(members),
        unseen_by,
        total / len(bags),
        base / len(bags),
        np.mean(tested, 0) if tested else None,
    )


def _network(inputs: Tensor) -> str:
    """Small images of one channel, such as digits, and rows need no convolutions."""
    if inputs.dim() == 2:
        return "linear" if len(inputs) < 200 else "mlp"
    return "mlp" if inputs[0].numel() <= 256 else "small-cnn"


def information(members: Array, bag_items: list[list[int]]) -> Array:
    r"""What the count of each bag is expected to say about the models, in nats, ``(B,)``.

    .. math:: H\Bigl(\tfrac1M \sum_m P_m(y)\Bigr) - \tfrac1M \sum_m H\bigl(P_m(y)\bigr)

    The mutual information between the count and the choice of a model: large where the models
    disagree on the count, zero where all expect the same, however uncertain they are.
    """
    if not bag_items:
        return np.empty(0)
    rows = np.concatenate([np.asarray(items) for items in bag_items])
    offsets = np.cumsum([0, *map(len, bag_items)])
    each = [pmf(torch.from_numpy(z[rows]), offsets) for z in members]
    ends = each[0].offsets.numpy()
    p = np.stack([found.probability.numpy() for found in each])  # (M, S)
    single: Array = np.mean([_entropies(one, ends) for one in p], 0)
    return _entropies(p.mean(0), ends) - single


def _entropies(p: Array, ends: NDArray[np.int64]) -> Array:
    terms = -p * np.log(np.maximum(p, 1e-300))
    found: Array = np.add.reduceat(terms, ends[:-1])
    return found


def after_count(beliefs: Beliefs, bags: Bags) -> Array:
    """Probabilities ``(N,)`` of the bags' instances given their counts, in engine order."""
    z = torch.from_numpy(beliefs.logits)[bags.rows]
    return posterior(z, bags.evidence, bags.offsets).numpy()


def surprise(beliefs: Beliefs, bags: Bags) -> Array:
    """How unlikely each bag's count is, ``(B,)``: the probability of a count at most as likely.

    Small values are probable miscounts. Each bag is judged by the model that has not seen it.
    """
    z = torch.from_numpy(beliefs.logits)[bags.rows]
    log_p = log_prob(z, bags.evidence, bags.offsets).numpy()
    distribution = pmf(z, bags.offsets)
    p, ends = distribution.probability.numpy(), distribution.offsets.numpy()
    seen = np.repeat(np.exp(log_p), np.diff(ends))
    return np.minimum(1.0, np.add.reduceat(np.where(p <= seen * (1 + 1e-9), p, 0.0), ends[:-1]))


def calibration(beliefs: Beliefs, bags: Bags, bins: int = 5) -> list[dict[str, Any]]:
    """Expected against counted share of positives, for bags sorted by the expected share."""
    z = torch.from_numpy(beliefs.logits)[bags.rows]
    expected = np.add.reduceat(z.sigmoid().numpy(), bags.offsets[:-1].numpy())
    evidence, sizes = bags.evidence, bags.sizes.numpy()
    counted = (evidence.low.numpy() + np.minimum(evidence.high.numpy(), sizes)) / 2
    order = np.argsort(expected / sizes)
    return [
        {
            "expected": float(expected[some].sum() / sizes[some].sum()),
            "counted": float(counted[some].sum() / sizes[some].sum()),
            "bags": len(some),
        }
        for some in np.array_split(order, min(bins, len(order)))
    ]
