r"""A linear model of a network's features, fitted to all counts at once: how ``teacher`` starts.

In large random bags the counts hardly differ, and stochastic EM from flat targets moves by a share
of about :math:`1/n` per E-step. A linear model has few parameters and sees all bags in every step,
so it finds at once what the counts reveal about the features. It minimises

.. math:: \sum_b n_b \operatorname{CE}(y_b / n_b, \bar p_b) + \frac{1}{2 \tau^2} \|W\|^2,
          \qquad p_i = \operatorname{softmax}(x_i W + a)

over the leading principal components :math:`x` of the features. The prior variance :math:`\tau^2`
is the one with the best loss on every fifth bag when fitted to the others. Nothing here waits for
the device, except for the principal components.
"""

import torch
from torch import Tensor, nn

from llpkit.losses import class_counts
from llpkit.ragged import bag_index, segment_sum

_DIMENSIONS = 32
_VARIANCES = (0.03, 0.3, 3.0)
_HELD_OUT = 5
_STEPS, _RATE = 80, 0.05


class LastFeatures(nn.Module):
    """The input of a network's last dense layer; its output if it has none.

    >>> network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> LastFeatures(network)(torch.ones(2, 3)).shape
    torch.Size([2, 8])
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        dense = [module for module in network.modules() if isinstance(module, nn.Linear)]
        self.last = dense[-1] if dense else None

    def forward(self, x: Tensor) -> Tensor:
        """Features ``(n, F)``."""
        return self.both(x)[1]

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The network's output and its features, from one pass."""
        seen: list[Tensor] = []
        if self.last is None:
            out = self.network(x)
            return out, out.reshape(len(x), -1)
        hook = self.last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        try:
            out = self.network(x)
        finally:
            hook.remove()
        return out, seen[-1].reshape(len(x), -1)


@torch.no_grad()
def linear_logits(features: Tensor, counts: Tensor, offsets: Tensor) -> Tensor:
    """Logits ``(N,)`` or ``(N, K)`` of the fitted model.

    Args:
        features: ``(N, F)``, in engine order.
        counts: Counts or their expectations, ``(B,)`` or ``(B, K)``.
        offsets: ``(B + 1,)``.
    """
    # If training has diverged, the loop is about to raise; zeros keep this from failing first.
    x = _components(features.float().nan_to_num(0, 0, 0))  # (N, D)
    sizes = offsets.diff()
    y = class_counts(counts.to(x.dtype), sizes)
    variances = torch.tensor(_VARIANCES, device=x.device)  # (L,)
    bag = torch.arange(len(sizes), device=x.device)
    held_out = bag % _HELD_OUT == _HELD_OUT - 1  # (B,) bool; none if there are few bags
    training = (~held_out).to(x.dtype)
    trial = _fit(x, y, offsets, training, 1 / (2 * variances))
    losses = (_losses(_softmax(x, trial), y, offsets) * held_out).sum(1)  # (L,)
    best = variances[losses.argmin()][None]
    weights = _fit(x, y, offsets, torch.ones_like(training), 1 / (2 * best))
    z = (x @ weights[0, :-1]) + weights[0, -1]  # (N, K)
    return z[:, 1] - z[:, 0] if counts.dim() == 1 else z


def _components(features: Tensor) -> Tensor:
    """The leading principal components, each with variance one."""
    x = features - features.mean(0)
    values, axes = torch.linalg.eigh(x.T @ x / len(x))  # ascending
    values, axes = values[-_DIMENSIONS:], axes[:, -_DIMENSIONS:]
    # Directions without variance stay zero.
    scale = torch.where(values > 1e-6 * values[-1], values.rsqrt(), 0.0)
    components: Tensor = x @ (axes * scale)
    return components


def _softmax(x: Tensor, weights: Tensor) -> Tensor:
    return (x @ weights[:, :-1] + weights[:, -1:]).softmax(2)  # (L, N, K)


def _means(p: Tensor, offsets: Tensor) -> Tensor:
    """Mean prediction of every bag, ``(L, B, K)``."""
    sizes = offsets.diff().clamp(min=1)[:, None]
    return torch.stack([segment_sum(each, offsets) for each in p]) / sizes


def _losses(p: Tensor, y: Tensor, offsets: Tensor) -> Tensor:
    """Cross-entropy of every bag, times its size, ``(L, B)``."""
    return -(y * _means(p, offsets).clamp(min=1e-30).log()).sum(2)


def _fit(x: Tensor, y: Tensor, offsets: Tensor, used: Tensor, ridge: Tensor) -> Tensor:
    """Weights ``(L, D + 1, K)`` with the biases in the last row, one fit per ridge, by Adam."""
    weights = x.new_zeros(len(ridge), x.shape[1] + 1, y.shape[1])
    optimizer = torch.optim.Adam([weights], lr=_RATE)
    bag, total = bag_index(offsets, len(x)), y.sum()
    sizes = offsets.diff().clamp(min=1)[:, None]
    for _ in range(_STEPS):
        p = _softmax(x, weights)
        # The gradient by hand: it needs no graph, and a bag's mean enters every instance alike.
        pull = -used[:, None] * y / (_means(p, offsets).clamp(min=1e-30) * sizes)  # (L, B, K)
        slope = pull[:, bag]
        slope = p * (slope - (p * slope).sum(2, keepdim=True))  # (L, N, K)
        shrink = 2 * ridge[:, None, None] * weights[:, :-1]
        inner = x.T @ slope + shrink
        weights.grad = torch.cat([inner, slope.sum(1, keepdim=True)], 1) / total
        optimizer.step()
    return weights
