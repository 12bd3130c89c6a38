"""Training: one call, :func:`fit`, and the pieces underneath, usable on their own."""

from llpkit.recipe import Execution, Recipe
from llpkit.training.bag_dataset import BagBatch, BagDataset, BagItem, collate_bags
from llpkit.training.batches import bag_batches, instance_batches
from llpkit.training.callbacks import Callback, Progress, TestMetrics
from llpkit.training.fitting import fit
from llpkit.training.inputs import Feed, Preprocess
from llpkit.training.launch import together
from llpkit.training.loop import Session
from llpkit.training.model import Fitted, load
from llpkit.training.processes import Processes, placement, writes

__all__ = [
    "BagBatch",
    "BagDataset",
    "BagItem",
    "Callback",
    "Execution",
    "Feed",
    "Fitted",
    "Preprocess",
    "Processes",
    "Progress",
    "Recipe",
    "Session",
    "TestMetrics",
    "bag_batches",
    "collate_bags",
    "fit",
    "instance_batches",
    "load",
    "placement",
    "together",
    "writes",
]
