"""Probabilities of binary labels and of classes: from logits, and one column per class."""

import torch
from torch import Tensor


def probability_of(logits: Tensor) -> Tensor:
    """``(n,)`` of the positive class from binary logits ``(n,)``; ``(n, K)`` from those of classes.

    >>> probability_of(torch.zeros(2)), probability_of(torch.zeros(1, 2))
    (tensor([0.5000, 0.5000]), tensor([[0.5000, 0.5000]]))
    """
    return logits.sigmoid() if logits.dim() == 1 else logits.softmax(1)


def per_class(probability: Tensor) -> Tensor:
    """``(n, 2)`` from the probability of the positive class ``(n,)``; ``(n, K)`` unchanged.

    >>> per_class(torch.tensor([0.25]))
    tensor([[0.7500, 0.2500]])
    """
    return torch.stack([1 - probability, probability], 1) if probability.dim() == 1 else probability
