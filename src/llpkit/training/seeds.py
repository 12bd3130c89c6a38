"""A seed for every epoch, and a context that restores the caller's random numbers."""

from contextlib import AbstractContextManager

import numpy as np
import torch


def epoch_seed(seed: int, epoch: int, *stream: int) -> int:
    """The seed of one epoch; it does not depend on the epochs before it."""
    # torch takes signed 64-bit seeds, hence the shift.
    return int(np.random.SeedSequence([seed, epoch, *stream]).generate_state(1, np.uint64)[0] >> 1)


def forked_rng(device: torch.device) -> AbstractContextManager[None]:
    """Restore torch's global random numbers, on the CPU and this device, after the block."""
    return torch.random.fork_rng([device] if device.type == "cuda" else [])
