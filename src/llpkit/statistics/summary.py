"""Standard errors, confidence intervals and predictions with intervals, as a table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from scipy import stats

from llpkit._arrays import Array
from llpkit._text import html_table
from llpkit._validation import option, share
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.statistics._text import as_records, frame, interval_heads, text_table
from llpkit.statistics.covariance import Estimated, estimated
from llpkit.statistics.identifiability import problems_of
from llpkit.statistics.models import Adapter, LinearAdapter, adapt, last_step, steps_of, transformed
from llpkit.statistics.prediction import Prediction, predicted, quantile

LOG_SD = "log sd of bags"
_PART = 1e-3
"""Smaller components of a direction of length one are ignored."""


@dataclass(frozen=True)
class Summary:
    """Estimates with standard errors, from :func:`summary`; prints as a table."""

    names: list[str]
    estimate: Array
    """``(P,)``, in logits; for K classes, differences from the reference class."""
    covariance: Array
    """``(P, P)``."""
    kind: str
    """``"observed"`` or ``"sandwich"``."""
    level: float
    log_likelihood: float
    num_bags: int
    num_instances: int
    remarks: list[str]
    """Notes on the fit and its bags; :attr:`notes` adds what is undetermined."""
    title: str
    derivatives: Estimated = field(repr=False)
    """Scores of the bags and the observed information."""
    adapter: Adapter | None = field(repr=False)
    """The model; ``None`` for combinations of its parameters."""
    steps: Sequence[Any] = field(repr=False, default=())
    """The steps of a pipeline before the model."""
    flat: Array = field(repr=False, default_factory=lambda: np.empty((0, 0)))
    """``(P, F)``: directions that the data do not determine."""

    @property
    def notes(self) -> list[str]:
        """What to know about the estimates, as printed below the table."""
        return [*self.remarks, *_undetermined(self.names, self.flat)]

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
        if self.adapter is None:
            raise LLPError(
                "combinations of parameters have no sandwich covariance; call sandwich() before "
                "turned()"
            )
        covariance = self.derivatives.covariance("sandwich")
        return replace(self, kind="sandwich", covariance=covariance)

    def turned(self, turn: Any, names: Sequence[str]) -> "Summary":
        """The summary of linear combinations of the parameters, for example in other units.

        Args:
            turn: ``(Q, P)``, one row per combination.
            names: The names of the combinations, ``(Q,)``.
        """
        turn = np.asarray(turn, np.float64)
        # Combinations may cancel an undetermined direction, as contrasts of one-hot columns do.
        size = np.abs(turn).max(1, keepdims=True)
        axes, lengths, _ = np.linalg.svd(
            turn / np.where(size > 0, size, 1.0) @ self.derivatives.flat, full_matrices=False
        )
        return replace(
            self,
            names=list(names),
            estimate=turn @ self.estimate,
            covariance=self.derivatives.covariance(self.kind, turn),
            adapter=None,
            flat=axes[:, lengths > _PART],
        )

    def conf_int(self, level: float | None = None) -> Array:
        """Confidence intervals ``(P, 2)``."""
        half = quantile(_level(level, self.level)) * self.standard_error
        return np.stack([self.estimate - half, self.estimate + half], 1)

    def odds_ratios(self, level: float | None = None) -> Array:
        """Exponentiated estimates with their intervals, ``(P, 3)``: odds ratio, low, high.

        An odds ratio of 2 means that the odds double when the feature increases by one.
        """
        ends = self.conf_int(level)
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(np.column_stack([self.estimate, ends])))

    def predict(self, X: Any, level: float | None = None) -> Prediction:
        """Probabilities of instances with confidence intervals.

        The intervals reflect the uncertainty of the parameters. They are computed on the scale of
        logits, so they stay between 0 and 1. With a random effect, the probabilities are those in a
        new bag.

        Args:
            X: Features ``(N, D)``.
            level: Confidence level; the level of the summary by default.
        """
        if self.adapter is None:
            raise LLPError(
                "combinations of parameters cannot predict; call predict() before turned()"
            )
        X = transformed(self.steps, X)
        return predicted(self.adapter, X, self.derivatives, self.kind, _level(level, self.level))

    def records(self) -> list[dict[str, Any]]:
        """One mapping per parameter."""
        ratios = self.odds_ratios()
        columns = {
            "name": self.names,
            "estimate": self.estimate.tolist(),
            "standard_error": self.standard_error.tolist(),
            "z": self.z.tolist(),
            "p_value": self.p_value.tolist(),
            "low": self.conf_int()[:, 0].tolist(),
            "high": self.conf_int()[:, 1].tolist(),
            "odds_ratio": ratios[:, 0].tolist(),
            "odds_ratio_low": ratios[:, 1].tolist(),
            "odds_ratio_high": ratios[:, 2].tolist(),
        }
        return as_records(columns)

    def to_frame(self) -> Any:
        """A pandas table with one row per parameter."""
        return frame(self.records()).set_index("name")

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
        heads = ["", "coef", "std err", "z", "P>|z|", *interval_heads(self.level), "odds ratio"]
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
            if name == LOG_SD:  # shown as a standard deviation, which has no odds
                cells = [f"{math.exp(b):.4f}", f"{math.exp(b) * se:.3f}", "", ""]
                rows.append(
                    ["sd of bags", *cells, f"{math.exp(low):.3f}", f"{math.exp(high):.3f}", ""]
                )
                continue
            if not math.isfinite(se):
                rows.append([name, _short(b, 4), "undetermined", "", "", "", "", ""])
                continue
            ratio = math.exp(b) if abs(b) < 50 else math.inf
            cells = [_short(b, 4), _short(se), f"{z:.2f}", f"{p:.3f}", _short(low), _short(high)]
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
    :math:`X_b^\top [\mathrm{Cov}(h) - \mathrm{Cov}(h \mid y_b)] X_b`: the covariance of the labels
    before the count is known, minus their covariance given the count. For bags of one it is the
    information of logistic regression.

    A penalised fit (finite ``C``) is biased towards zero, which no standard error shows: its
    intervals are those of the posterior distribution under the Gaussian prior that the penalty
    implies. Fit with ``C=math.inf`` for ordinary confidence intervals.

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
        reference: The class that the others are compared with; the first by default.
        multiplicity: How many instances every row represents.

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
    derivatives = estimated(adapter, inner, rows)
    notes = _notes(adapter, derivatives, model)
    notes += problem_notes(inner, rows.bags, multiplicity)
    return Summary(
        names=list(adapter.names),
        estimate=adapter.estimate,
        covariance=derivatives.covariance(covariance),
        kind=covariance,
        level=level,
        log_likelihood=derivatives.log_likelihood,
        num_bags=len(rows.bags),
        num_instances=int(rows.weight.sum()),
        remarks=notes,
        derivatives=derivatives,
        flat=derivatives.flat,
        title=type(last_step(model)).__name__,
        adapter=adapter,
        steps=steps_of(model)[:-1],
    )


def _notes(adapter: Adapter, derivatives: Estimated, model: Any) -> list[str]:
    notes = []
    if len(adapter.classes) > 2 and isinstance(adapter, LinearAdapter):
        notes.append(
            f"Coefficients are differences from class {adapter.classes[adapter.reference]}."
        )
    if math.isfinite(adapter.C):
        notes.append(
            f"Penalised (C = {adapter.C:g}): estimates are shrunk towards zero, and intervals "
            "assume the Gaussian prior that the penalty implies. "
            f"{option('C', math.inf)} is plain maximum likelihood. AIC and BIC ignore the penalty."
        )
    last = last_step(model)
    if hasattr(last, "effect_sd_"):
        notes.append(effect_note(last))
    # At the maximum, the gradient of the penalised log-likelihood is zero; its length in the metric
    # of the covariance is the distance to the maximum in standard errors.
    gradient = derivatives.scores.sum(0) - adapter.penalty @ adapter.estimate
    distance = math.sqrt(max(0.0, float(gradient @ derivatives.inverse @ gradient)))
    if derivatives.log_likelihood > -0.01 * len(derivatives.scores) and math.isinf(adapter.C):
        notes.append(
            "The columns explain all counts, so the likelihood has no maximum and these numbers "
            "are meaningless. Give a finite C."
        )
    elif distance > 0.5:
        notes.append(
            f"The estimate is {distance:.1f} standard errors from the maximum of the likelihood of "
            "these bags: the model was fitted to others, or the fit did not converge (scale the "
            "columns)."
        )
    return notes


def effect_note(model: Any) -> str:
    """The random effect of a mixed logistic regression, in words."""
    if model.effect_sd_ == 0:
        return (
            "No random effect of the bags was found: its standard deviation is estimated as zero."
        )
    return (
        f"Bags differ by a random effect with standard deviation {model.effect_sd_:.3g}; "
        f"likelihood ratio {model.effect_lr_:.2f}, p = {model.effect_p_value_:.2g}."
    )


def _undetermined(names: Sequence[str], flat: Array) -> list[str]:
    """The largest terms of the first directions ``(P, F)`` that the data do not determine."""
    notes = []
    for direction in flat.T[:3]:
        main = np.argsort(-np.abs(direction))[:4]
        terms = [names[i] for i in main if abs(direction[i]) > _PART]
        what = terms[0] if len(terms) == 1 else f"a combination of: {', '.join(terms)}"
        notes.append(f"The data do not determine {what}.")
    return notes


def problem_notes(X: Any, bags: Bags, multiplicity: Any = None) -> list[str]:
    """What the counts do not determine, whatever the model; standard errors do not show it."""
    texts = map(str, problems_of(X, bags, multiplicity))
    return [f"{text[0].upper()}{text[1:]}." for text in texts]


def _short(value: float, digits: int = 3) -> str:
    """A number with these decimals, or in scientific notation if they would be mostly zeros."""
    small = 0 < abs(value) < 10.0**-digits
    return f"{value:.1e}" if small else f"{value:.{digits}f}"


def _level(level: float | None, default: float) -> float:
    return default if level is None else share("level", level)
