"""On a card: the backends agree, nothing waits for the device, and a graph can be captured."""

import warnings

import pytest
import torch

from llpkit import likelihood
from llpkit.likelihood import Evidence
from llpkit.losses import count_loss, normal_loss, proportion_loss
from oracle import assert_close

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
pytest.importorskip("triton", reason="the kernels need the package triton")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}
each_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


def draw(sizes, sd=1.5, dtype=torch.float32, seed=0):
    """Logits, counts of labels drawn from them, offsets; on the card."""
    g = torch.Generator("cuda").manual_seed(seed)
    offsets = torch.tensor([0, *sizes], device="cuda").cumsum(0)
    z = sd * torch.randn(int(offsets[-1]), dtype=dtype, device="cuda", generator=g)
    labels = torch.rand(z.shape, dtype=dtype, device="cuda", generator=g) < z.sigmoid()
    counts = torch.segment_reduce(labels.to(dtype), "sum", offsets=offsets, initial=0).long()
    return z, counts, offsets


def assert_backends_agree(z, counts, offsets):
    by_triton = likelihood.log_prob_and_posterior(z, counts, offsets, backend="triton")
    by_torch = likelihood.log_prob_and_posterior(z.double(), counts, offsets, backend="torch")
    for one, other in zip(by_triton, by_torch, strict=True):
        assert_close(one.cpu().numpy(), other.cpu().numpy(), TOLERANCE[z.dtype])


@each_dtype
@pytest.mark.parametrize("sd", [0, 1.5, 30, 300])
def test_many_bags_of_all_sizes(sd, dtype):
    sizes = torch.randint(0, 45, (20_000,), generator=torch.Generator().manual_seed(1)).tolist()
    assert_backends_agree(*draw(sizes, sd, dtype))


@each_dtype
@pytest.mark.parametrize("sd", [0, 1.5, 300])
def test_powers_of_two(sd, dtype):
    assert_backends_agree(*draw([2**k for k in range(15)] * 3, sd, dtype))


@each_dtype
def test_one_large_bag(dtype):
    assert_backends_agree(*draw([300_000], dtype=dtype))


def test_auto_takes_the_kernels(monkeypatch):
    from llpkit.likelihood.kernels import triton_binary

    z, counts, offsets = draw([3, 4, 40])
    likelihood.posterior(z, counts, offsets)  # the first call also tries whether kernels launch
    called, evaluate = [], triton_binary.evaluate
    monkeypatch.setattr(triton_binary, "evaluate", lambda *a: called.append(1) or evaluate(*a))
    likelihood.posterior(z, counts, offsets)
    assert called == [1]
    some = Evidence.at_least([1, 1, 1])
    likelihood.posterior(z, some, offsets)
    assert called == [1]


def without_waiting(run):
    """Call it once to compile, then again while the device may not be waited for."""
    run()
    torch.cuda.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the mode is called a prototype
        torch.cuda.set_sync_debug_mode("error")
        try:
            return run()
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("as_evidence", [True, False])
def test_a_training_step_does_not_wait(dtype, as_evidence):
    z, counts, offsets = draw([3, 0, 12, 20, 50], dtype=torch.float32)
    z = z.to(dtype).requires_grad_()
    known = Evidence.exact(counts) if as_evidence else counts

    def step():
        log_prob = likelihood.log_prob(z, known, offsets, validate=False)
        return torch.autograd.grad(log_prob.sum(), z)[0]

    expected = likelihood.posterior(z, known, offsets, backend="torch") - z.sigmoid()
    torch.testing.assert_close(without_waiting(step), expected, rtol=2e-2, atol=1e-2)
    without_waiting(lambda: likelihood.posterior(z.detach(), known, offsets, validate=False))


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("loss", [count_loss, normal_loss, proportion_loss])
def test_losses_do_not_wait(loss, classes):
    z, counts, offsets = draw([3, 1, 12, 20, 50])
    if classes:
        z = torch.randn(len(z), classes, device="cuda")
        counts = torch.stack([counts, torch.zeros_like(counts), offsets.diff() - counts], 1)
    if loss is count_loss:
        if classes:
            pytest.skip("the recursion over class counts is sized on the host")
        counts = Evidence.exact(counts)
    z.requires_grad_()
    (grad,) = without_waiting(lambda: torch.autograd.grad(loss(z, counts, offsets).sum(), z))
    cpu = z.detach().cpu().requires_grad_()
    on_cpu = counts.to("cpu")
    (expected,) = torch.autograd.grad(loss(cpu, on_cpu, offsets.cpu()).sum(), cpu)
    torch.testing.assert_close(grad.cpu(), expected, rtol=1e-3, atol=1e-4)


def test_waiting_would_be_noticed():
    z, counts, offsets = draw([3, 4])
    with pytest.raises(RuntimeError, match="synchroniz"):
        without_waiting(lambda: likelihood.posterior(z, counts, offsets, backend="torch"))


def test_a_captured_graph_follows_its_inputs():
    z, counts, offsets = draw([3, 0, 12, 20, 50, 1, 7])
    z.requires_grad_()
    known = Evidence.exact(counts)

    def step():
        log_prob, phi = likelihood.log_prob_and_posterior(z, known, offsets, validate=False)
        return log_prob.detach(), phi.detach(), torch.autograd.grad(log_prob.sum(), z)[0]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        held = step()
    for seed in range(3):
        with torch.no_grad():
            z.copy_(draw([len(z)], sd=3, seed=seed)[0])
        graph.replay()
        for one, other in zip(held, step(), strict=True):
            torch.testing.assert_close(one, other)
