"""The most of a setting that makes sense, or that torch or a machine can take."""

EPOCHS = 10**9
SEED = 2**63 - 1
"""What a generator of torch takes."""
THREADS = 1024
"""torch crashes where the machine cannot start as many as it is told to."""
WORKERS = 1024
"""Processes beside this one."""
