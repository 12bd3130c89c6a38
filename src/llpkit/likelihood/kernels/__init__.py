"""Compiled kernels: Numba for CPU tensors, Triton for CUDA tensors.

They are imported where they are first used, so that the engine works without either package.
"""
