"""Sums of exponentials per bag: against torch's own, with gradients and empty bags."""

import torch

from llpkit.ragged import segment_logsumexp

OFFSETS = torch.tensor([0, 2, 2, 5])


def test_logsumexp_of_rows_and_its_gradient():
    values = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    found = segment_logsumexp(values, OFFSETS)
    assert (found[1] == -torch.inf).all()
    expected = torch.stack([values[:2].logsumexp(0), values[2:].logsumexp(0)])
    torch.testing.assert_close(found[[0, 2]], expected)
    gradients = [torch.autograd.grad(v.sum(), values)[0] for v in (found[[0, 2]], expected)]
    torch.testing.assert_close(*gradients)


def test_the_gradient_at_ties_is_shared():
    values = torch.zeros(5, requires_grad=True)
    segment_logsumexp(values, OFFSETS)[[0, 2]].sum().backward()
    torch.testing.assert_close(values.grad, torch.tensor([1 / 2] * 2 + [1 / 3] * 3))
