"""EM around any classifier: the engine does the E-step, and a weighted fit is the M-step."""

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, get_tags, indexable
from sklearn.utils.validation import validate_data

from llpkit._validation import number, one_of, whole
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.estimators._additive_start import additive_start, is_table
from llpkit.estimators._m_step import WeightedFits, class_scores, climbs, may_interpolate
from llpkit.estimators.base import (
    Array,
    BaseLLP,
    choose,
    solve,
    some_bags,
)
from llpkit.estimators.logistic import Scale, calibrate
from llpkit.likelihood.checks import Approximation
from llpkit.progress import Task, steps_to, task
from llpkit.tables.frames import as_pandas, is_frame

_WARMING = 1.5
"""Factor on the inverse temperature after every annealed E-step."""
_TINY = 1e-12
"""Least distance of probabilities from zero and one, if they are not rescaled."""
_USUAL = 8
"""Iterations that a run is expected to take before its gains show it."""


class LLPClassifier(BaseLLP):
    r"""Any classifier that takes ``sample_weight``, fitted to counts by EM.

    The E-step computes the posterior :math:`\varphi_i` of every label given its bag's count; the
    M-step fits the classifier with every row once per class, weighted by that class's posterior.
    EM stops when two iterations have raised the mean log-likelihood of the bags by less than
    ``tol``, and the iteration with the highest is kept. With a linear model of probabilities, every
    M-step raises the penalised likelihood; there EM stops when two iterations have changed it by
    less than ``tol``, and the last is kept: with logistic regression, this is the optimum of
    :class:`LLPLogisticRegression`.

    A classifier that can memorise its training rows repeats in every E-step what it learned in the
    last M-step, so that EM freezes on its first guess. For such a classifier the E-step
    takes the predictions of fits that did not see the bag (``out_of_fold``), scaled and shifted so
    that the counts are most likely (:math:`a z + b`, two numbers). The scale also turns the
    decision values of classifiers without probabilities (``SVC``, ``LinearSVC``) into logits.

    A pipeline is refitted in every M-step, with the weights for its last step. Steps that need no
    labels are cheaper in front: ``make_pipeline(StandardScaler(), LLPClassifier(...))``.

    Args:
        estimator: The classifier; by default ``HistGradientBoostingClassifier(
            early_stopping=False)``. Leave early stopping off: copies of a row would be on both
            sides of its split.
        start: Posteriors of the first M-step: those of an additive model of the columns of ``X``,
            fitted to the likelihood (``"additive"``), or the bags' proportions
            (``"proportion"``, also if ``X`` has no columns).
        n_init: Runs of EM; all but the first start at random, and the one with the highest
            likelihood is kept.
        max_iter: Most iterations of a run.
        tol: Stop when two iterations raise the mean log-likelihood per bag by less; ``None`` is
            1e-4 for linear models of probabilities, whose iterations are cheap and not random, and
            5e-3 for all others.
        annealing: Inverse temperature of the first E-step; it rises by half every iteration, to
            one. Below one the first posteriors are softer.
        out_of_fold: ``"auto"`` is true for all but linear models and naive Bayes, if there are
            at least two bags per fold.
        n_folds: Number of folds for that; bags stay whole.
        approximation: For many classes in large bags. ``"auto"`` is the exact likelihood where that
            is cheap, else ``"saddlepoint"``; ``None`` is always exact. See
            :func:`llpkit.likelihood.log_prob`.
        random_state: For folds, restarts and random states that the classifier leaves as None.

    Attributes:
        estimator_: The classifier, fitted.
        log_likelihoods_: Mean log-likelihood per bag in each iteration of the run that is kept.
        n_iter_: Number of those iterations.
        converged_: Whether EM stopped by ``tol``.
        out_of_fold_: Whether ``log_likelihoods_`` come from fits that had not seen the bag.
        classes_: The labels.
        approximation_: The approximation in use, ``None`` if exact.

    Reference: Baručić and Kybic, *Fast Learning from Label Proportions with Small Bags*, ICIP 2022.

    >>> from sklearn.naive_bayes import GaussianNB
    >>> X = np.array([[0.0], [0.2], [3.0], [0.1], [3.1], [2.9]])
    >>> groups, y = ["a", "a", "a", "b", "b", "b"], [1, 1, 1, 2, 2, 2]
    >>> LLPClassifier(GaussianNB()).fit(X, y, groups).predict(X)
    array([0, 0, 1, 0, 1, 1])
    """

    estimator_: Any
    log_likelihoods_: Array

    def __init__(
        self,
        estimator: Any = None,
        *,
        start: Literal["additive", "proportion"] = "additive",
        n_init: int = 1,
        max_iter: int = 100,
        tol: float | None = None,
        annealing: float = 1.0,
        out_of_fold: bool | Literal["auto"] = "auto",
        n_folds: int = 3,
        approximation: Approximation = "auto",
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.start = start
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.annealing = annealing
        self.out_of_fold = out_of_fold
        self.n_folds = n_folds
        self.approximation = approximation
        self.random_state = random_state

    def _fit_bags(self, X: Any, bags: Bags) -> None:
        one_of("start", self.start, ("additive", "proportion"))
        if not isinstance(self.out_of_fold, bool):
            one_of("out_of_fold", self.out_of_fold, ("auto",))
        whole("n_init", self.n_init, 1)
        whole("max_iter", self.max_iter, 1)
        whole("n_folds", self.n_folds, 2)
        if self.tol is not None:
            number("tol", self.tol, above=0, infinite=True)
        number("annealing", self.annealing, above=0, most=1)
        self.approximation_ = choose(self.approximation, bags)
        random = check_random_state(self.random_state)
        base, classes = self._base(), len(self.classes_)
        shape = (bags.num_rows,) if classes == 2 else (bags.num_rows, classes)
        proportion = solve(np.zeros(shape), bags, self.approximation_)[1]
        known = bool(((proportion == 0) | (proportion == 1)).all())
        if known and hasattr(base, "predict_proba"):  # labels, not counts: an ordinary fit
            model = WeightedFits(base, X, classes, None, random).fit(proportion)
            self._keep(_Run([], proportion, model, None, converged=True), _TINY)
            self.out_of_fold_ = False
            return

        wanted = self.out_of_fold
        if wanted == "auto":  # with fewer bags, too few would remain for fitting
            wanted = may_interpolate(base) and len(bags) >= 2 * self.n_folds
        folds = None
        if wanted and len(bags) > 1:
            folds = fold_of_rows(bags, min(self.n_folds, len(bags)), random)
        self.out_of_fold_ = folds is not None
        scaled = folds is not None or not hasattr(base, "predict_proba")
        # Trees give zeros and ones, whose logits are infinite: Laplace's rule bounds them.
        floor = 1 / (bags.num_rows + classes) if scaled else _TINY
        runs = []
        for i in range(self.n_init):
            if i:
                first = solve(random.normal(size=shape), bags, self.approximation_)[1]
            elif self.start == "additive" and is_table(X):
                first = additive_start(X, bags, self.approximation_, random)
            else:
                first = proportion
            fits = WeightedFits(base, X, classes, folds, random)
            with task(f"EM from start {i + 1} of {self.n_init}" if self.n_init > 1 else "EM") as em:
                runs.append(self._run(fits, bags, first, floor, scaled, random, em))
        best = max(runs, key=lambda run: run.log_likelihood)
        if best.model is None:  # the fits were out of fold: fit once more, to all rows
            best.model = fits.fit(best.phi)
        self._keep(best, floor)
        if not best.converged:
            warnings.warn(
                f"EM did not converge in {self.max_iter} iterations; the last log-likelihoods "
                f"per bag were {', '.join(f'{x:.4f}' for x in best.history[-3:])} and tol = "
                f"{best.tol:g}; raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _run(
        self,
        fits: WeightedFits,
        bags: Bags,
        phi: Array,
        floor: float,
        scaled: bool,
        random: np.random.RandomState,
        em: Task,
    ) -> "_Run":
        """EM from these posteriors."""
        few = some_bags(bags, random)
        # The scale has few parameters, so a sample of the bags is enough for it.
        judge = Bags(few.offsets, few.evidence)
        exact = not scaled and climbs(fits.template)
        tol = self.tol if self.tol is not None else 1e-4 if exact else 5e-3
        best = _Run([], phi, None, None, tol=tol)
        history = best.history
        cold, begin = float(self.annealing), 0
        gains: list[float] = []
        for _ in range(self.max_iter):
            score, model = fits.scores(phi, floor)  # (N,) or (N, K)
            scale = (
                calibrate(score[few.rows.numpy()], judge, self.approximation_) if scaled else None
            )
            z = score if scale is None else scale(score)
            log_p, phi = solve(z, bags, self.approximation_)
            # The likelihood is that of the model just fitted; phi is for the next M-step.
            history.append(float(log_p.mean()))
            if exact or history[-1] == max(history):
                best = _Run(history, phi, model, scale, history[-1], tol)
            usual = max(2, _USUAL - len(history))
            left = steps_to(gains, tol) if len(gains) > 1 else usual
            em.step(f"log-likelihood {history[-1]:.4f}", usual if left is None else left + 1)
            # Annealed steps do not count towards convergence: their posteriors are softened.
            if cold < 1:
                phi = solve(cold * z, bags, self.approximation_)[1]
                cold, begin = min(1.0, _WARMING * cold), len(history)
                continue
            settled = history[begin:]
            if len(settled) < 3:
                continue
            # A climb may be slow, so both of the last changes count. Other likelihoods are noisy:
            # there only a new best counts.
            if exact:
                gain = float(np.abs(np.diff(settled[-3:])).max())
            else:
                gain = max(settled[-2:]) - max(settled[:-2])
            gains.append(gain)
            if gain < tol:
                best.converged = True
                break
        return best

    def _keep(self, run: "_Run", floor: float) -> None:
        self.estimator_ = run.model
        scale = run.scale or Scale(1.0, np.zeros(()))
        self.slope_, self.shift_ = scale.slope, scale.shift
        self.floor_ = floor
        self.log_likelihoods_ = np.array(run.history)
        self.n_iter_ = max(1, len(run.history))
        self.converged_ = run.converged

    def _logits(self, X: Any) -> Array:
        score = class_scores(self.estimator_, X, len(self.classes_), self.floor_)
        return Scale(self.slope_, self.shift_)(score)

    def _base(self) -> Any:
        if self.estimator is not None:
            return self.estimator
        from sklearn.ensemble import HistGradientBoostingClassifier

        # A weighted fit has copies of every row, so held-out rows would not be unseen.
        return HistGradientBoostingClassifier(early_stopping=False)

    def _checked(self, X: Any, *, reset: bool) -> Any:
        # The classifier itself checks X; here only rows are selected.
        if is_frame(X):
            X = as_pandas(X)
        if not hasattr(X, "shape"):
            try:
                X = np.asarray(X)
            except ValueError as error:  # rows of different lengths
                raise LLPError(f"X cannot be made an array of shape (N, D): {error}") from error
        (X,) = indexable(X)
        if X.ndim == 1 and X.dtype.kind in "biuf":
            raise LLPError(f"X has shape {X.shape}. Reshape your data: one row per instance")
        return validate_data(self, X, reset=reset, skip_check_array=True)

    def __sklearn_tags__(self) -> Any:
        tags, own = super().__sklearn_tags__(), get_tags(self._base())
        tags.input_tags.sparse = own.input_tags.sparse
        tags.input_tags.allow_nan = own.input_tags.allow_nan
        tags.input_tags.string = own.input_tags.string
        return tags


@dataclass
class _Run:
    """A run of EM: its log-likelihoods and the iteration that is kept."""

    history: list[float]
    phi: Array
    model: Any
    scale: Scale | None
    log_likelihood: float = -np.inf
    tol: float = 0.0
    converged: bool = False


def fold_of_rows(bags: Bags, number: int, random: np.random.RandomState) -> Array:
    """The fold of every row, ``(N,)``: whole bags at random, equally many per fold."""
    of_bag = random.permutation(len(bags)) % number
    folds = np.empty(bags.num_rows, np.intp)
    folds[bags.rows.numpy()] = of_bag[bags.bag_index.numpy()]
    return folds
