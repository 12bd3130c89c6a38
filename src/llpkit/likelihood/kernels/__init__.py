"""Compiled kernels: Numba for CPU tensors, Triton for CUDA tensors.

They are imported on first use, so that the engine works without either package.
"""
