"""Fitted models as functions of their parameters: logits and the derivatives of these."""

import copy
import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from llpkit._arrays import Array
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.likelihood.choice import resolve
from llpkit.statistics.rows import Rows, rows_of

MAX_PARAMETERS = 2000
"""A network with more would have too large a Hessian."""
MAX_JACOBIAN = 2e8
"""Maximum number of entries of a network's Jacobian: 1.6 GB."""


class Adapter(Protocol):
    """A model near its estimate, with P parameters."""

    names: list[str]
    estimate: Array
    """``(P,)``; with a random effect, the last is the logarithm of its standard deviation."""
    C: float
    """Inverse strength of the penalty; infinite without one."""
    penalty: Array
    """Second derivative of the penalty, ``(P, P)``."""
    sd: float | None
    """Standard deviation of a random effect per bag."""
    classes: Array

    def rows(self, X: Any, y: Any, groups: Any, multiplicity: Any) -> Rows:
        """The bags that the arguments describe."""
        ...

    def logits(self, X: Any) -> tuple[Tensor, Tensor]:
        """Logits ``(R,)`` or ``(R, K)``, and their derivative ``(R, K', P)``."""
        ...

    def curvature(self, X: Any, slope: Tensor) -> Array:
        """Second derivative of the logits, weighted by ``slope`` and summed, ``(P, P)``."""
        ...


def adapt(model: Any, X: Any, reference: Any = None) -> tuple[Adapter, Any]:
    """The adapter of a model, and the features that it gets: in a pipeline, of its last step."""
    *before, last = steps_of(model)
    X = transformed(before, as_rows(X))
    if isinstance(last, nn.Module) or isinstance(getattr(last, "network", None), nn.Module):
        return Network(last, X), X
    return LinearAdapter(last, reference, _names(before)), X


def steps_of(model: Any) -> list[Any]:
    """The steps of a pipeline, whose last may itself be a pipeline, or the model alone."""
    if not hasattr(model, "steps"):
        return [model]
    before = [step for _, step in model.steps[:-1] if step not in (None, "passthrough")]
    return before + steps_of(model.steps[-1][1])


def last_step(model: Any) -> Any:
    """The last step of a pipeline, or the model itself."""
    return steps_of(model)[-1]


def transformed(steps: Sequence[Any], X: Any) -> Any:
    """The features after these steps."""
    for step in steps:
        X = step.transform(X)
    return X


def _names(steps: Sequence[Any]) -> Sequence[str] | None:
    """The names of the features after these steps, if they have any."""
    names = None
    try:
        for step in steps:
            names = step.get_feature_names_out(names)
    except (AttributeError, ValueError):
        return None
    return names


def as_rows(X: Any) -> Any:
    """Features whose rows can be selected: a list becomes an array."""
    return X if hasattr(X, "shape") else features(X)


def features(X: Any) -> Array:
    """Features as a dense float64 array ``(R, D)``."""
    dense = X.toarray() if hasattr(X, "toarray") else X
    try:
        x = np.asarray(dense, np.float64)
    except (TypeError, ValueError) as error:
        raise LLPError(f"X: {error}; give numbers, one row per instance") from error
    if x.ndim != 2:
        raise LLPError(f"X has shape {x.shape}; give one row per instance, (N, D)")
    if not np.isfinite(x).all():
        row, column = np.argwhere(~np.isfinite(x))[0]
        raise LLPError(f"X[{row}, {column}] = {x[row, column]}; give finite numbers")
    return x


class LinearAdapter:
    """A linear model fitted by maximum likelihood, with or without a random effect.

    For K classes the parameters are contrasts with a reference class, because a constant added to
    the weights of all classes changes nothing.
    """

    def __init__(self, model: Any, reference: Any = None, names: Sequence[str] | None = None):
        if not all(hasattr(model, name) for name in ("coef_", "intercept_", "C", "bags")):
            raise LLPError(
                f"{type(model).__name__} is not fitted by maximum likelihood; use a fitted "
                "LLPLogisticRegression, or llpkit.statistics.bootstrap, which takes any estimator"
            )
        self.model = model
        self.C = float(model.C)
        self.classes = np.asarray(model.classes_)
        self.reference = _position(reference, self.classes)
        coef, intercept = np.asarray(model.coef_), np.asarray(model.intercept_)
        if names is None:
            names = getattr(model, "feature_names_in_", [f"x{i}" for i in range(coef.shape[1])])
        self.constant = bool(model.fit_intercept)
        weights = np.column_stack([intercept, coef]) if self.constant else coef  # (K', D + 1)
        terms = ["(intercept)"] * self.constant + list(map(str, names))
        if len(coef) == 1:
            # The logit of the second class changes its sign if that is the reference.
            self.sign = 1.0 if self.reference == 0 else -1.0
            self.names, self.estimate = terms, self.sign * weights[0]
            self.others = [1 - self.reference]
            contrast = np.ones((1, 1))
        else:
            self.sign = 1.0
            self.others = [k for k in range(len(coef)) if k != self.reference]
            self.names = [f"{self.classes[k]}: {term}" for k in self.others for term in terms]
            self.estimate = (weights[self.others] - weights[self.reference]).ravel()
            # The penalty is on weights that sum to zero over the classes.
            contrast = np.eye(len(self.others)) - 1 / len(coef)
        self.terms = terms
        penalised = np.array([name != "(intercept)" for name in terms], np.float64)
        self.penalty = np.kron(contrast, np.diag(penalised)) / self.C
        self.sd: float | None = getattr(model, "effect_sd_", 0.0) or None
        if self.sd is not None:
            self.names = [*self.names, "log sd of bags"]
            self.estimate = np.append(self.estimate, np.log(self.sd))
            self.penalty = np.pad(self.penalty, (0, 1))

    def rows(self, X: Any, y: Any, groups: Any, multiplicity: Any) -> Rows:
        """The bags that the arguments describe."""
        bags = self.model.bags(X, y, groups, multiplicity)
        approximation = getattr(self.model, "approximation", None)
        return rows_of(bags, multiplicity, resolve(approximation, bags.evidence, bags.sizes))

    def logits(self, X: Any) -> tuple[Tensor, Tensor]:
        """Logits, and their derivative."""
        x = features(X)
        design = np.column_stack([np.ones(len(x)), x]) if self.constant else x
        if design.shape[1] != len(self.terms):
            raise LLPError(
                f"X has {x.shape[1]} columns, but the model was fitted to "
                f"{len(self.terms) - self.constant}"
            )
        width, classes = len(self.terms), len(self.classes)
        extra = int(self.sd is not None)
        size = len(self.others) * width + extra
        if classes == 2:
            jacobian = np.zeros((len(x), 1, size))
            jacobian[:, 0, :width] = self.sign * design
            z = jacobian[:, 0, :width] @ self.estimate[:width]
        else:
            jacobian = np.zeros((len(x), classes, size))
            for j, k in enumerate(self.others):
                jacobian[:, k, j * width : (j + 1) * width] = design
            z = jacobian[:, :, : size - extra] @ self.estimate[: size - extra]
        return torch.from_numpy(np.ascontiguousarray(z)), torch.from_numpy(jacobian)

    def curvature(self, X: Any, slope: Tensor) -> Array:
        """Zero: the logits are linear."""
        del X, slope
        return np.zeros_like(self.penalty)


def _position(reference: Any, classes: Array) -> int:
    if reference is None:
        return 0
    positions = np.flatnonzero(classes == reference)
    if len(positions) != 1:
        raise LLPError(f"reference = {reference!r} is not a class; give one of {classes.tolist()}")
    return int(positions[0])


class Network:
    """A differentiable network of moderate size: a :class:`~llpkit.Fitted` or a module."""

    sd: float | None = None
    C = math.inf

    def __init__(self, model: Any, X: Any) -> None:
        # Copies in float64: derivatives in float32 would be too coarse.
        if isinstance(model, nn.Module):
            self.module, self.preprocess = _double(model), None
        else:
            self.module, self.preprocess = _double(model.network), _double(model.preprocess)
        weights = {k: v for k, v in self.module.named_parameters() if v.requires_grad}
        self.shapes = {name: value.shape for name, value in weights.items()}
        self.flat = torch.cat([value.detach().reshape(-1) for value in weights.values()])
        self.estimate = self.flat.numpy().copy()
        if len(self.flat) > MAX_PARAMETERS:
            raise LLPError(
                f"the network has {len(self.flat):,} parameters; standard errors take up to "
                f"{MAX_PARAMETERS:,}; use llpkit.statistics.bootstrap"
            )
        self.names = [
            f"{name}[{', '.join(map(str, np.unravel_index(i, shape)))}]"
            for name, shape in self.shapes.items()
            for i in range(shape.numel())
        ]
        self.penalty = np.zeros((len(self.flat), len(self.flat)))
        with torch.no_grad():
            z = self._forward(self.flat, self._inputs(X)[:1])
        self.classes = np.arange(z.shape[1] if z.dim() == 2 else 2)

    def rows(self, X: Any, y: Any, groups: Any, multiplicity: Any) -> Rows:
        """The bags, which are passed as ``y``."""
        del X
        if groups is not None or not isinstance(y, Bags):
            raise LLPError("for a network pass llpkit.Bags as y, and no groups")
        return rows_of(y, multiplicity)

    def logits(self, X: Any) -> tuple[Tensor, Tensor]:
        """Logits, and their derivative."""
        x = self._inputs(X)
        z = self._forward(self.flat, x)
        size = z.numel() * len(self.flat)
        if size > MAX_JACOBIAN:
            raise LLPError(
                f"{z.numel():,} logits of {len(self.flat):,} parameters have {size:.2g} "
                "derivatives, which do not fit into memory; use fewer bags, or a smaller network"
            )

        def of_row(flat: Tensor, row: Tensor) -> Tensor:
            return self._forward(flat, row[None]).reshape(-1)

        jacobian = torch.func.vmap(torch.func.jacrev(of_row), (None, 0))(self.flat, x)
        return z.detach(), jacobian.detach()  # (R, K', P)

    def curvature(self, X: Any, slope: Tensor) -> Array:
        """Second derivative of the logits, weighted by ``slope``."""
        x, flat = self._inputs(X), self.flat.clone().requires_grad_()
        total = (self._forward(flat, x) * slope).sum()
        first = torch.autograd.grad(total, flat, create_graph=True)[0]
        if not first.requires_grad:  # the logits are linear
            return np.zeros_like(self.penalty)
        rows = [
            torch.autograd.grad(value, flat, retain_graph=True, materialize_grads=True)[0]
            for value in first
        ]
        return torch.stack(rows).numpy()

    def _inputs(self, X: Any) -> Tensor:
        x = torch.as_tensor(X).detach().cpu()
        x = x.double() / 255 if x.dtype == torch.uint8 else x.double()
        return x if self.preprocess is None else self.preprocess(x)

    def _forward(self, flat: Tensor, x: Tensor) -> Tensor:
        parts = flat.split([shape.numel() for shape in self.shapes.values()])
        named = zip(self.shapes.items(), parts, strict=True)
        weights = {name: part.reshape(shape) for (name, shape), part in named}
        z: Tensor = torch.func.functional_call(self.module, weights, (x,))
        return z[:, 0] if z.dim() == 2 and z.shape[1] == 1 else z


def _double(module: nn.Module) -> nn.Module:
    return copy.deepcopy(module).cpu().double().eval()
