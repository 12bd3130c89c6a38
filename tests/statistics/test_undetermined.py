"""What the data do not determine is said, and never given a narrow interval."""

import math

import numpy as np
import pytest

from llpkit.errors import IdentifiabilityWarning, LLPError
from llpkit.estimators import LLPLogisticRegression, LLPMixedLogisticRegression
from llpkit.statistics import bounds, goodman, plan, shares, summary

GROUPS = np.repeat(np.arange(100), 8)


def drawn(seed=1):
    random = np.random.default_rng(seed)
    X = random.normal(size=(800, 2))
    labels = random.random(800) < 1 / (1 + np.exp(-(X @ [1.0, -0.5])))
    return X, np.bincount(GROUPS, labels).astype(int)[GROUPS]


@pytest.fixture(scope="module")
def collinear():
    X, y = drawn()
    wide = np.column_stack([X, X[:, 0] + X[:, 1]])
    model = LLPLogisticRegression(C=math.inf)
    return X, wide, y, model


def test_collinear_columns_leave_estimable_predictions_as_they_are(collinear):
    X, wide, y, model = collinear
    narrow = summary(model.fit(X, y, GROUPS), X, y, GROUPS)
    broad = summary(LLPLogisticRegression(C=math.inf).fit(wide, y, GROUPS), wide, y, GROUPS)
    few = X[:5]
    one = narrow.predict(few)
    two = broad.predict(np.column_stack([few, few[:, 0] + few[:, 1]]))
    np.testing.assert_allclose(two.low, one.low, atol=1e-3)
    np.testing.assert_allclose(two.high, one.high, atol=1e-3)
    outside = broad.predict([[1.0, 0.0, 0.0]])  # no row is like this: the sum does not fit
    np.testing.assert_allclose([outside.low[0, 1], outside.high[0, 1]], [0, 1])


@pytest.mark.parametrize("kind", ["observed", "sandwich"])
def test_collinear_columns_leave_shares_as_they_are(collinear, kind):
    X, wide, y, _ = collinear
    by = X[:, 0] > 0
    found = [
        shares(
            LLPLogisticRegression(C=math.inf).fit(x, y, GROUPS),
            x,
            y,
            GROUPS,
            by=by,
            covariance=kind,
        )
        for x in (X, wide)
    ]
    np.testing.assert_allclose(found[0].model_sd, found[1].model_sd, rtol=0.01)
    assert (found[0].model_sd > 0.01).all()


def test_a_summary_of_other_bags_is_a_covariance(collinear):
    X, _, y, model = collinear
    about = summary(model.fit(X, y, GROUPS), X, y, GROUPS)
    by = X[:, 0] > 0
    own, given = (
        shares(model, X, y, GROUPS, by=by, covariance=each) for each in ("observed", about)
    )
    np.testing.assert_allclose(own.low, given.low)


def test_an_unknown_sign_is_noted_in_summary_and_shares():
    X, y = drawn()
    X[:, 1] = np.tile([1.0, -1.0], 400)  # the same mean in all bags
    with pytest.warns(IdentifiabilityWarning):
        model = LLPLogisticRegression(C=math.inf).fit(X, y, GROUPS)
    assert any("x1" in note for note in summary(model, X, y, GROUPS).notes)
    found = shares(model, X, y, GROUPS, by=X[:, 1])
    assert any("x1" in note for note in found.notes)
    assert found.notes[0] in str(found)
    assert np.isnan(found.goodman.share).all()  # two groups, always in equal parts


def test_a_summary_tells_of_separation_and_of_a_fit_that_did_not_converge():
    X, y = drawn()
    clean = LLPLogisticRegression(C=math.inf).fit(X, y, GROUPS)
    assert not summary(clean, X, y, GROUPS).notes
    tiny = 1e-6 * X  # the gradient is below any tolerance at the start
    stuck = LLPLogisticRegression(C=math.inf, random_state=0).fit(tiny, y, GROUPS)
    assert any("maximum" in note for note in summary(stuck, tiny, y, GROUPS).notes)
    sure = np.bincount(GROUPS, X[:, 0] > 0).astype(int)[GROUPS]
    model = LLPLogisticRegression(C=math.inf).fit(X, sure, GROUPS)
    found = summary(model, X, sure, GROUPS)
    assert any("finite C" in note for note in found.notes)
    assert np.isfinite(found.predict([[500.0, 0.0]]).low).all()  # without a division by zero


def test_very_many_aggregated_instances_are_checked_too():
    X, bag = np.tile([[0.0], [1.0]], (300, 1)), np.repeat(np.arange(300), 2)
    times, y = np.full(600, 500), np.full(600, 500)  # 300,000 instances, half of all bags
    with pytest.warns(IdentifiabilityWarning):
        LLPLogisticRegression().fit(X, y, bag, multiplicity=times)


def test_no_effect_has_a_p_value_of_one():
    X, y = drawn(seed=0)
    model = LLPMixedLogisticRegression(C=math.inf).fit(X, y, GROUPS)
    assert (model.effect_sd_, model.effect_lr_, model.effect_p_value_) == (0, 0, 1)


def test_a_plan_knows_constant_collinear_and_undetermined_columns():
    X = np.random.default_rng(0).normal(size=(1000, 2))
    found = plan(X, sizes=[1, 8], accuracy=0.8)
    constant = plan(np.column_stack([X, np.full(1000, 3.0)]), sizes=[1, 8], accuracy=0.8)
    assert constant[8].efficiency == pytest.approx(found[8].efficiency)
    np.testing.assert_allclose(
        constant[8].standard_errors(50)[:2], found[8].standard_errors(50)[:2]
    )
    # A bag of all rows tells of one direction only.
    information = plan(X, sizes=[8], accuracy=0.8)[8]
    whole = type(information)(np.diag([0.0, 0.0, 1.0]), 1000, information.model)
    assert np.isinf(whole.standard_errors(10)[:2]).all()
    assert whole.efficiency == 0
    assert whole.bags_for_standard_error(0.1) is None
    assert whole.accuracy(10**6) < found[1].accuracy(10**6)


def test_goodman_with_fewer_bags_than_groups_is_unknown():
    found = goodman([[5, 5, 0], [0, 5, 5]], [[3, 7], [4, 6]])
    assert np.isnan(found.share).all()
    exact = goodman([[4, 6], [8, 2]], [[5, 5], [5, 5]])  # as many as groups: no residuals
    assert np.isfinite(exact.share).all()
    assert np.isnan(exact.standard_error).all()


@pytest.mark.parametrize("by", [9, -1, [None] * 400 + ["a"] * 400, np.arange(800), [1, 2]], ids=str)
def test_groups_that_cannot_be_are_refused(by):
    X, y = drawn()
    model = LLPLogisticRegression().fit(X, y, GROUPS)
    with pytest.raises(LLPError):
        shares(model, X, y, GROUPS, by=by)


@pytest.mark.parametrize("X", [[1.0, 2.0], [["a", 1.0]], [[math.nan, 1.0]], [[1.0]]], ids=str)
def test_features_that_cannot_be_are_refused(X):
    known, y = drawn()
    found = summary(LLPLogisticRegression().fit(known, y, GROUPS), known, y, GROUPS)
    with pytest.raises(LLPError):
        found.predict(X)


@pytest.mark.parametrize("options", [{"model": 3}, {"sizes": 8}, {"sizes": []}], ids=str)
def test_plans_that_cannot_be_are_refused(options):
    with pytest.raises(LLPError):
        plan(drawn()[0], **options)


@pytest.mark.parametrize("cells", [[[-1, 3]], [[math.nan, 2]], [["a", 1]]], ids=str)
def test_cells_that_cannot_be_are_refused(cells):
    with pytest.raises(LLPError):
        bounds(cells, [[1, 1]])
