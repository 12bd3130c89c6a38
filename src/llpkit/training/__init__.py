"""Training: one call, :func:`fit`, and the pieces underneath, usable on their own."""

from llpkit.training._batches import bag_batches, instance_batches
from llpkit.training._callbacks import Callback, Progress, TestMetrics
from llpkit.training._feed import Feed, Preprocess
from llpkit.training._fit import fit
from llpkit.training._loop import Session
from llpkit.training._model import Fitted, load

__all__ = [
    "Callback",
    "Feed",
    "Fitted",
    "Preprocess",
    "Progress",
    "Session",
    "TestMetrics",
    "bag_batches",
    "fit",
    "instance_batches",
    "load",
]
