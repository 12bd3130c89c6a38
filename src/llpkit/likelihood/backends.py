"""Which backend computes a call: what is installed, what fits the tensors, what launches."""

import importlib
import warnings
from functools import cache

import torch
from torch import Tensor

from llpkit.errors import LLPError
from llpkit.evidence import Evidence


@cache
def installed(package: str) -> bool:
    """Whether a package can be imported."""
    try:
        importlib.import_module(package)
    except ImportError:
        return False
    return True


def use_numba(backend: str, device: torch.device) -> bool:
    """Whether to use the Numba kernels, which need tensors on the CPU."""
    if backend == "numba" and device.type != "cpu":
        raise LLPError(
            f'backend = "numba" needs CPU tensors, but these are on {device}; use backend = "torch"'
        )
    return backend != "torch" and device.type == "cpu"


def use_triton(backend: str, logits: Tensor, evidence: Evidence) -> bool:
    """Whether to use the Triton kernels; on the CPU they run only in Triton's interpreter."""
    if backend == "triton":
        _need_triton(logits)
        if logits.dim() != 1 or not evidence.is_exact:
            raise LLPError(
                'backend = "triton" takes exact counts of binary labels; use backend = "torch"'
            )
        return True
    return (
        backend == "auto"
        and logits.is_cuda
        and logits.dim() == 1
        and installed("triton")
        and evidence.is_exact
        and triton_launches(logits.device, logits.dtype)
    )


def use_triton_saddlepoint(backend: str, logits: Tensor) -> bool:
    """Whether to use the Triton kernel of the saddlepoint approximation, which has float32."""
    if backend == "triton":
        _need_triton(logits)
        return True
    return (
        backend == "auto"
        and logits.is_cuda
        and logits.dtype != torch.float64
        and installed("triton")
        and saddlepoint_launches(logits.device)
    )


def _need_triton(logits: Tensor) -> None:
    fits = logits.is_cuda or (installed("triton") and triton_interpreted())
    if not (fits and installed("triton")):
        raise LLPError(
            f'backend = "triton" needs CUDA tensors (these are on {logits.device}) and the '
            f'package triton (installed: {installed("triton")}); use backend = "auto"'
        )


@cache
def triton_launches(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether every kernel can be launched: an installed Triton may lack a compiler or headers."""
    from llpkit.likelihood.kernels import triton_binary

    try:
        offsets = torch.tensor([0, 1, 14, 514, 1614], device=device)  # a bag of each kernel
        z = torch.zeros(1614, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
        z = z.to(device)
        counts = torch.ones(4, dtype=torch.int64, device=device)
        log_p, phi = triton_binary.evaluate(z, offsets, counts)
        triton_binary.pull_back(log_p, z, phi, offsets)
    except Exception as error:
        _warn_of_triton(error)
        return False
    return True


@cache
def saddlepoint_launches(device: torch.device) -> bool:
    """Like :func:`triton_launches`, for K classes."""
    from llpkit.likelihood.kernels import triton_saddlepoint

    try:
        counts = torch.tensor([[1, 1, 1]], device=device)
        offsets = torch.tensor([0, 3], device=device)
        triton_saddlepoint.evaluate(torch.zeros(3, 3, device=device), offsets, counts)
    except Exception as error:
        _warn_of_triton(error)
        return False
    return True


def _warn_of_triton(error: Exception) -> None:
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    warnings.warn(
        f"Triton is installed but a kernel could not be launched ({first}); the torch backend "
        'is used instead, which is slower. Pass backend = "torch" to skip the attempt',
        stacklevel=3,
    )


def triton_interpreted() -> bool:
    """Whether the Triton kernels run on the CPU, in Triton's interpreter."""
    from llpkit.likelihood.kernels import triton_binary

    return triton_binary.INTERPRETED
