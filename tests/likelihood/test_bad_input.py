"""Bad input ends in an LLPError that helps; nothing ends in NaN or in another exception."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from llpkit import likelihood
from llpkit.errors import LLPError
from llpkit.likelihood import Evidence
from oracle import assert_close
from strategies import batch

WITH_COUNTS = {
    "log_prob": likelihood.log_prob,
    "posterior": likelihood.posterior,
    "log_prob_and_posterior": likelihood.log_prob_and_posterior,
    "sample": likelihood.sample,
    "mode": likelihood.mode,
}
WITH_BACKENDS = ("log_prob", "posterior", "log_prob_and_posterior")

every_function = pytest.mark.parametrize("function", WITH_COUNTS.values(), ids=WITH_COUNTS)

Z = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5], dtype=torch.float64)
OFFSETS = torch.tensor([0, 2, 5])
NAN, INF = math.nan, math.inf


def changed(tensor, index, value):
    tensor = tensor.clone()
    tensor[index] = value
    return tensor


# What is wrong -> (logits, counts, offsets, what the message must say).
BINARY_MISTAKES = {
    "nan logit": (changed(Z, 3, NAN), [1, 1], OFFSETS, r"(?i)logits\[3\].*nan"),
    "count above the size": (
        Z, [1, 4], OFFSETS, r"counts\[1\] = 4.*bag 1 has 3 .*from_proportions"
    ),
    "negative count": (Z, [1, -1], OFFSETS, r"counts\[1\] = -1"),
    "fractional count": (Z, [0.5, 1], OFFSETS, r"counts\[0\] = 0\.5.*from_proportions"),
    "nan count": (Z, [NAN, 1], OFFSETS, r"(?i)counts\[0\] = nan"),
    "huge count": (Z, [1, 2**62], OFFSETS, r"counts\[1\] = 4611686018427387904"),
    "huge float count": (Z, [1, 1e300], OFFSETS, r"counts\[1\] = 1e\+?300"),
    "too few counts": (Z, [1], OFFSETS, r"(?s)1 .*2"),
    "too many counts": (Z, [1, 1, 1], OFFSETS, r"(?s)3 .*2"),
    "noise of a larger bag": (
        Z, Evidence.noisy([1.0, 1.0], lambda seen, k: -((seen - k) ** 2), [2, 9]), OFFSETS, r"bag 1"
    ),
    "class counts for binary logits": (Z, [[1, 1], [2, 1]], OFFSETS, r"counts|class"),
    "counts are words": (Z, ["one", "two"], OFFSETS, r"counts"),
    "counts are none": (Z, None, OFFSETS, r"counts"),
    "counts are complex": (Z, torch.tensor([1j, 1j]), OFFSETS, r"counts"),
    "falling offsets": (Z, [0, 0], torch.tensor([0, 6, 5]), r"offsets\[2\] = 5"),
    "offsets start late": (Z, [1, 1], torch.tensor([1, 2, 5]), r"offsets\[0\] = 1"),
    "offsets end early": (Z, [1, 1], torch.tensor([0, 2, 4]), r"offsets.*4.*5"),
    "offsets end late": (Z, [1, 1], torch.tensor([0, 2, 6]), r"offsets.*6.*5"),
    "no offsets": (Z, [], torch.zeros(0, dtype=torch.int64), r"offsets"),
    "offsets in a matrix": (Z, [1, 1], OFFSETS[None], r"offsets"),
    "fractional offsets": (Z, [1, 1], [0, 2.5, 5], r"offsets"),
    "nan offsets": (Z, [1, 1], [0, NAN, 5], r"offsets"),
    "offsets are none": (Z, [1, 1], None, r"offsets"),
    "integer logits": (torch.arange(5), [1, 1], OFFSETS, r"logits.*int64"),
    "boolean logits": (torch.ones(5, dtype=torch.bool), [1, 1], OFFSETS, r"logits.*bool"),
    "complex logits": (Z.to(torch.complex128), [1, 1], OFFSETS, r"logits.*complex128"),
    "logits of three axes": (Z.view(1, 5, 1), [1, 1], OFFSETS, r"logits"),
    "a scalar logit": (Z[0], [1, 1], OFFSETS, r"logits"),
    "logits are none": (None, [1, 1], OFFSETS, r"logits"),
    "logits are words": ("12345", [1, 1], OFFSETS, r"logits"),
    "more known positives than the count": (changed(Z, [2, 3], INF), [1, 1], OFFSETS, r"bag 1"),
    "more known negatives than the count": (changed(Z, [2, 3], -INF), [1, 2], OFFSETS, r"bag 1"),
    "interval above the size": (Z, Evidence.interval([0, 4], [1, 6]), OFFSETS, r"4 to 6.*bag 1.*3"),
    "at least above the size": (Z, Evidence.at_least([3, 0]), OFFSETS, r"3 or more.*bag 0.*2"),
    "interval against known labels": (
        changed(Z, [0, 1], INF), Evidence.interval([0, 0], [1, 3]), OFFSETS, r"bag 0"
    ),
    "weights of the wrong length": (
        Z, Evidence.weights(torch.zeros(6), [0, 3, 6]), OFFSETS, r"bag 1"
    ),
    "holes where the count must be": (
        changed(Z, [0, 1], INF),
        Evidence.weights([0.0, 0.0, -INF] + [0.0] * 4, [0, 3, 7]),
        OFFSETS,
        r"bag 0",
    ),
    "weights without a possible count": (
        Z, Evidence.weights([0.0] * 3 + [-INF] * 4, [0, 3, 7]), OFFSETS, r"bag 1"
    ),
}  # fmt: skip


@every_function
@pytest.mark.parametrize("mistake", BINARY_MISTAKES)
def test_binary_mistakes(mistake, function):
    logits, counts, offsets, message = BINARY_MISTAKES[mistake]
    with pytest.raises(LLPError, match=message):
        function(logits, counts, offsets)


Z3 = torch.zeros(5, 3, dtype=torch.float64)
GOOD3 = [[1, 1, 0], [0, 1, 2]]
CLASS_MISTAKES = {
    "nan logit": (changed(Z3, (3, 1), NAN), GOOD3, OFFSETS, r"(?i)logits\[3(, 1)?\].*nan"),
    "counts do not sum to the size": (Z3, [[1, 1, 0], [0, 1, 1]], OFFSETS, r"(?s)bag 1.*3"),
    "counts sum to more than the size": (Z3, [[1, 1, 1], [0, 1, 2]], OFFSETS, r"(?s)bag 0.*2"),
    "negative count": (Z3, [[1, 1, 0], [-1, 1, 3]], OFFSETS, r"-1"),
    "fractional count": (Z3, [[1, 1, 0], [0.5, 1, 1.5]], OFFSETS, r"0\.5"),
    "binary counts for class logits": (Z3, [1, 1], OFFSETS, r"counts|class"),
    "another number of classes": (Z3, [[1, 1], [1, 2]], OFFSETS, r"class|counts"),
    "no classes": (torch.zeros(5, 0), torch.zeros(2, 0), OFFSETS, r"class|logits"),
    "all classes forbidden": (changed(Z3, 4, -INF), GOOD3, OFFSETS, r"logits\[4\]|row 4|bag 1"),
    "a needed class forbidden": (changed(Z3, (slice(0, 2), 0), -INF), GOOD3, OFFSETS, r"bag 0"),
    "two rows for one place": (
        changed(Z3, (slice(2, 5), slice(1, 3)), -INF), GOOD3, OFFSETS, r"bag 1"
    ),
    "certain of two classes": (changed(Z3, (4, slice(0, 2)), INF), GOOD3, OFFSETS, r"logits\[4"),
    "two classes beyond the size": (torch.zeros(5, 2), [[1, 1], [3, 3]], OFFSETS, r"bag 1"),
    "lower bounds above the size": (
        Z3, Evidence.at_least([[1, 1, 1], [0, 0, 0]]), OFFSETS, r"bag 0"
    ),
    "upper bounds below the size": (
        Z3, Evidence.interval([[0, 0, 0]] * 2, [[1, 1, 1], [1, 1, 0]]), OFFSETS, r"bag 1"
    ),
}  # fmt: skip


@every_function
@pytest.mark.parametrize("mistake", CLASS_MISTAKES)
def test_class_mistakes(mistake, function):
    logits, counts, offsets, message = CLASS_MISTAKES[mistake]
    with pytest.raises(LLPError, match=message):
        function(logits, counts, offsets)


@pytest.mark.parametrize("name", WITH_BACKENDS)
def test_unknown_names_list_the_known_ones(name):
    function = WITH_COUNTS[name]
    with pytest.raises(LLPError, match=r"(?s)cuda.*auto.*torch.*numba"):
        function(Z, [1, 1], OFFSETS, backend="cuda")
    with pytest.raises(LLPError, match=r"(?s)fast.*exact.*sinkhorn"):
        function(Z, [1, 1], OFFSETS, approximation="fast")
    for wrong in (None, 3, ["torch"]):
        with pytest.raises(LLPError):
            function(Z, [1, 1], OFFSETS, backend=wrong)
    for wrong in ("exact", 3, ["sinkhorn"]):
        with pytest.raises(LLPError, match=r"approximation = .*sinkhorn"):
            function(Z, [1, 1], OFFSETS, approximation=wrong)


@every_function
def test_too_many_states_names_the_way_out(function):
    z = torch.zeros(30, 3, dtype=torch.float64)
    with pytest.raises(LLPError, match=r"bag 0.*max_states|max_states.*bag 0") as error:
        function(z, [[10, 10, 10]], torch.tensor([0, 30]), max_states=20)
    assert "20" in str(error.value)
    if function in (likelihood.sample, likelihood.mode):
        return
    assert 'approximation="saddlepoint"' in str(error.value)


@every_function
def test_the_default_budget_stops_a_hopeless_sum(function):
    z = torch.zeros(1000, 10)
    for counts in ([[100] * 10], Evidence.unknown(1, 10)):
        with pytest.raises(LLPError, match="states"):
            function(z, counts, torch.tensor([0, 1000]))


@every_function
@pytest.mark.parametrize("value", [-1, 0, 2.5, "many", None, NAN])
def test_bad_budgets(function, value):
    with pytest.raises(LLPError, match="max_states"):
        function(Z3, GOOD3, OFFSETS, max_states=value)


@pytest.mark.parametrize("value", [-1, 1.5, "two", NAN, [2]])
def test_bad_numbers_of_samples(value):
    with pytest.raises(LLPError, match="num_samples"):
        likelihood.sample(Z, [1, 1], OFFSETS, num_samples=value)


@pytest.mark.parametrize("value", ["seed", 1.5, -1, 2**63, np.random.default_rng(0)])
def test_bad_generators(value):
    with pytest.raises(LLPError, match="generator"):
        likelihood.sample(Z, [1, 1], OFFSETS, value)


@pytest.mark.parametrize(
    "mistake",
    [name for name in BINARY_MISTAKES if "offsets" in name]
    + ["nan logit", "integer logits", "boolean logits", "logits are none", "a scalar logit"],
)
def test_pmf_mistakes(mistake):
    logits, _, offsets, message = BINARY_MISTAKES[mistake]
    with pytest.raises(LLPError, match=message):
        likelihood.pmf(logits, offsets)


IMPOSSIBLE = {
    "count above the size": (Z, [1, 4]),
    "known positives": (changed(Z, [2, 3], INF), [1, 1]),
    "known negatives": (changed(Z, [2, 3], -INF), [1, 2]),
    "interval above the size": (Z, Evidence.interval([0, 4], [2, 9])),
    "interval against known labels": (
        changed(Z, [2, 3, 4], -INF),
        Evidence.interval([0, 1], [2, 3]),
    ),
    "weights": (changed(Z, [2, 3, 4], INF), Evidence.weights([0.0] * 6 + [-INF], [0, 3, 7])),
    "exact zero of a known positive": (changed(Z, 2, INF), [2, 0]),
    "all of a known negative": (changed(Z, 2, -INF), [0, 3]),
    "classes do not add up": (Z3, [[1, 1, 0], [0, 1, 1]]),
    "classes forbidden": (changed(Z3, (slice(2, 5), 2), -INF), [[1, 1, 0], [0, 1, 2]]),
    "class bounds": (Z3, Evidence.at_least([[0, 0, 0], [2, 1, 1]])),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_unchecked_impossible_bags_have_log_prob_minus_infinity(case, either_backend):
    logits, counts = IMPOSSIBLE[case]
    with pytest.raises(LLPError, match="bag 1"):
        likelihood.log_prob_and_posterior(logits, counts, OFFSETS, backend=either_backend)
    z = logits.clone().requires_grad_()
    log_prob, phi = likelihood.log_prob_and_posterior(
        z, counts, OFFSETS, backend=either_backend, validate=False
    )
    assert log_prob[1] == -INF
    assert torch.isfinite(log_prob[0])
    prior = torch.sigmoid(logits) if logits.ndim == 1 else torch.softmax(logits, 1)
    assert_close(phi[2:].detach().numpy(), prior[2:].numpy(), 1e-12)
    first = [counts[0]] if isinstance(counts, list) else counts[[0]]
    alone = likelihood.posterior(logits[:2], first, OFFSETS[:2], backend=either_backend)
    assert_close(phi[:2].detach().numpy(), alone.numpy(), 1e-12)
    for output in (log_prob[0], phi.sum()):
        (gradient,) = torch.autograd.grad(output, z, retain_graph=True)
        assert not gradient.isnan().any()
    (gradient,) = torch.autograd.grad(log_prob.sum(), z)
    assert not gradient.isnan().any()


@pytest.mark.parametrize("n", [20, 100, 1000])
def test_large_impossible_bags(n, backend):
    z = torch.zeros(n, dtype=torch.float64)
    z[: n // 2] = INF
    offsets = torch.tensor([0, n])
    with pytest.raises(LLPError, match="bag 0"):
        likelihood.log_prob(z, [n // 2 - 1], offsets, backend=backend)
    for counts in (
        [n // 2 - 1],
        Evidence.interval([1], [3]),
        Evidence.weights([0.0] + [-INF] * n, [0, n + 1]),
    ):
        log_prob, phi = likelihood.log_prob_and_posterior(
            z, counts, offsets, backend=backend, validate=False
        )
        assert log_prob.item() == -INF
        assert_close(phi.numpy(), torch.sigmoid(z).numpy(), 1e-12)


# Odd values


def floats_with_oddities():
    odd = st.sampled_from(
        [NAN, INF, -INF, 1e300, -1e300, 1.7e308, -1.7e308, 5e-324, 1e30, -0.0, 0.0, 1.0]
    )
    return st.one_of(odd, st.floats(-5, 5), st.floats())


def assert_no_nan(result):
    for part in result if isinstance(result, tuple) else (result,):
        assert isinstance(part, torch.Tensor)
        if part.is_floating_point():
            assert not part.isnan().any()


def answer_or_refuse(function, *args, **options):
    """The answer, or None where there was an LLPError; nothing else may happen."""
    try:
        result = function(*args, **options)
    except LLPError:
        return None
    assert_no_nan(result)
    return result


@st.composite
def nearly_right(draw):
    """Shapes that fit, values that need not."""
    sizes = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    num_classes = draw(st.sampled_from([None, None, 1, 2, 3]))
    n = sum(sizes)
    shape = (n,) if num_classes is None else (n, num_classes)
    elements = draw(st.sampled_from([
        floats_with_oddities(),
        st.sampled_from([1e300, -1e300, 1.7e308, -1.7e308, 0.0]),
        st.sampled_from([INF, -INF, 0.0, 1.0]),
        st.floats(allow_nan=False),
        st.floats(-3, 3),
    ]))  # fmt: skip
    dtype = draw(
        st.sampled_from(
            [torch.float64, torch.float64, torch.float32, torch.float16, torch.bfloat16]
        )
    )
    logits = torch.tensor(draw(hnp.arrays("float64", shape, elements=elements))).to(dtype)
    offsets = torch.tensor(np.cumsum([0, *sizes]))
    if num_classes is None:
        counts = draw(st.one_of(
            st.tuples(*[st.integers(0, size) for size in sizes]),
            st.lists(st.integers(-1, 5), min_size=len(sizes), max_size=len(sizes)),
            st.just(Evidence.at_least([min(1, size) for size in sizes])),
            st.just(Evidence.unknown(len(sizes))),
        ))  # fmt: skip
    else:
        split = [
            draw(st.lists(st.integers(0, num_classes - 1), min_size=s, max_size=s)) for s in sizes
        ]
        counts = draw(st.one_of(
            st.just([[labels.count(k) for k in range(num_classes)] for labels in split]),
            st.just(Evidence.unknown(len(sizes), max(2, num_classes))),
            st.just(Evidence.at_least([[0] * num_classes] * len(sizes))),
            hnp.arrays("int64", (len(sizes), num_classes), elements=st.integers(-1, 4)),
        ))  # fmt: skip
    return logits, counts, offsets


@given(args=nearly_right())
def test_odd_values_in_the_right_shapes(args, either_backend):
    result = answer_or_refuse(likelihood.log_prob_and_posterior, *args, backend=either_backend)
    if result is not None:
        log_prob, phi = result
        assert ((phi >= 0) & (phi <= 1)).all()
        assert (log_prob <= 1e-6).all()
        z = args[0].clone().requires_grad_()
        one, both = likelihood.log_prob_and_posterior(z, *args[1:], backend=either_backend)
        (gradient,) = torch.autograd.grad(one.sum(), z, retain_graph=True)
        assert not gradient.isnan().any()
        (gradient,) = torch.autograd.grad(both.sum(), z)
        assert not gradient.isnan().any()


@given(args=nearly_right())
def test_odd_values_in_the_right_shapes_unchecked(args, either_backend):
    logits, counts, offsets = args
    # Neither NaN nor certainty of several classes is a distribution; the check is there for these.
    logits = logits.nan_to_num(nan=0.0, posinf=INF if logits.ndim == 1 else 1.0, neginf=-INF)
    answer_or_refuse(
        likelihood.log_prob_and_posterior,
        logits,
        counts,
        offsets,
        backend=either_backend,
        validate=False,
    )


@pytest.mark.parametrize("function", [likelihood.sample, likelihood.mode])
@given(args=nearly_right())
def test_odd_values_for_sample_and_mode(function, args):
    labels = answer_or_refuse(function, *args)
    if labels is not None:
        num_classes = 2 if args[0].ndim == 1 else args[0].shape[1]
        assert ((labels >= 0) & (labels < num_classes)).all()


@given(args=nearly_right())
def test_odd_values_for_pmf(args):
    answer_or_refuse(likelihood.pmf, args[0], args[2])


@given(args=nearly_right())
def test_odd_values_for_sinkhorn(args):
    answer_or_refuse(likelihood.log_prob_and_posterior, *args, approximation="sinkhorn")


def test_huge_logits_in_large_bags(backend):
    rng = np.random.default_rng(0)
    for scale in (1e10, 1e150, 1e300):
        z = rng.normal(size=100) * scale
        log_prob, phi = likelihood.log_prob_and_posterior(
            *batch([z], Evidence.exact([40])), backend=backend
        )
        top = np.argsort(-z)[:40]
        expected = np.zeros(100)
        expected[top] = 1
        assert_close(phi.numpy(), expected, 1e-9)
        # softplus is max(z, 0) at this scale
        assert_close(log_prob.numpy(), [z[top].sum() - np.maximum(z, 0).sum()], 1e-9)


@pytest.mark.parametrize("mask", [-1e7, -1e9, -1e18, -3.4e38, -1e308])
@pytest.mark.parametrize("classes", [2, 3, 4])
def test_a_mask_is_as_good_as_impossible(backend, classes, mask):
    """Where the counts do not ask for a masked class, the answers are those of ``-inf``."""
    rng = np.random.default_rng(classes)
    z = torch.tensor(rng.normal(size=(5, classes)))
    z[:3, 1] = mask
    counts, offsets = [[3, 1, 1, 0][:classes]], [0, 5]
    counts[0][0] += 5 - sum(counts[0])
    z.requires_grad_()
    apart = torch.where(z < -1e6, -torch.inf, z)
    found, wanted = (
        likelihood.log_prob_and_posterior(x, counts, offsets, backend=backend) for x in (z, apart)
    )
    for one, other in zip(found, wanted, strict=True):
        assert_close(one.detach().numpy(), other.detach().numpy(), 1e-12)
    slope = torch.autograd.grad(found[0].sum(), z)[0]
    assert_close(slope.numpy(), (found[1] - z.softmax(1)).detach().numpy(), 1e-12)
    labels = likelihood.sample(z.detach(), counts, offsets, 0, num_samples=20)
    assert (labels[:, :3] != 1).all()


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_a_mask_that_the_counts_contradict(backend, classes):
    """The count asks for as many of class 1 as are not masked and one more: which, z tells."""
    z = torch.zeros(4, classes, dtype=torch.float64)
    z[:3, 1] = -1e9
    z[:3, 0] = torch.tensor([0.0, 1.0, 2.0])
    z[:, 2:] = -torch.inf
    counts = [[2, 2, 0, 0][:classes]]
    log_p, phi = likelihood.log_prob_and_posterior(z, counts, [0, 4], backend=backend)
    # Instance i alone is exp(-1e9 - z_i0) to be of class 1.
    share = torch.softmax(-z[:3, 0], 0)
    assert_close(phi[:3, 1].numpy(), share.numpy(), 1e-6)
    assert_close(log_p.numpy(), [-1e9], 1e-8)


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_a_shift_of_all_classes_changes_nothing(backend, classes):
    z = torch.tensor(np.random.default_rng(classes).normal(size=(5, classes)) * 3)
    z = (z * 2**10).round() / 2**10  # so that the shifted ones are exact
    shift = torch.tensor([[1e9], [-1e9], [0.0], [1e11], [-3e7]], dtype=torch.float64)
    counts, offsets = [[2, 3, 0, 0][:classes]], [0, 5]
    for function in (likelihood.log_prob, likelihood.posterior):
        one, other = (function(x, counts, offsets, backend=backend) for x in (z, z + shift))
        assert_close(one.numpy(), other.numpy(), 1e-12)
    one, other = (likelihood.pmf(x, offsets).probability for x in (z, z + shift))
    assert_close(one.numpy(), other.numpy(), 1e-12)


@pytest.mark.parametrize("approximation", [None, "sinkhorn"])
def test_counts_that_no_sum_of_logits_can_explain(approximation):
    """Float64 would lose which combination is the likeliest; posteriors were NaN."""
    z = torch.zeros(4, 3, dtype=torch.float64)
    z[:, 1] = torch.tensor([-1e15, -1e18, -1e30, -1e300])
    counts, offsets = [[2, 2, 0]], [0, 4]
    with pytest.raises(LLPError, match="bag 0"):
        likelihood.posterior(z, counts, offsets, approximation=approximation)
    phi = likelihood.posterior(z, counts, offsets, approximation=approximation, validate=False)
    assert phi.isfinite().all()
