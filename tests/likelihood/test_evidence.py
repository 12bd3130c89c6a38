"""Evidence as a value: building, joining, selecting, refusing."""

import pickle

import numpy as np
import pytest
import torch

from llpkit.errors import LLPError
from llpkit.likelihood import Evidence, log_prob
from strategies import gaussian


def flat(n=3, kind=torch.int64):
    return torch.arange(n, dtype=kind)


@pytest.mark.parametrize("counts", [[0, 2, 1], np.array([0, 2, 1]), torch.tensor([0.0, 2.0, 1.0])])
def test_exact(counts):
    evidence = Evidence.exact(counts)
    assert len(evidence) == 3
    assert evidence.num_classes is None
    assert evidence.is_exact
    assert evidence.counts.tolist() == evidence.low.tolist() == evidence.high.tolist() == [0, 2, 1]
    assert evidence.low.dtype == evidence.high.dtype == evidence.counts.dtype == torch.int64


def test_exact_with_classes():
    evidence = Evidence.exact([[0, 2, 1], [1, 1, 1]])
    assert len(evidence) == 2
    assert evidence.num_classes == 3
    assert evidence.counts.tolist() == [[0, 2, 1], [1, 1, 1]]


def test_interval_at_least_and_unknown():
    evidence = Evidence.interval([0, 1], [2, 1])
    assert not evidence.is_exact
    assert (evidence.low.tolist(), evidence.high.tolist()) == ([0, 1], [2, 1])
    assert Evidence.interval([1, 2], [1, 2]).counts.tolist() == [1, 2]
    assert Evidence.at_least([1, 4]).low.tolist() == [1, 4]
    nothing = Evidence.unknown(2, 3)
    assert len(nothing) == 2
    assert nothing.num_classes == 3
    assert nothing.low.tolist() == [[0, 0, 0]] * 2
    with pytest.raises(LLPError, match="exact"):
        _ = evidence.counts


def test_weights_know_their_support():
    evidence = Evidence.weights([-np.inf, 0.0, 1.0, -np.inf, 0.0, -np.inf], [0, 4, 6])
    assert (evidence.low <= torch.tensor([1, 0])).all()
    assert (evidence.high >= torch.tensor([2, 0])).all()
    assert (evidence.low >= 0).all()


@pytest.fixture
def mixed():
    return Evidence.concat(
        [
            Evidence.exact([2, 0]),
            Evidence.interval([1], [3]),
            Evidence.at_least([2]),
            Evidence.noisy([1.3], gaussian, [4]),
            Evidence.unknown(1),
            Evidence.weights([0.0, -1.0, -np.inf, 2.0, 0.5], [0, 5]),
        ]
    )


@pytest.mark.parametrize(
    "index",
    [
        [6, 2, 2, 0],
        slice(1, 5),
        slice(None, None, 2),
        torch.tensor([5, 4, 6]),
        np.array([3, 6]),
        torch.tensor([True, False, False, True, True, False, True]),
        np.array([False, True, False, True, True, False, True]),
        [],
        [-1, 0],
    ],
    ids=str,
)
def test_selection_follows_the_bags(mixed, index):
    z = torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    offsets = 4 * flat(8)
    expected = log_prob(z.flatten(), mixed, offsets)
    chosen = mixed[index]
    as_numpy = index if isinstance(index, slice) else np.asarray(index if len(index) else flat(0))
    rows = np.arange(7)[as_numpy]
    assert len(chosen) == len(rows)
    result = log_prob(z[rows].flatten(), chosen, 4 * flat(len(rows) + 1))
    torch.testing.assert_close(result, expected[rows], rtol=1e-12, atol=1e-12)


def test_selection_past_the_end_is_refused(mixed):
    for index in ([7], torch.tensor([-8]), torch.tensor([True]), "one", [0.5]):
        with pytest.raises((LLPError, IndexError)):
            mixed[index]


def test_it_is_immutable(mixed):
    with pytest.raises((AttributeError, TypeError)):
        mixed.low = flat(7)


def test_it_survives_pickling_and_moving(mixed):
    z = torch.zeros(28, dtype=torch.float64)
    offsets = 4 * flat(8)
    for copy in (pickle.loads(pickle.dumps(mixed)), mixed.to("cpu"), mixed.to(torch.device("cpu"))):
        assert copy.device == torch.device("cpu")
        assert torch.equal(log_prob(z, copy, offsets), log_prob(z, mixed, offsets))


@pytest.mark.parametrize(
    ("build", "mentions"),
    [
        (lambda: Evidence.exact([1, -2]), r"(?s)\[1\].*-2|-2.*1"),
        (lambda: Evidence.exact([1, 2, 0.5]), r"(?s)\[2\].*0\.5"),
        (lambda: Evidence.exact([1, float("nan")]), r"(?si)\[1\].*nan"),
        (lambda: Evidence.exact([1, float("inf")]), r"(?si)\[1\].*inf"),
        (lambda: Evidence.exact([[1, 2], [1, -3]]), r"-3"),
        (lambda: Evidence.exact(["a"]), "counts"),
        (lambda: Evidence.exact([[1, 2], [1]]), "counts"),
        (lambda: Evidence.exact(None), "counts"),
        (lambda: Evidence.exact(np.zeros((2, 2, 2))), r"counts"),
        (lambda: Evidence.exact(torch.tensor([1 + 0j])), "counts"),
        (lambda: Evidence.interval([0, 3], [2, 1]), r"(?s)\[1\].*3.*1"),
        (lambda: Evidence.interval([0, 3], [2]), "low|high"),
        (lambda: Evidence.interval([-1], [2]), "-1"),
        (lambda: Evidence.at_least([0, -5]), "-5"),
        (lambda: Evidence.unknown(-1), "-1"),
        (lambda: Evidence.unknown(2.5), "2.5"),
        (lambda: Evidence.unknown(2, 0), "0"),
        (lambda: Evidence.weights([0.0, float("nan")], [0, 2]), "(?i)nan"),
        (lambda: Evidence.weights([0.0, float("inf")], [0, 2]), "(?i)inf"),
        (lambda: Evidence.weights([0.0, 1.0], [0, 1]), "offsets"),
        (lambda: Evidence.weights([0.0, 1.0, 2.0], [0, 2, 1, 3]), "offsets"),
        (lambda: Evidence.weights([0.0, 1.0], [0, 2, 2]), r"bag 1|\[1\]|1"),
        (lambda: Evidence.noisy([1.0, 2.0], gaussian, [3]), "sizes"),
        (lambda: Evidence.noisy([1.0], gaussian, [-3]), "-3"),
        (lambda: Evidence.noisy([1.0], lambda *args: args[1] * np.nan, [3]), "(?i)nan"),
        (lambda: Evidence.noisy([1.0], lambda *_: torch.zeros(7, 7, 7), [3]), "log_density"),
        (lambda: Evidence.concat([]), "concat|evidence"),
        (lambda: Evidence.concat([Evidence.exact([1]), Evidence.exact([[1, 0]])]), "class"),
        (lambda: Evidence.concat([Evidence.exact([[1, 0]]), Evidence.exact([[1, 0, 0]])]), "class"),
        (lambda: Evidence.concat([[1, 2]]), "Evidence|evidence"),
    ],
)
def test_refusals(build, mentions):
    with pytest.raises(LLPError, match=mentions):
        build()
