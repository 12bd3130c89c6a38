"""EM around any classifier: the engine does the E-step, and a weighted fit is the M-step."""

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, get_tags, indexable
from sklearn.utils.validation import validate_data

from llpkit._arrays import Array
from llpkit._validation import flag_or_auto, number, one_of, whole
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.estimators._additive_start import additive_start, is_table
from llpkit.estimators._m_step import WeightedFits, class_scores, em_is_monotone, may_interpolate
from llpkit.estimators.base import BaseLLP, choose, solve, some_bags
from llpkit.estimators.logistic import Scale, calibrate
from llpkit.likelihood.checks import Approximation
from llpkit.progress import TaskProgress, steps_to, task
from llpkit.tables.frames import as_pandas, is_frame

NOISY_TOL = 5e-3
"""``tol`` for classifiers whose likelihood is noisy."""
_IDENTITY = Scale(1.0, np.zeros(()))
_ANNEALING_FACTOR = 1.5
"""By how much the inverse temperature rises after every annealed E-step."""
_TINY = 1e-12
"""Minimum distance of probabilities from zero and one, if they are not rescaled."""
_USUAL = 8
"""Iterations that a run is expected to take, until its gains allow a better guess."""


class LLPClassifier(BaseLLP):
    r"""Any classifier that takes ``sample_weight``, fitted to counts by EM.

    The E-step computes the posterior :math:`\varphi_i` of every label given its bag's count; the
    M-step fits the classifier with every row once per class, weighted by that class's posterior. EM
    stops when two iterations have raised the mean log-likelihood of the bags by less than ``tol``,
    and the iteration with the highest likelihood is kept. With a linear model of probabilities,
    every M-step raises the penalised likelihood; EM then stops when two iterations have changed the
    log-likelihood by less than ``tol``, and the last is kept: with logistic regression, this is the
    optimum of :class:`LLPLogisticRegression`.

    A classifier that can memorise its training rows repeats in every E-step what it learned in the
    last M-step, so that EM freezes at its first guess. For such a classifier the E-step uses
    out-of-fold predictions, scaled and shifted so that the counts are most likely
    (:math:`a z + b`, two numbers). The scale also turns the decision values of classifiers without
    probabilities (``SVC``, ``LinearSVC``) into logits.

    A pipeline is refitted in every M-step, with the weights for its last step. Steps that need no
    labels are cheaper in front: ``make_pipeline(StandardScaler(), LLPClassifier(...))``.

    Args:
        estimator: The classifier; by default ``HistGradientBoostingClassifier(
            early_stopping=False)``. Leave early stopping off: its validation rows would have copies
            among the training rows.
        start: Posteriors of the first M-step: those of an additive model of the columns of ``X``,
            fitted to the likelihood (``"additive"``), or the bags' proportions
            (``"proportion"``, also if ``X`` has no columns).
        n_init: Runs of EM; all but the first start at random, and the run with the highest
            likelihood is kept.
        max_iter: Maximum number of iterations per run.
        tol: Stop when two iterations raise the mean log-likelihood per bag by less than this.
            ``None`` is 1e-4 for linear models of probabilities, whose iterations are cheap and not
            random, and 5e-3 for all others.
        annealing: Inverse temperature of the first E-step; it rises by half every iteration, up to
            one. Below one, the first posteriors are softer.
        out_of_fold: Whether the E-step uses out-of-fold predictions. ``"auto"`` is true for all but
            linear models and naive Bayes, if there are at least two bags per fold.
        n_folds: Number of folds; bags stay whole.
        approximation: For many classes in large bags. ``"auto"`` is the exact likelihood where that
            is cheap, else ``"saddlepoint"``; ``None`` is always exact. See
            :func:`llpkit.likelihood.log_prob`.
        random_state: Seed for folds, restarts and random states of the classifier that are None.

    Attributes:
        estimator_: The classifier, fitted.
        log_likelihoods_: Mean log-likelihood per bag in each iteration of the run that is kept.
        n_iter_: Number of these iterations.
        converged_: Whether ``tol`` was reached.
        out_of_fold_: Whether ``log_likelihoods_`` are out of fold.
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
        self._check_parameters()
        self.approximation_ = choose(self.approximation, bags)
        random = check_random_state(self.random_state)
        base, classes = self._base(), len(self.classes_)
        shape = (bags.num_rows,) if classes == 2 else (bags.num_rows, classes)
        proportion = solve(np.zeros(shape), bags, self.approximation_)[1]
        known = bool(((proportion == 0) | (proportion == 1)).all())
        if known and hasattr(base, "predict_proba"):  # labels, not counts: an ordinary fit
            model = WeightedFits(base, X, classes, None, random).fit(proportion)
            self._keep(_Run([], proportion, model, converged=True), _TINY)
            self.out_of_fold_ = False
            return

        folds = self._folds(base, bags, random)
        self.out_of_fold_ = folds is not None
        scaled = self.out_of_fold_ or not hasattr(base, "predict_proba")
        # Trees give zeros and ones, whose logits are infinite: Laplace's rule bounds them.
        floor = 1 / (bags.num_rows + classes) if scaled else _TINY
        runs = []
        for i in range(self.n_init):
            if i:
                start = solve(random.normal(size=shape), bags, self.approximation_)[1]
            elif self.start == "additive" and is_table(X):
                start = additive_start(X, bags, self.approximation_, random)
            else:
                start = proportion
            fits = WeightedFits(base, X, classes, folds, random)
            with task(f"EM from start {i + 1} of {self.n_init}" if self.n_init > 1 else "EM") as em:
                runs.append(self._run(fits, bags, start, floor, scaled, random, em))
        best = max(runs, key=lambda run: run.log_likelihood)
        if best.model is None:  # the fits were out of fold: fit once more, to all rows
            best.model = fits.fit(best.phi)
        self._keep(best, floor)
        if not best.converged:
            warn_not_converged(self.max_iter, best.history, best.tol, stacklevel=4)

    def _check_parameters(self) -> None:
        one_of("start", self.start, ("additive", "proportion"))
        flag_or_auto("out_of_fold", self.out_of_fold)
        whole("n_init", self.n_init, 1)
        whole("max_iter", self.max_iter, 1)
        whole("n_folds", self.n_folds, 2)
        if self.tol is not None:
            number("tol", self.tol, above=0, infinite=True)
        number("annealing", self.annealing, above=0, most=1)

    def _folds(self, base: Any, bags: Bags, random: np.random.RandomState) -> Array | None:
        """The fold of every row, ``(N,)``, if the E-step needs out-of-fold predictions."""
        wanted = self.out_of_fold
        if wanted == "auto":  # with fewer bags, too few would remain for fitting
            wanted = may_interpolate(base) and len(bags) >= 2 * self.n_folds
        if not wanted or len(bags) == 1:
            return None
        return fold_of_rows(bags, min(self.n_folds, len(bags)), random)

    def _run(
        self,
        fits: WeightedFits,
        bags: Bags,
        phi: Array,
        floor: float,
        scaled: bool,
        random: np.random.RandomState,
        em: TaskProgress,
    ) -> "_Run":
        """EM from these posteriors."""
        # The scale has few parameters, so a sample of the bags is enough for it.
        sample = some_bags(bags, random)
        sample_rows, sample = sample.rows.numpy(), Bags(sample.offsets, sample.evidence)
        monotone = not scaled and em_is_monotone(fits.template)
        tol = self.tol if self.tol is not None else 1e-4 if monotone else NOISY_TOL
        best = _Run([], phi, tol=tol)
        history, scale = best.history, best.scale
        beta, annealed = float(self.annealing), 0  # inverse temperature, annealed iterations
        gains: list[float] = []
        for _ in range(self.max_iter):
            score, model = fits.scores(phi, floor)  # the M-step; (N,) or (N, K)
            if scaled:
                scale = calibrate(score[sample_rows], sample, self.approximation_)
            z = scale(score)
            log_p, phi = solve(z, bags, self.approximation_)  # the E-step
            history.append(float(log_p.mean()))
            if monotone or history[-1] == max(history):
                best = _Run(history, phi, model, scale, history[-1], tol)
            if beta < 1:
                phi = solve(beta * z, bags, self.approximation_)[1]
                beta, annealed = min(1.0, _ANNEALING_FACTOR * beta), len(history)
            elif len(history) >= annealed + 3:
                gains.append(last_gain(history[annealed:], monotone))
            em.step(f"log-likelihood {history[-1]:.4f}", _steps_left(len(history), gains, tol))
            if gains and gains[-1] < tol:
                best.converged = True
                break
        return best

    def _keep(self, run: "_Run", floor: float) -> None:
        self.estimator_ = run.model
        self.slope_, self.shift_ = run.scale.slope, run.scale.shift
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
        return HistGradientBoostingClassifier(early_stopping=False)

    def _checked(self, X: Any, *, reset: bool) -> Any:
        # The classifier itself checks the values of X.
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
    model: Any = None
    scale: Scale = _IDENTITY
    log_likelihood: float = -np.inf
    tol: float = 0.0
    converged: bool = False


def last_gain(history: list[float], monotone: bool = False) -> float:
    """By how much the last two iterations raised the log-likelihood."""
    if monotone:  # progress may be slow but steady, so both changes have to be small
        return float(np.abs(np.diff(history[-3:])).max())
    return max(history[-2:]) - max(history[:-2])  # noisy: only a new best counts


def warn_not_converged(max_iter: int, history: list[float], tol: float, *, stacklevel: int) -> None:
    """Warn that the last gain was still above the tolerance."""
    last = ", ".join(f"{x:.4f}" for x in history[-3:])
    warnings.warn(
        f"EM did not converge in {max_iter} iterations; the last log-likelihoods per bag were "
        f"{last} and tol = {tol:g}; raise max_iter or tol",
        ConvergenceWarning,
        stacklevel=stacklevel,
    )


def _steps_left(done: int, gains: list[float], tol: float) -> float:
    """Expected iterations until convergence, for the progress."""
    left = steps_to(gains, tol)
    return max(2, _USUAL - done) if left is None else left


def fold_of_rows(bags: Bags, number: int, random: np.random.RandomState) -> Array:
    """The fold of every row, ``(N,)``: whole bags at random, equally many per fold."""
    of_bag = random.permutation(len(bags)) % number
    folds = np.empty(bags.num_rows, np.intp)
    folds[bags.rows.numpy()] = of_bag[bags.bag_index.numpy()]
    return folds
