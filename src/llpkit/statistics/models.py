"""Fitted models as functions of parameters: what their logits are, and how these change."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.likelihood.choice import resolve
from llpkit.statistics.rows import Rows, rows_of

Array = NDArray[Any]

MAX_PARAMETERS = 2000
"""A network with more has no Hessian of moderate size."""
MAX_JACOBIAN = 2e8
"""Most entries of a network's Jacobian: 1.6 GB."""


class Adapter(Protocol):
    """A model near its estimate, with P parameters."""

    names: list[str]
    estimate: Array
    """``(P,)``; the last is the logarithm of the effect's deviation, if there is one."""
    penalty: Array
    """Second derivative of the penalty, ``(P, P)``."""
    sd: float | None
    """Standard deviation of a random effect per bag."""
    classes: Array
    reference: int
    """The class with which the others are compared; its parameters are not listed."""

    def rows(self, X: Any, y: Any, groups: Any, multiplicity: Any) -> Rows:
        """The bags that the arguments describe."""
        ...

    def at(self, X: Any) -> tuple[Tensor, Tensor]:
        """Logits ``(R,)`` or ``(R, K)``, and their derivative ``(R, K', P)``."""
        ...

    def bend(self, X: Any, slope: Tensor) -> Array:
        """Second derivative of the logits, weighted by ``slope`` and summed, ``(P, P)``."""
        ...


def adapt(model: Any, X: Any, reference: Any = None) -> tuple[Adapter, Any]:
    """The adapter of a model, and ``X`` as its last step sees it (for a pipeline)."""
    if hasattr(model, "steps"):
        for _, step in model.steps[:-1]:
            X = X if step in (None, "passthrough") else step.transform(X)
        names = _names(model[:-1])
        return Linear(model.steps[-1][1], reference, names), X
    if isinstance(model, nn.Module) or isinstance(getattr(model, "network", None), nn.Module):
        return Network(model, X), X
    return Linear(model, reference), X


def last_step(model: Any) -> Any:
    """The last step of a pipeline, or the model itself."""
    return model.steps[-1][1] if hasattr(model, "steps") else model


def _names(steps: Any) -> Sequence[str] | None:
    try:
        return list(map(str, steps.get_feature_names_out()))
    except (AttributeError, ValueError):
        return None


def features(X: Any) -> Array:
    """Features as a dense float64 array ``(R, D)``."""
    dense = X.toarray() if hasattr(X, "toarray") else X
    try:
        found = np.asarray(dense, np.float64)
    except (TypeError, ValueError) as error:
        raise LLPError(f"X: {error}; give numbers, one row per instance") from error
    if found.ndim != 2:
        raise LLPError(f"X has shape {found.shape}; give one row per instance, (N, D)")
    if not np.isfinite(found).all():
        row, column = np.argwhere(~np.isfinite(found))[0]
        raise LLPError(f"X[{row}, {column}] = {found[row, column]}; give finite numbers")
    return found


class Linear:
    """A linear model fitted by maximum likelihood: :class:`LLPLogisticRegression` and its kin.

    For K classes the parameters are contrasts with the reference class: a constant added to the
    weights of all classes changes nothing.
    """

    def __init__(self, model: Any, reference: Any = None, names: Sequence[str] | None = None):
        if not all(hasattr(model, name) for name in ("coef_", "intercept_", "C", "bags")):
            raise LLPError(
                f"{type(model).__name__} is not fitted by maximum likelihood; use a fitted "
                "LLPLogisticRegression, or llpkit.statistics.bootstrap, which takes any estimator"
            )
        self.model = model
        self.classes = np.asarray(model.classes_)
        self.reference = _position(reference, self.classes)
        coef, intercept = np.asarray(model.coef_), np.asarray(model.intercept_)
        own = getattr(model, "feature_names_in_", None)
        columns = [f"x{i}" for i in range(coef.shape[1])]
        columns = list(map(str, names if names is not None else columns if own is None else own))
        self.constant = bool(model.fit_intercept)
        weights = np.column_stack([intercept, coef]) if self.constant else coef  # (K', D + 1)
        terms = ["(intercept)"] * self.constant + columns
        if len(coef) == 1:
            # The logit is that of the second class; with that as reference, it changes its sign.
            self.sign = 1.0 if self.reference == 0 else -1.0
            self.names, self.estimate = terms, self.sign * weights[0]
            self.others = [1 - self.reference]
            self.contrast = np.ones((1, 1))
        else:
            self.sign = 1.0
            self.others = [k for k in range(len(coef)) if k != self.reference]
            self.names = [f"{self.classes[k]}: {term}" for k in self.others for term in terms]
            self.estimate = (weights[self.others] - weights[self.reference]).ravel()
            # The penalty is on weights that sum to zero over the classes.
            self.contrast = np.eye(len(self.others)) - 1 / len(coef)
        self.terms = terms
        penalised = np.array([name != "(intercept)" for name in terms], np.float64)
        self.penalty = np.kron(self.contrast, np.diag(penalised)) / model.C
        self.sd = getattr(model, "effect_sd_", None)
        if self.sd == 0:
            self.sd = None
        if self.sd is not None:
            self.names = [*self.names, "log sd of bags"]
            self.estimate = np.append(self.estimate, np.log(self.sd))
            self.penalty = np.pad(self.penalty, (0, 1))

    @property
    def C(self) -> float:
        """Inverse strength of the penalty."""
        return float(self.model.C)

    def rows(self, X: Any, y: Any, groups: Any, multiplicity: Any) -> Rows:
        """The bags that the arguments describe."""
        bags = self.model.bags(X, y, groups, multiplicity)
        chosen = getattr(self.model, "approximation", None)
        return rows_of(bags, multiplicity, resolve(chosen, bags.evidence, bags.sizes))

    def at(self, X: Any) -> tuple[Tensor, Tensor]:
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

    def bend(self, X: Any, slope: Tensor) -> Array:
        """Zero: the logits are linear."""
        del X, slope
        return np.zeros_like(self.penalty)


def _position(reference: Any, classes: Array) -> int:
    if reference is None:
        return 0
    found = np.flatnonzero(classes == reference)
    if len(found) != 1:
        raise LLPError(f"reference = {reference!r} is not a class; give one of {classes.tolist()}")
    return int(found[0])


class Network:
    """Any differentiable network of moderate size; a :class:`~llpkit.Fitted` or a module."""

    def __init__(self, model: Any, X: Any) -> None:
        self.sd: float | None = None
        self.reference = 0
        module = model if isinstance(model, nn.Module) else model.network
        before = None if isinstance(model, nn.Module) else model.preprocess
        # In float64 and in a copy: derivatives in float32 would be too coarse.
        self.module = _double(module)
        self.before = None if before is None else _double(before)
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
            width = self._forward(self.flat, self._inputs(X)[:1])
        self.classes = np.arange(width.shape[1] if width.dim() == 2 else 2)

    def rows(self, X: Any, y: Any, groups: Any, multiplicity: Any) -> Rows:
        """The bags, which are passed as ``y``."""
        del X
        if groups is not None or not isinstance(y, Bags):
            raise LLPError("for a network pass llpkit.Bags as y, and no groups")
        return rows_of(y, multiplicity)

    def at(self, X: Any) -> tuple[Tensor, Tensor]:
        """Logits, and their derivative."""
        x = self._inputs(X)
        z = self._forward(self.flat, x)
        size = z.numel() * len(self.flat)
        if size > MAX_JACOBIAN:
            raise LLPError(
                f"{z.numel():,} logits of {len(self.flat):,} parameters have {size:.2g} "
                "derivatives, which do not fit into memory; use fewer bags, or a smaller network"
            )

        def one(flat: Tensor, row: Tensor) -> Tensor:
            return self._forward(flat, row[None]).reshape(-1)

        jacobian = torch.func.vmap(torch.func.jacrev(one), (None, 0))(self.flat, x)
        return z.detach(), jacobian.detach()  # (R, K', P)

    def bend(self, X: Any, slope: Tensor) -> Array:
        """Second derivative of the logits, weighted by ``slope``."""
        x, flat = self._inputs(X), self.flat.clone().requires_grad_()
        total = (self._forward(flat, x) * slope).sum()
        first = torch.autograd.grad(total, flat, create_graph=True)[0]
        if not first.requires_grad:  # the logits are linear
            return np.zeros_like(self.penalty)
        found = []
        for value in first:
            row = torch.autograd.grad(value, flat, retain_graph=True, allow_unused=True)[0]
            found.append(torch.zeros_like(flat) if row is None else row)
        return torch.stack(found).numpy()

    def _inputs(self, X: Any) -> Tensor:
        x = torch.as_tensor(X).detach().cpu()
        x = x.double() / 255 if x.dtype == torch.uint8 else x.double()
        return x if self.before is None else self.before(x)

    def _forward(self, flat: Tensor, x: Tensor) -> Tensor:
        parts = flat.split([shape.numel() for shape in self.shapes.values()])
        named = zip(self.shapes.items(), parts, strict=True)
        weights = {name: part.reshape(shape) for (name, shape), part in named}
        z: Tensor = torch.func.functional_call(self.module, weights, (x,))
        return z[:, 0] if z.dim() == 2 and z.shape[1] == 1 else z


def _double(module: nn.Module) -> nn.Module:
    import copy

    return copy.deepcopy(module).cpu().double().eval()
