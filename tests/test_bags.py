"""Bags: what they hold, how they are built, cut and joined, and every refusal by its message."""

import copy
import pickle
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from llpkit import Bags, Evidence, LLPError, likelihood, random_bags
from llpkit.estimators import LLPLogisticRegression


def by_hand(groups):
    """Rows of every id, sorted where ids can be, else as they appear: the slow and obvious way."""
    found = {}
    for row, group in enumerate(groups):
        found.setdefault(group, []).append(row)
    try:
        return {group: found[group] for group in sorted(found)}
    except TypeError:
        return found


def rows_of(bags):
    return {bag.id: bag.rows.tolist() for bag in bags}


def toy():
    """Four bags, one of them empty, over a table of ten rows of which one is in no bag."""
    return Bags(
        offsets=[0, 2, 2, 5, 9],
        counts=[1, 0, 3, 2],
        rows=[4, 1, 0, 2, 3, 9, 8, 7, 6],
        ids=["a", "b", "c", "d"],
        num_rows=10,
    )


# What bags hold


def test_fields():
    bags = toy()
    assert bags.offsets.dtype == bags.rows.dtype == torch.int64
    assert len(bags) == 4
    assert bags.num_instances == 9
    assert bags.num_rows == 10
    assert bags.num_classes is None
    assert bags.ids == ("a", "b", "c", "d")
    assert bags.sizes.tolist() == [2, 0, 3, 4]
    assert bags.counts.tolist() == [1, 0, 3, 2]
    assert bags.proportions.tolist() == [0.5, 0.0, 1.0, 0.5]
    assert bags.bag_index.tolist() == [0, 0, 2, 2, 2, 3, 3, 3, 3]
    assert bags.device == torch.device("cpu")
    assert bags.evidence.is_exact


def test_fields_of_classes():
    bags = Bags([0, 2, 5], [[1, 1, 0], [0, 1, 2]])
    assert bags.num_classes == 3
    assert bags.counts.tolist() == [[1, 1, 0], [0, 1, 2]]
    assert torch.equal(bags.proportions[0], torch.tensor([0.5, 0.5, 0.0]).double())
    assert bags[1].count == (0, 1, 2)


def test_defaults():
    bags = Bags([0, 2, 3], [1, 1])
    assert bags.rows.tolist() == [0, 1, 2]
    assert bags.ids == (0, 1)
    assert bags.num_rows == 3
    assert Bags([0, 2], [1], rows=[7, 5]).num_rows == 8
    assert Bags([0, 0], [0]).num_rows == 0


@pytest.mark.parametrize("form", [list, tuple, np.array, torch.tensor, iter])
def test_ids_become_plain_values(form):
    ids = Bags([0, 2, 3], [1, 1], ids=form([5, 7])).ids
    assert ids == (5, 7)
    assert {type(i) for i in ids} == {int}


def test_iteration_yields_bags():
    bags = list(toy())
    assert [bag.id for bag in bags] == ["a", "b", "c", "d"]
    assert [bag.size for bag in bags] == [2, 0, 3, 4]
    assert [bag.count for bag in bags] == [1, 0, 3, 2]
    assert bags[2].rows.tolist() == [0, 2, 3]


def test_imprecise_bag_tells_its_bounds():
    bags = Bags([0, 3, 7], Evidence.concat([Evidence.at_least([1]), Evidence.interval([2], [3])]))
    assert [(bag.low, bag.high) for bag in bags] == [(1, 3), (2, 3)]
    with pytest.raises(LLPError, match=r"the count of bag 0 is 1 to 3; use \.low and \.high"):
        _ = bags[0].count
    with pytest.raises(LLPError, match="not all exact"):
        _ = bags.counts


def test_bags_are_frozen():
    bags = toy()
    for name in ("offsets", "rows", "evidence", "ids", "num_rows", "something"):
        with pytest.raises(AttributeError):
            setattr(bags, name, None)
    with pytest.raises(AttributeError):
        del bags.rows


def test_bags_do_not_share_memory_with_their_input():
    offsets, counts, rows = np.array([0, 1, 3]), np.array([1, 0]), np.array([2, 0, 1])
    bags = Bags(offsets, counts, rows)
    for array in (offsets, counts, rows):
        array[:] = 9
    assert bags.offsets.tolist() == [0, 1, 3]
    assert bags.counts.tolist() == [1, 0]
    assert bags.rows.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))]
)
def test_copies(copied):
    bags = copied(toy())
    assert rows_of(bags) == rows_of(toy())
    assert bags.counts.tolist() == [1, 0, 3, 2]


def test_repr():
    assert repr(toy()) == "Bags(4 bags, 9 instances, sizes 0 to 4, exact counts)"
    classes = Bags([0, 2, 4], Evidence.unknown(2, 3))
    assert repr(classes) == "Bags(2 bags, 4 instances, sizes 2, 2 unknown counts, 3 classes)"
    kinds = [Evidence.exact([1]), Evidence.interval([0, 1], [2, 2]), Evidence.unknown(1)]
    kinds.append(Evidence.laplace([1.0], [2], scale=1.0))
    mixed = Bags(range(0, 11, 2), Evidence.concat(kinds))
    assert "1 exact count, 1 range, 1 noisy count, 2 unknown counts" in repr(mixed)


def test_to_moves_every_tensor():
    bags = toy().to("meta")
    assert {bags.device, bags.rows.device, bags.offsets.device} == {torch.device("meta")}
    assert bags.ids == toy().ids


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_bags_on_cuda_behave_as_on_the_cpu():
    here, there = toy(), toy().to("cuda")
    generator = torch.Generator("cuda").manual_seed(0)
    assert Bags(there.offsets, there.counts, there.rows).device.type == "cuda"
    assert Bags.concat([there, here]).device.type == "cuda"
    assert there.split(0.5, generator)[0].device.type == "cuda"
    for index in ([3, 0], torch.tensor([3, 0], device="cuda"), slice(None)):
        assert rows_of(there[index]) == rows_of(here[index])
    assert there.bag_index.tolist() == here.bag_index.tolist()
    assert there[torch.tensor(2, device="cuda")].count == 3


# Building from groups


@given(st.lists(st.integers(-3, 3), min_size=1))
def test_from_groups_matches_the_slow_way(groups):
    expected = by_hand(groups)
    counts = {group: len(rows) for group, rows in expected.items()}
    for form in (list, tuple, iter, np.array, torch.tensor):
        bags = Bags.from_groups(form(groups), counts)
        assert rows_of(bags) == expected
        assert bags.ids == tuple(expected)
        assert bags.counts.tolist() == list(counts.values())
        assert bags.num_rows == len(groups)
        assert bags.rows[bags.offsets[:-1]].tolist() == [rows[0] for rows in expected.values()]


@pytest.mark.parametrize(
    "groups",
    [
        ["x", 1, ("t", 2), None.__class__, "x", 1, 2.5, b"y", frozenset({1}), Decimal("1")],
        np.array(["b", "a", "b", "c"]),
        np.array([b"b", b"a", b"b"]),
        np.array([0.5, -1.0, 0.5, 0.0, -0.0]),
        np.array([True, False, True]),
        np.array([2**63, 1, 2**63], dtype=np.uint64),
        np.array(["2020-01-02", "2020-01-01", "2020-01-02"], dtype="datetime64[ns]"),
        np.array(["b", 1, "b", (1, 2)], dtype=object),
        np.array([1j, 2j, 1j]),
    ],
)
def test_from_groups_takes_any_hashable(groups):
    expected = by_hand(list(groups))
    bags = Bags.from_groups(groups, dict.fromkeys(expected, 0))
    assert rows_of(bags) == expected
    assert bags.ids == tuple(expected)


def test_from_groups_takes_bfloat16_and_gradients():
    groups = torch.tensor([2.0, 1.0, 2.0], dtype=torch.bfloat16, requires_grad=True)
    assert Bags.from_groups(groups, [0, 2]).ids == (1.0, 2.0)


def test_mixed_lists_keep_their_types_apart():
    assert Bags.from_groups([1, "1"], {1: 0, "1": 1}).counts.tolist() == [0, 1]


class OnlyKeys:
    """The least that counts as a mapping."""

    def keys(self):
        return ["a", "b"]

    def __getitem__(self, key):
        return {"a": 1, "b": 0}[key]


@pytest.mark.parametrize(
    "counts",
    [
        {"a": 1, "b": 0},
        Counter({"a": 1, "b": 0}),
        OnlyKeys(),
        {"a": 1, "b": np.int8(0)},
        {"a": True, "b": False},
        {"a": torch.tensor(1), "b": torch.tensor(0)},
        {"a": Fraction(1), "b": 0},
        [1, 0],
        np.array([1, 0], dtype=np.uint8),
        np.array([True, False]),
        np.array([1, 0], dtype=object),
        torch.tensor([1, 0]),
        Evidence.exact([1, 0]),
    ],
)
def test_from_groups_takes_counts_in_many_forms(counts):
    bags = Bags.from_groups(["b", "a", "a", "b"], counts)
    assert bags.ids == ("a", "b")
    assert bags.counts.tolist() == [1, 0]


@pytest.mark.parametrize("form", [np.array, torch.tensor, list, torch.tensor([]).new_tensor])
def test_whole_floats_are_counts(form):
    assert Bags.from_groups([7, 7, 5], form([1.0, 2.0])).counts.tolist() == [1, 2]


SHUFFLED = np.array([2, 0, 1, 2, 0, 2, 1, 0])
TRUTH = np.array([1, 0, 1, 1, 0, 0, 1, 1])


@pytest.mark.parametrize("name", [int, float, str, lambda i: ("id", int(i)), "b{}".format])
def test_an_array_is_in_the_order_of_the_sorted_ids(name):
    groups = [name(g) for g in SHUFFLED.tolist()]
    ids = tuple(sorted(set(groups)))
    counts = np.bincount(SHUFFLED, TRUTH)
    shares = counts / np.bincount(SHUFFLED)
    for bags in (
        Bags.from_groups(groups, counts),
        Bags.from_groups(groups, Evidence.exact(counts)),
        Bags.from_groups(groups, dict(zip(ids, counts, strict=True))),
        Bags.from_groups(groups, counts[[2, 0, 1]], ids=[ids[2], ids[0], ids[1]]),
        Bags.from_groups(groups, Evidence.exact(counts)[[2, 0, 1]], ids=(ids[2], ids[0], ids[1])),
        Bags.from_proportions(groups, shares),
        Bags.from_proportions(groups, shares.tolist()[::-1], ids=ids[::-1]),
        Bags.from_labels(TRUTH, groups),
    ):
        assert bags.ids == ids
        assert rows_of(bags) == by_hand(groups)
        assert bags.counts.tolist() == counts.tolist()
    classes = np.array([[2, 1], [0, 2], [1, 2]])
    bags = Bags.from_groups(groups, classes[[1, 2, 0]], ids=[ids[1], ids[2], ids[0]])
    assert bags.counts.tolist() == classes.tolist()


@pytest.mark.parametrize(
    "groups",
    [
        [1, "a", 1],
        [("a",), 1, 1],
        [frozenset({1}), frozenset({2}), frozenset({1})],  # sorted() says nothing of sets
        [1j, 2j, 1j],
        np.array([1, "a", 1], dtype=object),
    ],
)
def test_ids_without_an_order_take_no_bare_array(groups):
    for build in (Bags.from_groups, Bags.from_proportions):
        for values in ([1, 0], np.array([1, 0]), Evidence.exact([1, 0])):
            if build is Bags.from_groups or not isinstance(values, Evidence):
                with pytest.raises(LLPError, match=r"mapping.*ids="):
                    build(groups, values)
    found = by_hand(groups)
    last = list(found)[::-1]
    assert Bags.from_groups(groups, [0, 1], ids=last).counts.tolist() == [1, 0]
    assert Bags.from_groups([groups[0]] * 2, [1]).counts.tolist() == [1]  # one bag has one order


def test_a_categorical_with_an_order_of_its_own_takes_no_bare_array():
    pd = pytest.importorskip("pandas")
    kind = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    frame = pd.DataFrame({"g": pd.Series(["mid", "low", "high", "mid"], dtype=kind), "y": 1})
    counts = frame.groupby("g", observed=True)["y"].sum()
    bags = Bags.from_groups(frame.g, counts)
    assert [(bag.id, bag.count) for bag in bags] == [("high", 1), ("low", 1), ("mid", 2)]
    with pytest.raises(LLPError, match="mapping"):
        Bags.from_groups(frame.g, counts.to_numpy())
    plain = frame.g.astype(str).astype("category")
    assert Bags.from_groups(plain, [1, 1, 2]).ids == ("high", "low", "mid")


@pytest.mark.parametrize(
    ("counts", "ids", "message"),
    [
        ([1, 1], ["a"], "counts has 2 entries but ids has 1"),
        ([1, 1], ["a", "a"], "no entry"),
        ([1, 1, 0], ["a", "b", "b"], "more than one entry for 'b'"),
        ([1, 1, 0], ["a", "b", "c"], "entry for 'c'"),
        ([1, 1], ["a", None], "missing"),
        ([1, 1], "ab", "ids is a str"),
        ([1, 1], 5, "ids is a int"),
        ("11", ["a", "b"], "counts is a str"),
        (5, ["a", "b"], "counts is a int"),
        (np.int64(5), ["a", "b"], "counts is a "),
        ({"a": 1, "b": 1}, ["a", "b"], "leave ids= out"),
        ([1, 3], ["b", "a"], r"counts\['a'\] = 3"),
    ],
)
def test_ids_that_do_not_fit_the_counts(counts, ids, message):
    with pytest.raises(LLPError, match=message):
        Bags.from_groups(["b", "a"], counts, ids=ids)


@pytest.mark.parametrize(
    "shares",
    [
        [1.0, 0.0],
        np.array([1.0, 0.0], dtype=np.float32),
        torch.tensor([1.0, 0.0], dtype=torch.bfloat16),
        {"a": 1.0, "b": 0},
        {"a": np.float64(1), "b": 0.0},
        np.array([1.0, 0], dtype=object),
    ],
)
def test_floats_that_may_be_shares_are_no_counts(shares):
    groups = ["b", "a", "a", "b"]
    for build in (lambda c: Bags.from_groups(groups, c), lambda c: Bags([0, 2, 4], c)):
        given = list(shares.values()) if isinstance(shares, dict) else shares
        with pytest.raises(LLPError, match=r"1\.0.*bag 0.*2 instances.*int.*from_proportions"):
            build(given)
    with pytest.raises(LLPError, match="from_proportions"):
        Bags.from_groups(groups, shares)
    assert Bags.from_proportions(groups, shares).counts.tolist() == [2, 0]
    if not isinstance(shares, dict):  # the engine takes arrays
        for build in (
            Evidence.exact,
            lambda c: likelihood.log_prob(torch.zeros(4), c, [0, 2, 4]),
            lambda c: likelihood.sample(torch.zeros(4), c, [0, 2, 4], 0),
            lambda c: LLPLogisticRegression().fit(
                np.arange(8.0).reshape(4, 2), np.repeat([float(v) for v in c], 2), [0, 0, 1, 1]
            ),
        ):
            with pytest.raises(LLPError, match=r"(?s)(1\.0.*astype\(int\)|not an array)"):
                build(shares)
    # Where both readings are the same there is nothing to ask.
    assert likelihood.log_prob(torch.zeros(3), [1.0, 0.0], [0, 1, 3]).isfinite().all()
    assert Evidence.exact([0.0, 0.0]).counts.tolist() == [0, 0]
    assert Evidence.exact([1.0, 2.0]).counts.tolist() == [1, 2]
    assert Evidence.exact([[1.0, 0.0], [0.0, 1.0]]).num_classes == 2
    assert Bags.from_groups(groups, [0.0, 0.0]).counts.tolist() == [0, 0]
    assert Bags.from_groups(["b", "a", "b"], [1.0, 0.0]).counts.tolist() == [1, 0]
    assert Bags.from_groups(groups, [[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]).num_classes == 3


@pytest.mark.parametrize(
    "counts",
    [
        {"a": [1, 0, 1], "b": (0, 1, 0)},
        {"a": torch.tensor([1, 0, 1]), "b": np.array([0, 1, 0])},
        [[1, 0, 1], [0, 1, 0]],
        torch.tensor([[1, 0, 1], [0, 1, 0]]),
    ],
)
def test_from_groups_takes_class_counts(counts):
    bags = Bags.from_groups(["a", "b", "a"], counts)
    assert bags.counts.tolist() == [[1, 0, 1], [0, 1, 0]]


def test_pandas_series():
    pd = pytest.importorskip("pandas")
    groups = pd.Series(["b", "a", "b"], index=[10, 20, 30])
    counts = pd.Series([2, 1], index=["b", "a"])
    for ids in (groups, groups.astype("category"), groups.astype("string")):
        assert rows_of(Bags.from_groups(ids, counts)) == {"b": [0, 2], "a": [1]}
    dates = pd.Series(pd.to_datetime(["2020-01-02", "2020-01-01"]))
    assert Bags.from_groups(dates, dict.fromkeys(dates, 1)).counts.tolist() == [1, 1]
    numbers = pd.Series([7, 5, 7], dtype="Int64")
    assert rows_of(Bags.from_groups(numbers, {5: 0, 7: 1})) == {7: [0, 2], 5: [1]}
    numbers[1] = pd.NA
    with pytest.raises(LLPError, match=r"groups\[1\] = .* is missing"):
        Bags.from_groups(numbers, {7: 1})
    with pytest.raises(LLPError, match="counts has more than one entry for 'a'; keep one"):
        Bags.from_groups(["a"], pd.Series([1, 1], index=["a", "a"]))
    with pytest.raises(LLPError, match="counts is a table; pass dict"):
        Bags.from_groups([0, 1], pd.DataFrame([[1, 0], [0, 1]]))


def test_bags_of_one():
    labels = np.arange(10**5) % 2
    bags = Bags.from_groups(np.arange(10**5), labels)
    assert bags.sizes.unique().tolist() == [1]
    assert bags.counts.tolist() == labels.tolist()


# Building from labels and proportions


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1))
def test_from_labels_counts_them(pairs):
    groups, labels = map(list, zip(*pairs, strict=True))
    bags = Bags.from_labels(labels, groups, num_classes=3)
    expected = [
        [sum(labels[r] == k for r in rows) for k in range(3)] for rows in by_hand(groups).values()
    ]
    assert bags.counts.tolist() == expected
    positive = Bags.from_labels([label == 1 for label in labels], groups)
    assert positive.counts.tolist() == [row[1] for row in expected]
    assert not any("label" in name for name in vars(positive))


@given(st.data(), st.lists(st.integers(1, 300), min_size=1, max_size=5))
def test_from_proportions_finds_the_counts(data, sizes):
    counts = [data.draw(st.integers(0, n)) for n in sizes]
    groups = np.repeat(np.arange(len(sizes)), sizes)
    p = np.array(counts) / sizes
    assert Bags.from_proportions(groups, p).counts.tolist() == counts
    assert Bags.from_proportions(groups, p.astype(np.float32)).counts.tolist() == counts
    two = Bags.from_proportions(groups, np.stack([1 - p, p], 1))
    assert two.counts[:, 1].tolist() == counts


@given(st.integers(1, 400), st.integers(0, 3), st.booleans(), st.data())
def test_rounded_proportions_become_the_interval_that_rounds_to_them(n, decimals, narrow, data):
    k = data.draw(st.integers(0, n))
    unit = Fraction(1, 10**decimals)
    units = data.draw(st.sampled_from([Fraction(k, n) / unit // 1, -(-Fraction(k, n) / unit // 1)]))
    p = units * unit
    expected = [j for j in range(n + 1) if abs(Fraction(j, n) - p) <= unit / 2]
    given_p = np.array([float(p)], dtype=np.float32 if narrow else np.float64)
    if not expected:
        with pytest.raises(LLPError, match="not a whole count"):
            Bags.from_proportions([0] * n, given_p, decimals=decimals)
        return
    bag = Bags.from_proportions([0] * n, given_p, decimals=decimals)[0]
    assert (bag.low, bag.high) == (expected[0], expected[-1])


def test_rounded_class_proportions():
    bags = Bags.from_proportions(["a"] * 3, {"a": [0.33, 0.33, 0.33]}, decimals=2)
    assert bags[0].count == (1, 1, 1)
    wide = Bags.from_proportions(["a"] * 300, {"a": [0.33, 0.33, 0.33]}, decimals=2)
    assert wide[0].low == (98, 98, 98)
    assert wide[0].high == (100, 100, 100)


# Selecting, splitting, joining


@pytest.mark.parametrize(
    "index",
    [
        [3, 0],
        (3, 0),
        np.array([3, 0]),
        torch.tensor([3, 0]),
        torch.tensor([-1, 0], dtype=torch.int32),
        slice(3, None, -3),
        range(3, -1, -3),
    ],
)
def test_selection_by_position(index):
    some = toy()[index]
    assert rows_of(some) == {"d": [9, 8, 7, 6], "a": [4, 1]}
    assert some.counts.tolist() == [2, 1]
    assert some.offsets.tolist() == [0, 4, 6]
    assert some.num_rows == 10


@pytest.mark.parametrize("form", [list, np.array, torch.tensor])
def test_selection_by_mask(form):
    assert toy()[form([False, True, False, True])].ids == ("b", "d")


@pytest.mark.parametrize("index", [2, -2, np.int8(2), np.array(2), torch.tensor(2)])
def test_selection_of_one(index):
    bag = toy()[index]
    assert (bag.id, bag.rows.tolist(), bag.count) == ("c", [0, 2, 3], 3)


def test_selection_keeps_the_kind_of_evidence():
    table = Evidence.weights(torch.arange(7.0), [0, 3, 7])
    bags = Bags([0, 2, 5], table)[[1, 0]]
    assert bags.evidence.table.tolist() == [3, 4, 5, 6, 0, 1, 2]
    classes = Bags([0, 2, 5], [[1, 1], [2, 1]])[[1]]
    assert classes.counts.tolist() == [[2, 1]]


def test_split():
    bags = Bags.from_groups(np.arange(50), np.zeros(50))
    first, second = bags.split(0.3, generator=0)
    assert (len(first), len(second)) == (15, 35)
    assert sorted(first.ids + second.ids) == list(range(50))
    assert list(first.ids) == sorted(first.ids)
    assert first.ids != bags.split(0.3, generator=1)[0].ids


@given(st.integers(2, 6), st.integers(0, 20), st.none() | st.integers(0, 99))
def test_kfold_holds_every_bag_out_once(k, more, seed):
    bags = Bags.from_groups(np.arange(k + more), np.zeros(k + more))
    folds = list(bags.kfold(k, seed))
    held_out = [held.ids for _, held in folds]
    assert sorted(sum(held_out, ())) == list(range(k + more))
    assert max(map(len, held_out)) - min(map(len, held_out)) <= 1
    for train, held in folds:
        assert sorted(train.ids + held.ids) == list(range(k + more))
    if seed is None:
        assert sum(held_out, ()) == bags.ids


def test_concat_stacks_the_tables():
    both = Bags.concat([toy(), Bags([0, 1, 3], Evidence.at_least([1, 1]), ids=["e", "a"])])
    assert both.num_rows == 13
    assert both.ids == ("a", "b", "c", "d", "e", "a")
    assert both.offsets.tolist() == [0, 2, 2, 5, 9, 10, 12]
    assert both.rows.tolist() == [*toy().rows.tolist(), 10, 11, 12]
    assert not both.evidence.is_exact
    assert Bags.concat(bags for bags in [both]).rows.tolist() == both.rows.tolist()


# Random bags


@given(st.integers(1, 60), st.data())
def test_random_bags(num_rows, data):
    low = data.draw(st.integers(1, num_rows))
    high = data.draw(st.integers(low, num_rows))
    labels = np.random.default_rng(0).integers(0, 3, num_rows)
    bags = random_bags(labels, (low, high), generator=5, num_classes=3)
    sizes, rows = bags.sizes.tolist(), bags.rows.tolist()
    assert all(low <= size <= high for size in sizes[:-1])
    assert 1 <= sizes[-1] <= high
    assert sorted(rows) == list(range(num_rows))
    for bag in bags:
        assert bag.count == tuple(np.bincount(labels[bag.rows.numpy()], minlength=3).tolist())


@pytest.mark.parametrize("alpha", [0.02, 1.0, 1000.0])
def test_concentrated_bags_use_every_row_once_and_count_it(alpha):
    labels = np.arange(300) % 3
    bags = random_bags(labels, (5, 9), generator=1, num_classes=3, concentration=alpha)
    assert sorted(bags.rows.tolist()) == list(range(300))
    for bag in bags:
        counted = np.bincount(labels[bag.rows], minlength=3)
        assert list(bag.count) == counted.tolist()
    # How much of a bag its largest class takes: all, some, about a third.
    purity = (bags.counts.amax(1) / bags.sizes).mean()
    low, high = {0.02: (0.85, 1.0), 1.0: (0.55, 0.8), 1000.0: (0.4, 0.55)}[alpha]
    assert low < purity < high
    with pytest.raises(LLPError, match="concentration = 0"):
        random_bags(labels, 5, generator=0, num_classes=3, concentration=0)


def test_random_bags_of_one_size():
    labels = [0, 1, 1, 0, 1, 1, 1]
    assert random_bags(labels, 3, generator=0).sizes.tolist() == [3, 3, 1]
    assert random_bags(labels, 7, generator=0).counts.tolist() == [5]
    assert random_bags(labels, 3, generator=0).counts.sum() == 5


def test_random_sizes_are_uniform():
    # About 20,000 bags; the bound is six standard deviations of a share of 1/4.
    sizes = random_bags(np.zeros(50_000), (1, 4), generator=0).sizes
    share = sizes.bincount()[1:] / len(sizes)
    assert (share - 0.25).abs().max() < 6 * (0.25 * 0.75 / len(sizes)) ** 0.5


def test_random_bags_are_seeded():
    labels = np.zeros(100)
    assert (
        random_bags(labels, 5, generator=1).rows.tolist()
        == random_bags(labels, 5, generator=1).rows.tolist()
    )
    assert (
        random_bags(labels, 5, generator=1).rows.tolist()
        != random_bags(labels, 5, generator=2).rows.tolist()
    )


# Refusals

EIGHTEEN = np.arange(19) * 8  # eighteen bags of eight


@pytest.mark.parametrize(
    ("call", "message"),
    [
        # counts
        (
            lambda: Bags(EIGHTEEN, [1] * 17 + [9]),
            r"^counts\[17\] = 9 but bag 17 has 8 instances; if these are proportions use "
            r"Bags\.from_proportions$",
        ),
        (
            lambda: Bags([0, 1, 2, 3], [1, 2, 3]),
            r"counts\[1\] = 2 but bag 1 has 1 instance;.*\(2 such bags in all\)",
        ),
        (
            lambda: Bags([0, 2], [3], ids=["x"]),
            r"counts\[0\] = 3 but bag 0 \(id 'x'\) has 2 instances",
        ),
        (
            lambda: Bags.from_groups(["x", "y", "y"], {"x": 1, "y": 3}),
            r"counts\['y'\] = 3 but bag 1 \(id 'y'\) has 2 instances",
        ),
        (
            lambda: Bags.from_groups([5, 6], [0, 2]),
            r"counts\[1\] = 2 but bag 1 \(id 6\) has 1 instance",
        ),
        (lambda: Bags([0, 2, 4], [0, -1]), r"counts\[1\] = -1 of bag 1 is negative"),
        (
            lambda: Bags.from_groups(["x"], {"x": -1}),
            r"counts\['x'\] = -1 of bag 0 \(id 'x'\) is negative; for",
        ),
        (
            lambda: Bags([0, 2, 4], [0, 0.5]),
            r"counts\[1\] = 0\.5 of bag 1 is not a whole number; for proportions use Bags\.from",
        ),
        (
            lambda: Bags.from_groups(["x", "y"], {"x": 0, "y": float("nan")}),
            r"counts\['y'\] = nan of bag 1 \(id 'y'\) is not a whole .* a missing count Evidence",
        ),
        (lambda: Bags([0, 2, 4], [0, None]), r"counts\[1\] = None of bag 1 is not a number"),
        (
            lambda: Bags([0, 2, 4], ["0", "1"]),
            r"counts\[0\] = '0' of bag 0 is not a number.*\(2 such entries",
        ),
        (
            lambda: Bags([0, 2, 4], [0, 0.5], ids=["x", "y"]),
            r"counts\[1\] = 0\.5 of bag 1 \(id 'y'\) is not a whole number",
        ),
        (lambda: Bags([0, 2], [10**400]), "counts cannot be read as an array"),
        (
            lambda: Bags([0, 2], np.array([2**63], dtype=np.uint64)),
            r"counts\[0\] = 9223372036854775808 of bag 0 is not a whole number",
        ),
        (lambda: Bags([0, 2], None), "counts = None is not a number"),
        (lambda: Bags([0, 2], 1), r"counts has shape \(\); give \(B,\), or \(B, K\)"),
        (lambda: Bags([0, 2], [[1]]), r"counts has shape \(1, 1\)"),
        (lambda: Bags([0, 2], [1, 1]), "counts has 2 entries but there are 1 bags"),
        (lambda: Bags([0, 2], np.ma.masked_equal([1], 1)), "counts has masked entries"),
        (lambda: Bags([0, 2], Evidence.unknown(3)), "evidence has 3 entries but there are 1 bags"),
        # class counts
        (
            lambda: Bags([0, 2, 4], [[1, 1, 0], [0, 1, 0]]),
            r"counts\[1\] = 0, 1, 0 but bag 1 has 2 instances; the counts of all classes must sum",
        ),
        (
            lambda: Bags([0, 2, 4], [[1, 1, 0], [0, 3, 0]]),
            r"counts\[1, 1\] = 3 but bag 1 has 2 instances",
        ),
        (
            lambda: Bags.from_groups(["x", "x"], {"x": [1, -1, 2]}),
            r"counts\['x'\]\[1\] = -1 of bag 0 \(id 'x'\) is negative",
        ),
        (
            lambda: Bags.from_groups(["x", "y"], {"x": [1, 0], "y": [1, 0, 0]}),
            r"counts\['y'\] = \[1, 0, 0\] of bag 1 \(id 'y'\) has 3 numbers but the first entry",
        ),
        (
            lambda: Bags.from_groups(["x", "y"], {"x": 1, "y": [1, 0, 0]}),
            r"of bag 1 \(id 'y'\) has 3 numbers but the first entry has 1; give the same number",
        ),
        # evidence that no count of the bag can fulfil
        (
            lambda: Bags([0, 2, 4], Evidence.interval([0, 3], [1, 5]), ids=["x", "y"]),
            r"counts\[1\] = 3 to 5 but bag 1 \(id 'y'\) has 2 instances",
        ),
        (
            lambda: Bags([0, 2, 4], Evidence.at_least([1, 3])),
            r"counts\[1\] = 3 or more but bag 1 has 2 instances",
        ),
        (
            lambda: Bags([0, 2], Evidence.interval([[0, 0, 0]], [[1, 0, 0]])),
            r"counts\[0\] = 0 to 1, 0, 0 but bag 0 has 2 instances; the counts of all classes",
        ),
        (
            lambda: Bags([0, 2], Evidence.weights([0.0, 0.0], [0, 2])),
            "the evidence has weights for counts 0 to 1 but bag 0 has 2 instances",
        ),
        (
            lambda: Bags([0, 2, 3], Evidence.weights([0.0] * 3 + [-np.inf] * 2, [0, 3, 5])),
            "the evidence of bag 1 gives no count a weight",
        ),
        # groups and ids
        (
            lambda: Bags.from_groups(["x", "y", "z"], {"x": 0}),
            r"bag 1 \(id 'y'\) has no entry in counts; add one or drop its rows \(2 such bags",
        ),
        (
            lambda: Bags.from_groups(["x"], {"x": 0, "y": 1}),
            "counts has an entry for 'y' but no row is in that bag; remove it$",
        ),
        (lambda: Bags.from_groups(["x"], dict), "counts cannot be read as a mapping"),
        (lambda: Bags.from_groups([], {}), "groups is empty"),
        (lambda: Bags.from_groups("abc", [0]), "groups is a str; give a sequence"),
        (lambda: Bags.from_groups(3, [0]), "groups is a int; give a sequence"),
        (lambda: Bags.from_groups(np.zeros((2, 2)), [0]), r"groups has shape \(2, 2\)"),
        (
            lambda: Bags.from_groups([1, None, 2, None], [0]),
            r"groups\[1\] = None is missing; drop the row or give it an id \(2 such rows in all\)",
        ),
        (lambda: Bags.from_groups(np.array([1, np.nan]), [0]), r"groups\[1\] = nan is missing"),
        (
            lambda: Bags.from_groups(np.array(["2020", "NaT"], "M8[D]"), [0]),
            r"groups\[1\] = .*NaT.* is missing",
        ),
        (
            lambda: Bags.from_groups(np.ma.masked_equal([1, 2], 2), [0]),
            "groups has masked entries; drop their rows",
        ),
        (
            lambda: Bags.from_groups(["x", ["y"], "z"], [0]),
            r"groups\[1\] = \['y'\] is not hashable; use a number, a string or a tuple",
        ),
        (
            lambda: Bags.from_groups(list(torch.arange(2)), [0, 0]),
            r"groups\[0\] = tensor\(0\) is a tensor.*use \.tolist\(\) \(2 such rows in all\)",
        ),
        (lambda: Bags([0, 2, 4], [0, 0], ids=["x"]), "ids has 1 entries but there are 2 bags"),
        (lambda: Bags([0, 2, 4], [0, 0], ids=["x", {}]), r"ids\[1\] = \{\} is not hashable"),
        # offsets and rows
        (lambda: Bags([0, 3, 2], [0, 0]), r"offsets\[2\] = 2 is below offsets\[1\] = 3, so bag 1"),
        (lambda: Bags([1, 3], [0]), r"offsets\[0\] = 1; offsets start at 0"),
        (lambda: Bags([0], []), r"offsets has shape \(1,\); give B \+ 1 numbers for B > 0 bags"),
        (lambda: Bags([0, 1.5], [0]), r"offsets\[1\] = 1\.5 is not a whole number; give integers"),
        (lambda: Bags([0, 2**52], [0]), "offsets end at 4503599627370496: too many to fit"),
        (lambda: Bags([0, 2], [0], rows=[1]), r"rows has shape \(1,\) but offsets end at 2"),
        (lambda: Bags([0, 2], [0], rows=[0, -1]), r"rows\[1\] = -1 but the table has 1 rows"),
        (
            lambda: Bags([0, 2], [0], rows=[0, 5], num_rows=5),
            r"rows\[1\] = 5 but the table has 5 rows, numbered from 0",
        ),
        (lambda: Bags([0, 3], [0], rows=[4, 1, 4]), r"rows\[2\] = 4 is a duplicate"),
        (lambda: Bags([0, 2], [0], num_rows=1), r"rows\[1\] = 1 but the table has 1 rows"),
        (
            lambda: Bags([0, 2], [0], num_rows=-1),
            "num_rows = -1; give a whole number of at least 0",
        ),
        # labels
        (
            lambda: Bags.from_labels([0, 2, 1], [1, 1, 1]),
            r"labels\[1\] = 2 but labels go from 0 to 1; give num_classes for more",
        ),
        (
            lambda: Bags.from_labels([0, 2, -1], [1, 1, 1], num_classes=3),
            r"labels\[2\] = -1 but labels go from 0 to 2",
        ),
        (lambda: Bags.from_labels([0, 0.5], [1, 1]), r"labels\[1\] = 0\.5 is not a whole number"),
        (lambda: Bags.from_labels([0, 1], [1]), "labels has 2 rows but groups has 1"),
        (lambda: Bags.from_labels([[0, 1]], [1]), r"labels has shape \(1, 2\)"),
        (lambda: Bags.from_labels([0], [1], num_classes=1), "num_classes = 1; give a whole number"),
        # proportions
        (
            lambda: Bags.from_proportions(["x"] * 4, {"x": 0.3}),
            r"proportions\['x'\] = 0\.3 of bag 0 \(id 'x'\) makes 1\.2 of its 4 instances, not a "
            r"whole count; if it was rounded, use decimals=1",
        ),
        (
            lambda: Bags.from_proportions([0, 1], [0, 35]),
            r"proportions\[1\] = 35\.0 of bag 1 is not between 0 and 1; divide percentages by 100",
        ),
        (
            lambda: Bags.from_proportions([0], [1, 1]),
            "proportions has 2 entries but there are 1 bags",
        ),
        (
            lambda: Bags.from_proportions(["x", "x"], {"x": [0.5, 0.0, 0.0]}),
            r"proportions\['x'\] = .* of bag 0 \(id 'x'\) sum to 0\.5; all classes together",
        ),
        (
            lambda: Bags.from_proportions([0, 0], [[0.25, 0.75, 0.0]]),
            r"proportions\[0, 0\] = 0\.25 of bag 0 makes 0\.5 of its 2 instances",
        ),
        (
            lambda: Bags.from_proportions([0, 0, 0], [[0.31, 0.31, 0.31]], decimals=2),
            r"proportions\[0\] = .* sum to 0\.93",
        ),
        (
            lambda: Bags.from_proportions([0] * 4, [0.35], decimals=2),
            r"proportions\[0\] = 0\.35 of bag 0 makes 1\.4 of its 4 instances, not a whole count",
        ),
        (
            lambda: Bags.from_proportions([0] * 3, [0.3333], decimals=2),
            r"proportions\[0\] = 0\.3333 of bag 0 has more decimals; use decimals=4",
        ),
        (
            lambda: Bags.from_proportions([0], [1], tolerance=0.5),
            r"tolerance = 0\.5; give a number",
        ),
        (
            lambda: Bags.from_proportions([0], [1], decimals=-1),
            "decimals = -1; give a whole number from 0 to 12",
        ),
        # selecting, splitting, joining
        (lambda: toy()[4], "index = 4; give a whole number from -4 to 3"),
        (lambda: toy()[[0, 4]], r"index\[1\] = 4 but there are 4 bags, numbered from 0"),
        (lambda: toy()[[0, 0.5]], r"index\[1\] = 0\.5 is not a whole number"),
        (lambda: toy()[torch.tensor(0.5)], r"index = tensor\(0\.5000\); give a whole number"),
        (lambda: toy()["a"], "index = 'a' is not a number"),
        (lambda: toy()[[1, 1]], "bag 1 is selected twice; a row is in one bag only"),
        (lambda: toy()[[]], r"index has shape \(0,\); select at least one bag"),
        (lambda: toy()[[True]], r"the mask has shape \(1,\) but there are 4 bags"),
        (lambda: toy().split(1.0, 0), r"fraction = 1\.0; give a number between 0 and 1"),
        (lambda: toy().split(0.1, 0), r"fraction = 0\.1 of 4 bags leaves a part without bags"),
        (lambda: toy().kfold(1), "k = 1; give a whole number from 2 to 4"),
        (lambda: toy().kfold(2, "seed"), "generator = 'seed'; give a torch.Generator or a seed"),
        (lambda: toy().kfold(2, np.random.default_rng(0)), "generator = .*give a torch.Generator"),
        (lambda: toy().split(0.5, -1), "generator = -1; give a torch.Generator or a seed from 0"),
        (lambda: Bags.concat([]), "Bags.concat needs Bags, at least one"),
        (lambda: Bags.concat(toy()), "Bags.concat needs Bags"),
        (lambda: Bags.concat([toy(), Bags([0, 1], [[1, 0]])]), "number of classes"),
        # random bags
        (lambda: random_bags([0, 1], 3, generator=0), "size = 3; give a whole number from 1 to 2"),
        (
            lambda: random_bags([0, 1], (2, 1), generator=0),
            "size = 1; give a whole number from 2 to 2",
        ),
        (
            lambda: random_bags([0, 1], (1, 2, 3), generator=0),
            r"size = \(1, 2, 3\); give a whole number",
        ),
        (lambda: random_bags([], 1, generator=0), r"labels has shape \(0,\)"),
        (lambda: random_bags([0, 3], 1, generator=0), r"labels\[1\] = 3 but labels go from 0 to 1"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(LLPError, match=message):
        call()
