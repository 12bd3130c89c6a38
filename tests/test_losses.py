import math

import pytest
import torch

from llpkit.likelihood import Evidence, log_prob
from llpkit.losses import DEQUANTISATION, count_loss, normal_loss, proportion_loss

OFFSETS = torch.tensor([0, 3, 3, 8])
COUNTS = torch.tensor([1, 0, 4])
LOGITS = torch.randn(8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
CLASS_COUNTS = torch.tensor([[1, 2, 0], [0, 0, 0], [2, 1, 2]])
CLASS_LOGITS = torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_count_loss_is_minus_the_log_likelihood():
    evidence = Evidence.exact(COUNTS)
    expected = -log_prob(LOGITS, evidence, OFFSETS)
    torch.testing.assert_close(count_loss(LOGITS, evidence, OFFSETS), expected)


def test_normal_loss_is_the_density_with_the_count_s_moments():
    for b in (0, 2):
        p = LOGITS[OFFSETS[b] : OFFSETS[b + 1]].sigmoid()
        deviation = math.sqrt(float((p * (1 - p)).sum()) + DEQUANTISATION)
        normal = torch.distributions.Normal(p.sum(), deviation)
        value = normal_loss(LOGITS, COUNTS, OFFSETS)[b]
        torch.testing.assert_close(value, -normal.log_prob(COUNTS[b].double()))


def test_normal_loss_of_classes_is_the_joint_density():
    p = CLASS_LOGITS[3:].softmax(1)[:, :2]
    covariance = torch.diag(p.sum(0)) - p.T @ p + DEQUANTISATION * torch.eye(2)
    normal = torch.distributions.MultivariateNormal(p.sum(0), covariance)
    value = normal_loss(CLASS_LOGITS, CLASS_COUNTS, OFFSETS)[2]
    torch.testing.assert_close(value, -normal.log_prob(CLASS_COUNTS[2, :2].double()))


def test_two_classes_agree_with_binary():
    pair = torch.stack([torch.zeros_like(LOGITS), LOGITS], 1)
    counts = torch.stack([OFFSETS.diff() - COUNTS, COUNTS], 1)
    torch.testing.assert_close(
        normal_loss(pair, counts, OFFSETS), normal_loss(LOGITS, COUNTS, OFFSETS)
    )
    torch.testing.assert_close(
        proportion_loss(pair, counts, OFFSETS), proportion_loss(LOGITS, COUNTS, OFFSETS)
    )


def test_proportion_loss_is_the_cross_entropy_of_the_mean():
    p = CLASS_LOGITS[3:].softmax(1).mean(0)
    expected = -(CLASS_COUNTS[2] / 5 * p.log()).sum()
    torch.testing.assert_close(proportion_loss(CLASS_LOGITS, CLASS_COUNTS, OFFSETS)[2], expected)


def test_an_empty_bag_costs_nothing_to_match():
    assert proportion_loss(LOGITS, COUNTS, OFFSETS)[1] == 0
    assert normal_loss(LOGITS, COUNTS, OFFSETS)[1].isfinite()


@pytest.mark.parametrize("loss", [normal_loss, proportion_loss])
def test_gradients(loss):
    z = LOGITS.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss(z, COUNTS, OFFSETS), z)
    k = CLASS_LOGITS.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda k: loss(k, CLASS_COUNTS, OFFSETS), k)


@pytest.mark.parametrize("loss", [normal_loss, proportion_loss])
def test_confident_and_wrong_still_has_a_gradient(loss):
    z = torch.tensor([80.0, 80.0, 80.0], requires_grad=True)
    loss(z, torch.tensor([0]), torch.tensor([0, 3])).sum().backward()
    assert z.grad.isfinite().all()


def test_confident_and_wrong_pulls_back_under_the_proportion_loss():
    z = torch.tensor([80.0, 80.0, 80.0], requires_grad=True)
    proportion_loss(z, torch.tensor([0]), torch.tensor([0, 3])).sum().backward()
    assert (z.grad > 0.1).all()
