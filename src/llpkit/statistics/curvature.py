"""First and second derivatives of the log-likelihood of counts, in logits and in parameters."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from llpkit.losses import two_columns
from llpkit.ragged import segment_sum
from llpkit.statistics.effect import effect_term
from llpkit.statistics.rows import Rows

Array = NDArray[Any]


class Curvature:
    r"""The log-likelihood at given logits, with its first two derivatives.

    With :math:`h` for the labels, the derivative in the logits is :math:`E[h \mid y] - E[h]` and
    the second derivative :math:`\mathrm{Cov}(h \mid y) - \mathrm{Cov}(h)`. Only products of the
    latter with vectors are computed, each at the cost of one evaluation.
    """

    def __init__(self, logits: Tensor, rows: Rows, sd: float | None = None) -> None:
        self.rows = rows
        self.z = logits.detach().clone().requires_grad_()
        self.log_sd: Tensor | None = None
        self.log_prob = rows.log_prob(self.z)  # (B,)
        inputs = [self.z]
        if sd is not None:
            self.log_sd = torch.full((len(rows.bags),), sd, dtype=torch.float64).log()
            self.log_sd.requires_grad_()
            inputs.append(self.log_sd)
            self.log_prob = self.log_prob + effect_term(
                two_columns(self.z), rows.weight, rows.counts, rows.offsets, self.log_sd.exp()
            )
        self._inputs = inputs
        self.slopes = torch.autograd.grad(self.log_prob.sum(), inputs, create_graph=True)

    @property
    def slope(self) -> Tensor:
        """Derivative in the logits, in their shape."""
        return self.slopes[0].detach()

    def scores(self, jacobian: Tensor) -> Tensor:
        """Derivative of every bag's log-likelihood in the parameters, ``(B, P)``."""
        slope = self.slope.reshape(len(jacobian), -1)
        by_row = (slope[:, :, None] * jacobian).sum(1)  # (R, P)
        found = segment_sum(by_row, self.rows.offsets)
        if self.log_sd is not None:
            found[:, -1] += self.slopes[1].detach()
        return found

    def hessian(self, jacobian: Tensor) -> Tensor:
        """Second derivative of the log-likelihood in the parameters, ``(P, P)``.

        Curvature of the logits themselves is not included.
        """
        found = [self._product(jacobian, p) for p in range(jacobian.shape[2])]
        matrix = torch.stack(found)
        return (matrix + matrix.T) / 2

    def _product(self, jacobian: Tensor, p: int) -> Tensor:
        """One row of the Hessian."""
        last = self.log_sd is not None and p == jacobian.shape[2] - 1
        v = [jacobian[:, :, p].reshape(self.z.shape)]
        if self.log_sd is not None:
            v.append(torch.full_like(self.log_sd, float(last)))
        out = torch.autograd.grad(self.slopes, self._inputs, v, retain_graph=True)
        row = (out[0].reshape(len(jacobian), -1)[:, :, None] * jacobian).sum((0, 1))
        if self.log_sd is not None:
            row[-1] += out[1].sum()
        return row


class Labels:
    """The labels of the rows given the counts: expected totals and their covariance."""

    def __init__(self, logits: Tensor, rows: Rows) -> None:
        # A random effect shifts all logits of a bag, which leaves this distribution as it is.
        self._curvature = Curvature(logits, rows)
        self._rows = rows

    @property
    def totals(self) -> Tensor:
        """Expected totals of every row, in the shape of the logits."""
        z = self._curvature.z.detach()
        return self._curvature.slope + self._rows.prior(z)

    def covariance(self, v: Tensor) -> Tensor:
        """The covariance of all totals times a vector, both in the shape of the logits."""
        curvature = self._curvature
        out = torch.autograd.grad(curvature.slopes[0], curvature.z, v, retain_graph=True)[0]
        z = curvature.z.detach()
        m = self._rows.weight
        if z.dim() == 1:
            return out + m * z.sigmoid() * (-z).sigmoid() * v
        p = z.softmax(1)
        return out + m[:, None] * p * (v - (p * v).sum(1, keepdim=True))


def as_array(x: Tensor) -> Array:
    """A tensor as a NumPy array."""
    return np.asarray(x.detach().cpu().numpy())
