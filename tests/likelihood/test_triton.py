"""The Triton kernels against enumeration and torch; without a card, in the interpreter."""

import functools
import math

import numpy as np
import pytest
import torch

from llpkit import likelihood
from llpkit.errors import LLPError
from llpkit.likelihood import Evidence, backends, pruned
from oracle import Enumeration, assert_close
from strategies import rounded

pytest.importorskip("triton", reason="the kernels need the package triton")
triton_binary = pytest.importorskip("llpkit.likelihood.kernels.triton_binary")
triton_pruned = pytest.importorskip("llpkit.likelihood.kernels.triton_pruned")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INF, NAN = float("inf"), float("nan")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}
each_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


@pytest.fixture(autouse=True)
def like_a_card():
    """The interpreter computes with NumPy, which warns of infinities; a card does not."""
    with np.errstate(all="ignore"):
        yield


def tensors(bags, counts, dtype=torch.float64):
    logits = torch.tensor(np.concatenate(bags), dtype=dtype, device=DEVICE)
    offsets = torch.tensor(np.cumsum([0, *map(len, bags)]), device=DEVICE)
    return logits, torch.tensor(np.asarray(counts), device=DEVICE), offsets


def both(data, backend="triton"):
    return likelihood.log_prob_and_posterior(*data, backend=backend, validate=False)


def assert_as_torch(bags, counts, dtype):
    """On the same numbers, so that only the arithmetic may differ."""
    logits, counts, offsets = tensors(bags, counts, dtype)
    log_prob, phi = both((logits, counts, offsets))
    assert log_prob.dtype == phi.dtype == dtype
    expected = both((logits.double().cpu(), counts.cpu(), offsets.cpu()), "torch")
    assert_close(log_prob.cpu().numpy(), expected[0].numpy(), TOLERANCE[dtype])
    assert_close(phi.cpu().numpy(), expected[1].numpy(), TOLERANCE[dtype])


@functools.lru_cache
def every_count(style, most=10):
    """Every count of bags of up to ten instances, by enumeration."""
    rng = np.random.default_rng(1)
    bags, counts, expected = [], [], []
    for n in range(most + 1):
        for _ in range(2):
            z = rng.integers(-1, 2, size=n) if style == "ties" else rng.normal(size=n) * style
            z = rounded(z.astype(np.float64), torch.float32)
            bags += [z] * (n + 1)
            counts += range(n + 1)
            expected += Enumeration.binary(z).exact_answers()
    return bags, counts, expected


@each_dtype
@pytest.mark.parametrize("style", [0, 1, 5, 50, 300, "ties"])
@pytest.mark.parametrize("most", [2, triton_binary.FEW, triton_binary.FEW + 1, 10])
def test_every_count(style, most, dtype):
    bags, counts, expected = every_count(style, most)
    log_prob, phi = both(tensors(bags, counts, dtype))
    assert_close(log_prob.cpu().numpy(), [e.log_prob for e in expected], TOLERANCE[dtype])
    posterior = np.concatenate([e.posterior for e in expected])
    assert_close(phi.cpu().numpy(), posterior, TOLERANCE[dtype])


@each_dtype
@pytest.mark.parametrize("sd", [1, 300])
def test_every_size_to_forty(sd, dtype):
    rng = np.random.default_rng(2)
    sizes = np.array([*range(33), *range(33), 33, 36, 40])
    bags = [rng.normal(size=n) * sd + rng.choice([0, 0, -3, 25, -200]) for n in sizes]
    assert_as_torch(bags, rng.integers(0, sizes + 1), dtype)


@each_dtype
@pytest.mark.parametrize("sd", [0, 1, 300])
def test_large_bags(sd, dtype):
    rng = np.random.default_rng(3)
    sizes = np.array([64, 100, 128, 500, 2000])
    bags = [rng.normal(size=n) * sd for n in sizes]
    assert_as_torch(bags, np.maximum(1, sizes // rng.integers(2, 9, size=5)), dtype)


@each_dtype
def test_counts_far_from_the_mean(dtype):
    rng = np.random.default_rng(4)
    bags = [rng.normal(size=n) * sd - 200 for n in (9, 30, 300) for sd in (0, 3, 100)]
    assert_as_torch(bags, [1, 8, 4, 29, 1, 15, 299, 1, 150], dtype)


@each_dtype
@pytest.mark.parametrize("n", [4, 7, 24, 70])
def test_any_finite_logits(n, dtype):
    """Ties, clusters and gaps at scales where adding one changes nothing."""
    huge = 3e36 if dtype == torch.float32 else 1e300
    rng = np.random.default_rng(5)
    bags = [np.full(n, 1e30), np.full(n, -huge), np.where(np.arange(n) % 2, huge, -huge)]
    bags += [rng.choice([-1e30, 0.0, 1.0, 1e30], size=n), rng.choice([-1e4, 1e4, 1e4 + 1], size=n)]
    bags += [rng.choice([-1e-40, 0.0, 1e-20], size=n)]
    counts = [n // 3] * len(bags)
    assert_as_torch(bags, counts, dtype)


@each_dtype
@pytest.mark.parametrize("n", [4, 20, 60])
def test_no_and_all_positives(n, dtype):
    z = np.random.default_rng(6).normal(size=n) * 30
    assert_as_torch([z, z], [0, n], dtype)
    phi = both(tensors([z, z], [0, n], dtype))[1].view(2, n)
    assert (phi[0] == 0).all()
    assert (phi[1] == 1).all()


@each_dtype
@pytest.mark.parametrize("n", [3, 6, 25, 50])
@pytest.mark.parametrize("sd", [1, 100])
def test_known_labels(n, sd, dtype):
    rng = np.random.default_rng(7)
    bags, counts = [], []
    for share in (0.1, 0.5, 1.0):
        z = rng.normal(size=n) * sd
        z = np.where(rng.random(n) < share, rng.choice([-INF, INF], size=n), z)
        least, most = int((z == INF).sum()), n - int((z == -INF).sum())
        for y in {least, (least + most) // 2, most}:
            bags.append(z)
            counts.append(y)
    assert_as_torch(bags, counts, dtype)


@each_dtype
@pytest.mark.parametrize("n", [3, 8, 20, 45])
def test_impossible_bags_have_their_prior(n, dtype):
    z = np.linspace(-2, 3, n)
    sure = z.copy()
    sure[:2] = INF
    bags, counts = [z, sure, -sure, z, z], [n + 1, 1, n - 1, -1, 1]
    logits, y, offsets = tensors(bags, counts, dtype)
    # No negative count gets past the public functions on the CPU, but one on a card may.
    log_prob, phi = triton_binary.evaluate(logits, offsets, y)
    assert log_prob.isinf().tolist() == [True] * 4 + [False]
    torch.testing.assert_close(phi[: 4 * n], logits[: 4 * n].sigmoid())


@pytest.mark.parametrize("n", [3, 8, 20, 45])
@pytest.mark.parametrize("y", [0, 1])
def test_nan_comes_out_for_its_own_bag_only(n, y):
    z = np.zeros(n)
    z[1] = NAN
    log_prob, phi = both(tensors([np.zeros(n), z, np.zeros(n)], [1, y, 1], torch.float32))
    assert log_prob.isnan().tolist() == [False, True, False]
    assert phi.isnan().tolist() == [False] * n + [True] * n + [False] * n


def test_nothing_at_all():
    for sizes in ([], [0], [0, 0, 0]):
        log_prob, phi = both(tensors([np.zeros(0), *map(np.zeros, sizes)], [0] * (1 + len(sizes))))
        assert (log_prob == 0).all()
        assert len(phi) == 0
    empty = torch.zeros(0, device=DEVICE)
    no_counts, start = empty.long(), torch.zeros(1, dtype=torch.int64, device=DEVICE)
    assert [len(x) for x in both((empty, no_counts, start))] == [0, 0]


def mixed(rng):
    """Bags for all kernels, side by side, some of them empty."""
    sizes = np.array([0, 5, 33, 1, 12, 0, 0, 13, 2, 70, 12, 32, 3, 0, 7, 20, 4, 4, 9, 0])
    return [rng.normal(size=n) * 2 for n in sizes], rng.integers(0, sizes + 1)


@each_dtype
def test_few_instances_beside_many(dtype):
    """Programs whose bags all have few instances take another way than their neighbours."""
    rng = np.random.default_rng(11)
    lanes = triton_binary.LANES
    sizes = np.r_[rng.integers(0, 5, size=lanes), rng.integers(0, 13, size=lanes), 1, 4]
    bags = [rng.normal(size=n) * 3 for n in sizes]
    assert_as_torch(bags, rng.integers(0, sizes + 1), dtype)


@each_dtype
def test_mixed_sizes_in_many_programs(dtype, monkeypatch):
    monkeypatch.setattr(triton_binary, "LANES", 16)
    monkeypatch.setattr(triton_binary, "_programs", lambda _: 2)
    assert_as_torch(*mixed(np.random.default_rng(8)), dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_rounded_once(dtype):
    logits, counts, offsets = tensors(*mixed(np.random.default_rng(9)), dtype)
    log_prob, phi = both((logits, counts, offsets))
    assert log_prob.dtype == phi.dtype == dtype
    single = both((logits.float(), counts, offsets))
    torch.testing.assert_close(log_prob, single[0].to(dtype), rtol=0, atol=0)
    torch.testing.assert_close(phi, single[1].to(dtype), rtol=0, atol=0)


@each_dtype
def test_gradient_is_posterior_minus_prior(dtype):
    logits, counts, offsets = tensors(*mixed(np.random.default_rng(10)), dtype)
    logits.requires_grad_()
    log_prob, phi = both((logits, counts, offsets))
    (grad,) = torch.autograd.grad(log_prob.sum(), logits, retain_graph=True)
    tolerance = TOLERANCE[dtype]
    assert_close((grad + logits.sigmoid()).detach().cpu(), phi.detach().cpu(), tolerance)
    weight = torch.linspace(-1, 1, len(counts), dtype=dtype, device=DEVICE)
    (grad,) = torch.autograd.grad((weight * log_prob).sum(), logits)
    bag = torch.repeat_interleave(offsets.diff())
    expected = weight[bag] * (phi - logits.sigmoid()).detach()
    assert_close(grad.cpu(), expected.detach().cpu(), tolerance)


def test_derivatives():
    rng = np.random.default_rng(11)
    logits, counts, offsets = tensors([rng.normal(size=n) for n in (3, 0, 14, 34)], [1, 0, 6, 20])
    logits.requires_grad_()

    def log_prob(z):
        return likelihood.log_prob(z, counts, offsets, backend="triton")

    assert torch.autograd.gradcheck(log_prob, logits, fast_mode=True)
    assert torch.autograd.gradgradcheck(log_prob, logits, fast_mode=True)
    assert torch.autograd.gradcheck(
        lambda z: likelihood.posterior(z, counts, offsets, backend="triton"), logits, fast_mode=True
    )


def test_second_derivative_of_single_precision():
    bag, results = np.random.default_rng(12).normal(size=5), []
    for backend, dtype in (("triton", torch.float32), ("torch", torch.float64)):
        logits, counts, offsets = tensors([bag], [2], dtype)
        logits.requires_grad_()
        log_prob = likelihood.log_prob(logits, counts, offsets, backend=backend)
        (grad,) = torch.autograd.grad(log_prob.sum(), logits, create_graph=True)
        (second,) = torch.autograd.grad(grad.square().sum(), logits)
        results.append(second.double().cpu())
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)


def test_logits_that_are_not_contiguous():
    z = torch.randn(8, 2, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(0))
    data = z[:, 0], torch.tensor([3], device=DEVICE), torch.tensor([0, 8], device=DEVICE)
    assert_close(both(data)[1].cpu(), both(data, "torch")[1].cpu(), 2e-5)


def test_what_the_kernels_do_not_take():
    z, offsets = torch.zeros(3, device=DEVICE), torch.tensor([0, 3], device=DEVICE)
    with pytest.raises(LLPError, match='exact counts of binary labels; use backend = "torch"'):
        likelihood.log_prob(z, Evidence.at_least([1]), offsets, backend="triton")
    with pytest.raises(LLPError, match='exact counts of binary labels; use backend = "torch"'):
        likelihood.log_prob(z[:, None].expand(3, 3), [[1, 1, 1]], offsets, backend="triton")


def test_without_a_card_or_the_package(monkeypatch):
    monkeypatch.setattr(backends, "triton_interpreted", lambda: False)
    with pytest.raises(LLPError, match=r"needs CUDA tensors \(these are on cpu\)"):
        likelihood.log_prob(torch.zeros(2), [1], [0, 2], backend="triton")
    monkeypatch.setattr(backends, "installed", lambda _: False)
    with pytest.raises(LLPError, match=r'installed: False\); use backend = "auto"'):
        likelihood.log_prob(torch.zeros(2), [1], [0, 2], backend="triton")


@pytest.mark.parametrize("wrong", ["count", "logit", "log_prob"])
def test_the_comparison_notices_a_broken_kernel(wrong, monkeypatch):
    bags, counts = mixed(np.random.default_rng(13))
    evaluate = triton_binary.evaluate

    def broken(z, offsets, counts):
        if wrong == "count":
            last = int((counts < offsets.diff()).nonzero()[-1])
            counts = counts.clone()
            counts[last] += 1
        if wrong == "logit":
            z = z.clone()
            z[len(z) // 2] += 1e-3
        log_prob, phi = evaluate(z, offsets, counts)
        return log_prob + (1e-4 if wrong == "log_prob" else 0), phi

    assert_as_torch(bags, counts, torch.float32)
    monkeypatch.setattr(triton_binary, "evaluate", broken)
    with pytest.raises(AssertionError, match="scaled error"):
        assert_as_torch(bags, counts, torch.float32)


def test_one_lane_s_sum_is_exact_for_equal_logits():
    """Every label combination is as probable: a binomial coefficient, and y / n."""
    n, y = 32, 16
    log_prob, phi = both(tensors([np.zeros(n)], [y], torch.float64))
    expected = math.log(math.comb(n, y)) - n * math.log(2)
    assert float(log_prob) == pytest.approx(expected, rel=1e-14)
    assert_close(phi.cpu(), np.full(n, y / n), 1e-14)


@pytest.mark.parametrize("kernel", ["small", "medium", "large", "_pull_back"])
def test_a_kernel_that_cannot_be_launched_is_told_once(kernel, monkeypatch):
    class Fails:
        def __getitem__(self, _):
            raise RuntimeError("no compiler\nand more")

    monkeypatch.setattr(triton_binary, kernel, Fails())
    backends.triton_launches.cache_clear()
    with pytest.warns(UserWarning, match=r"could not be launched \(no compiler\); the torch"):
        assert not backends.triton_launches(torch.device(DEVICE), torch.float32)
    # And no second warning.
    assert not backends.triton_launches(torch.device(DEVICE), torch.float32)
    backends.triton_launches.cache_clear()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_all_kernels_can_be_launched(dtype):
    backends.triton_launches.cache_clear()
    assert backends.triton_launches(torch.device(DEVICE), dtype)
    backends.triton_launches.cache_clear()


def test_classes_by_the_saddlepoint_kernel_are_as_in_float64():
    rng = np.random.default_rng(5)
    z = 3 * rng.normal(size=(12, 4))
    z[5] = [0, INF, 0, 0]
    z[6, 2] = -INF
    bags, counts = [z[:7], z[:0], z[7:8]], [[2, 1, 3, 1], [0, 0, 0, 0], [0, 0, 1, 0]]
    logits, counts, offsets = tensors(bags, counts, torch.float32)
    options = {"approximation": "saddlepoint", "validate": False}
    log_prob, phi = likelihood.log_prob_and_posterior(
        logits, counts, offsets, backend="triton", **options
    )
    assert phi.dtype == torch.float32
    data = logits.double().cpu(), counts.cpu(), offsets.cpu()
    expected = likelihood.log_prob_and_posterior(*data, backend="torch", **options)
    assert_close(log_prob.cpu().numpy(), expected[0].numpy(), 1e-4)
    assert_close(phi.cpu().numpy(), expected[1].numpy(), 1e-4)


@pytest.mark.parametrize("width", [512, 4])
def test_the_pruned_recursion_is_as_in_torch(width, monkeypatch):
    """Bags of any size in one program; of more than 64 states; and given up for too many."""
    rng = np.random.default_rng(8)
    sizes = (9, 3, 8, 0)
    q = torch.tensor(rng.dirichlet(np.full(5, 0.8), 20)).float()
    counts = torch.tensor([[2, 2, 2, 2, 1], [1, 1, 0, 1, 0], [8, 0, 0, 0, 0], [0] * 5])
    offsets = torch.tensor(np.cumsum([0, *sizes]))
    gap, log_p = torch.tensor([4.25, 0.5, 0.0, 0.0]), torch.tensor([-5.0, -2.0, -3.0, 0.0])
    phi = torch.full((20, 5), 0.2)
    monkeypatch.setattr(pruned, "WIDTH", width)
    expected = pruned.refine(
        q.double(), counts, offsets, (log_p + gap).double(), log_p.double(), phi.double()
    )
    monkeypatch.setattr(triton_pruned, "_PROGRAMS", 1)
    given = [x.to(DEVICE) for x in (q.log(), counts, offsets, gap, log_p, phi)]
    triton_pruned.refine(*given)
    assert_close(given[4].cpu().numpy(), expected[0].numpy(), 1e-5)
    assert_close(given[5].cpu().numpy(), expected[1].numpy(), 1e-5)
    changed = (expected[0] != log_p).tolist()
    assert changed == [width == 512, True, False, False]


def test_unusual_classes_in_the_saddlepoint_kernel():
    """An impossible bag has its prior; NaN makes its bag NaN."""
    z = np.tile([0.0, 1.0, -INF], (3, 1))
    sick = np.array([[0.0, NAN, 1.0]])
    logits, counts, offsets = tensors([z, sick], [[1, 1, 1], [0, 1, 0]], torch.float32)
    options = {"approximation": "saddlepoint", "backend": "triton", "validate": False}
    log_prob, phi = likelihood.log_prob_and_posterior(logits, counts, offsets, **options)
    assert log_prob[0] == -INF
    assert log_prob[1].isnan()
    assert phi[3].isnan().all()
    assert_close(phi[:3].cpu().numpy(), np.tile([0.26894142, 0.73105858, 0], (3, 1)), 1e-6)


@each_dtype
@pytest.mark.parametrize(
    ("sizes", "scale"), [((33, 64, 40), 1.5), ((100, 128, 5, 70), 1e4), ((1000, 33), 1.5)]
)
def test_tiles_of_medium_bags(sizes, scale, dtype, monkeypatch):
    """Every kind of bag in one tile: usual, of one label only, with known labels, impossible."""
    monkeypatch.setattr(triton_binary, "MEDIUM", (64, 1024))
    rng = np.random.default_rng(6)
    bags = [rounded(scale * rng.normal(size=n), torch.float32) for n in (*sizes, 35, 36, 50, 51)]
    counts = [n // 3 for n in sizes] + [0, 36, 20, 51]
    bags[-2][:3], bags[-1][0] = [INF, -INF, INF], -INF
    assert_as_torch(bags, counts, dtype)


@each_dtype
def test_bags_on_both_sides_of_a_tile(dtype):
    """A mean of a few hundred: a tile takes bags of up to 512, the last kernel larger ones."""
    rng = np.random.default_rng(7)
    sizes = np.array([512, 513, 33, 300, 32])
    bags = [rng.normal(size=n) for n in sizes]
    assert_as_torch(bags, sizes // 3, dtype)
