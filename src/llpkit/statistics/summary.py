"""Standard errors, confidence intervals and predictions with intervals, as a table."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from llpkit._validation import share
from llpkit.statistics._text import html_table, text_table
from llpkit.statistics.covariance import Estimated, estimated
from llpkit.statistics.effect import effect_mean
from llpkit.statistics.models import Adapter, adapt
from llpkit.statistics.rows import two_columns

Array = NDArray[Any]

LOG_SD = "log sd of bags"


@dataclass(frozen=True)
class Prediction:
    """Probabilities with confidence intervals."""

    probability: Array
    """``(N, K)``."""
    low: Array
    """``(N, K)``."""
    high: Array
    """``(N, K)``."""
    classes: Array

    def to_frame(self) -> Any:
        """A pandas table with one row per instance."""
        import pandas as pd  # type: ignore[import-untyped]

        parts = {"probability": self.probability, "low": self.low, "high": self.high}
        wanted = [1] if len(self.classes) == 2 else range(len(self.classes))
        tail = {k: "" if len(self.classes) == 2 else f"_{self.classes[k]}" for k in wanted}
        return pd.DataFrame(
            {f"{name}{tail[k]}": values[:, k] for k in wanted for name, values in parts.items()}
        )


@dataclass(frozen=True)
class Summary:
    """Estimates with standard errors; printed, a table.

    Made by :func:`summary`.
    """

    names: list[str]
    estimate: Array
    """``(P,)``: logits; for K classes, differences from the reference class."""
    covariance: Array
    """``(P, P)``."""
    kind: str
    """``"observed"`` or ``"sandwich"``."""
    level: float
    log_likelihood: float
    num_bags: int
    num_instances: int
    notes: list[str]
    title: str
    derivatives: Estimated = field(repr=False)
    """Scores of the bags and the observed information."""
    adapter: Adapter = field(repr=False)
    steps: Any = field(repr=False, default=None)

    @property
    def standard_error(self) -> Array:
        """``(P,)``; infinite if the data do not determine the parameter."""
        return np.asarray(np.sqrt(np.diag(self.covariance)))

    @property
    def z(self) -> Array:
        """Estimate over standard error, ``(P,)``."""
        return np.asarray(self.estimate / self.standard_error)

    @property
    def p_value(self) -> Array:
        """Two-sided, for the hypothesis that the parameter is zero, ``(P,)``."""
        return np.asarray(2 * stats.norm.sf(np.abs(self.z)))

    @property
    def aic(self) -> float:
        """Akaike's criterion, ``2 P - 2 log L``; lower is better."""
        return 2 * len(self.estimate) - 2 * self.log_likelihood

    @property
    def bic(self) -> float:
        """Schwarz's criterion, with the number of bags as the number of observations."""
        return math.log(self.num_bags) * len(self.estimate) - 2 * self.log_likelihood

    def sandwich(self) -> "Summary":
        """The same summary with the sandwich covariance."""
        if self.kind == "sandwich":
            return self
        return replace(self, kind="sandwich", covariance=self.derivatives.sandwich())

    def conf_int(self, level: float | None = None) -> Array:
        """Confidence intervals ``(P, 2)``."""
        half = _quantile(self.level if level is None else level) * self.standard_error
        return np.stack([self.estimate - half, self.estimate + half], 1)

    def odds_ratios(self, level: float | None = None) -> Array:
        """Exponentiated estimates with their intervals, ``(P, 3)``.

        An odds ratio of 2 means that the odds double when the feature grows by one.
        """
        ends = self.conf_int(level)
        with np.errstate(over="ignore"):
            return np.exp(np.column_stack([self.estimate, ends]))

    def predict(self, X: Any, level: float | None = None) -> Prediction:
        """Probabilities of instances with confidence intervals.

        The interval is that of the probability, from the uncertainty of the parameters; it is
        computed on the scale of logits, so it stays between 0 and 1. With a random effect it is the
        probability in a new bag.

        Args:
            X: Features ``(N, D)``.
            level: Confidence level; by default that of the summary.
        """
        if self.steps is not None:
            X = self.steps.transform(X)
        z, jacobian = self.adapter.at(X)
        covariance = np.where(np.isinf(self.covariance), 0.0, self.covariance)
        p, slope = _log_odds(self.adapter, z, jacobian)
        centre = np.log(p) - np.log1p(-p)
        deviation = np.sqrt(np.einsum("nkp,pq,nkq->nk", slope, covariance, slope))
        half = _quantile(self.level if level is None else level) * deviation
        low, high = (1 / (1 + np.exp(-(centre + sign * half))) for sign in (-1, 1))
        return Prediction(p, low, high, self.adapter.classes)

    def to_frame(self) -> Any:
        """A pandas table with one row per parameter."""
        import pandas as pd

        ends = self.conf_int()
        return pd.DataFrame(
            {
                "estimate": self.estimate,
                "standard_error": self.standard_error,
                "z": self.z,
                "p_value": self.p_value,
                "low": ends[:, 0],
                "high": ends[:, 1],
                "odds_ratio": self.odds_ratios()[:, 0],
            },
            index=self.names,
        )

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("Bags", f"{self.num_bags:,}"),
            ("Instances", f"{self.num_instances:,}"),
            ("Log-likelihood", f"{self.log_likelihood:.2f}"),
            ("AIC", f"{self.aic:.1f}"),
            ("BIC", f"{self.bic:.1f}"),
            ("Covariance", self.kind),
        ]

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        tail = f"{(1 - self.level) / 2:.3g}", f"{(1 + self.level) / 2:.3g}"
        heads = ["", "coef", "std err", "z", "P>|z|", f"[{tail[0]}", f"{tail[1]}]", "odds ratio"]
        rows = []
        columns = zip(
            self.names,
            self.estimate,
            self.standard_error,
            self.z,
            self.p_value,
            self.conf_int(),
            strict=True,
        )
        for name, b, se, z, p, (low, high) in columns:
            if name == LOG_SD:  # shown as a deviation, which has no odds
                cells = [f"{math.exp(b):.4f}", f"{math.exp(b) * se:.3f}", "", ""]
                rows.append(
                    ["sd of bags", *cells, f"{math.exp(low):.3f}", f"{math.exp(high):.3f}", ""]
                )
                continue
            if not math.isfinite(se):
                rows.append([name, f"{b:.4f}", "undetermined", "", "", "", "", ""])
                continue
            ratio = math.exp(b) if abs(b) < 50 else math.inf
            cells = [f"{b:.4f}", f"{se:.3f}", f"{z:.2f}", f"{p:.3f}", f"{low:.3f}", f"{high:.3f}"]
            rows.append([name, *cells, f"{ratio:.3g}"])
        return heads, rows

    def __str__(self) -> str:
        return text_table(self.title, self._facts(), *self._cells(), self.notes)

    def _repr_html_(self) -> str:
        return html_table(self.title, self._facts(), *self._cells(), self.notes)


def summary(
    model: Any,
    X: Any,
    y: Any,
    groups: Any = None,
    *,
    covariance: Literal["observed", "sandwich"] = "observed",
    level: float = 0.95,
    reference: Any = None,
    multiplicity: Any = None,
) -> Summary:
    r"""Standard errors and confidence intervals of a model fitted to counts.

    The information of bag b about logits :math:`z = X \beta` is
    :math:`X_b^\top [\mathrm{Cov}(h) - \mathrm{Cov}(h \mid y_b)] X_b`: what the labels vary before
    the count is known, less what they still vary afterwards. For bags of one it is the information
    of logistic regression.

    A penalised fit (finite ``C``) is biased towards zero, and no standard error shows that: the
    intervals are then those of the Gaussian prior that the penalty stands for. Fit with
    ``C=math.inf`` for the usual meaning.

    Args:
        model: A fitted :class:`~llpkit.estimators.LLPLogisticRegression` or
            :class:`~llpkit.estimators.LLPMixedLogisticRegression`, a pipeline that ends in one, or
            a network (:class:`~llpkit.Fitted` or a module) with up to 2,000 parameters.
        X: The features that it was fitted to, ``(N, D)``.
        y: What is known about each row's bag, as for ``fit``; for a network, :class:`~llpkit.Bags`.
        groups: The bag of every row.
        covariance: ``"observed"`` inverts the observed information. ``"sandwich"`` remains valid if
            bags are independent but the model is wrong within them; it needs more bags.
        level: Confidence level.
        reference: The class with which the others are compared; the first by default.
        multiplicity: How many instances every row stands for.

    >>> from llpkit.estimators import LLPLogisticRegression
    >>> random = np.random.default_rng(0)
    >>> X, groups = random.normal(size=(1600, 2)), np.repeat(np.arange(200), 8)
    >>> labels = random.random(1600) < 1 / (1 + np.exp(-(X @ [1.0, -0.5])))
    >>> y = np.bincount(groups, labels).astype(int)[groups]
    >>> model = LLPLogisticRegression(C=np.inf).fit(X, y, groups)
    >>> print(summary(model, X, y, groups))
    =======================================================================
                             LLPLogisticRegression
    =======================================================================
    Bags                          200    Instances                   1,600
    Log-likelihood            -322.45    AIC                         650.9
    BIC                         660.8    Covariance               observed
    -----------------------------------------------------------------------
                    coef  std err      z  P>|z|  [0.025  0.975]  odds ratio
    -----------------------------------------------------------------------
    (intercept)  -0.0367    0.056  -0.65  0.515  -0.147   0.074       0.964
    x0            0.9182    0.161   5.69  0.000   0.602   1.234         2.5
    x1           -0.5666    0.172  -3.30  0.001  -0.904  -0.230       0.567
    =======================================================================
    """
    share("level", level)
    adapter, inner = adapt(model, X, reference)
    rows = adapter.rows(inner, y, groups, multiplicity)
    found = estimated(adapter, inner, rows, covariance)
    notes = _notes(adapter, found.flat, model)
    return Summary(
        names=list(adapter.names),
        estimate=adapter.estimate,
        covariance=found.covariance,
        kind=covariance,
        level=level,
        log_likelihood=found.log_likelihood,
        num_bags=len(rows.bags),
        num_instances=int(rows.weight.sum()),
        notes=notes,
        derivatives=found,
        title=type(model.steps[-1][1] if hasattr(model, "steps") else model).__name__,
        adapter=adapter,
        steps=model[:-1] if hasattr(model, "steps") else None,
    )


def _notes(adapter: Adapter, flat: Array, model: Any) -> list[str]:
    notes = []
    if len(adapter.classes) > 2 and hasattr(adapter, "others"):
        notes.append(
            f"Coefficients are differences from class {adapter.classes[adapter.reference]}."
        )
    C = getattr(adapter, "C", math.inf)
    if math.isfinite(C):
        notes.append(
            f"Penalised (C = {C:g}): estimates are shrunk towards zero, and intervals are those of "
            "the prior that the penalty stands for. C=math.inf is plain maximum likelihood."
        )
    if getattr(model, "effect_sd_", None) == 0:
        notes.append("The standard deviation of the random effect is estimated as zero.")
    for direction in flat.T[:3]:
        main = np.argsort(-np.abs(direction))[:4]
        terms = [adapter.names[i] for i in main if abs(direction[i]) > 1e-3]
        notes.append(f"The data do not determine a combination of: {', '.join(terms)}.")
    return notes


def _log_odds(adapter: Adapter, z: Any, jacobian: Any) -> tuple[Array, Array]:
    """Probabilities ``(N, K)``, and the derivative of their log-odds ``(N, K, P)``."""
    z2 = two_columns(z)
    j2 = torch.cat([torch.zeros_like(jacobian), jacobian], 1) if z.dim() == 1 else jacobian
    sd = adapter.sd
    if sd is None:
        p = z2.softmax(1)
        # d logit(p_k) / dz_j is 1 for j = k and -p_j / (1 - p_k) for the others.
        rest = -p[:, None, :] / (1 - p).clamp(min=1e-300)[:, :, None]
        eye = torch.eye(z2.shape[1], dtype=torch.bool)
        slope = torch.where(eye, 1.0, rest)  # (N, K, K)
        return p.numpy(), (slope @ j2).numpy()
    z2 = z2.detach().clone().requires_grad_()
    log_sd = torch.full((len(z2),), math.log(sd), dtype=torch.float64, requires_grad=True)
    p = effect_mean(z2, log_sd.exp()[:, None, None])
    parts = []
    for k in range(z2.shape[1]):
        odds = (p[:, k].log() - (-p[:, k]).log1p()).sum()
        by_z, by_sd = torch.autograd.grad(odds, (z2, log_sd), retain_graph=True)
        row = (by_z[:, :, None] * j2).sum(1)
        row[:, -1] += by_sd
        parts.append(row)
    return p.detach().numpy(), torch.stack(parts, 1).numpy()


def _quantile(level: float) -> float:
    return float(stats.norm.ppf((1 + share("level", level)) / 2))


