"""The data of a run: loading, splitting by bags, and checksums."""

import hashlib

import torch
from torch import Tensor

from llpkit import datasets
from llpkit._validation import option
from llpkit.bags import Bags
from llpkit.config import Config, Data
from llpkit.datasets import DataSet, ImageFiles, Inputs
from llpkit.tables import CountColumns
from llpkit.training.check import split_off


def load_data(data: Data, seed: int) -> DataSet:
    """The data set that a configuration names."""
    name, options = data.arguments()
    return datasets.load(name, seed=seed, **options)


def count_columns(data: Data) -> CountColumns:
    """The columns with the counts, in a table that is read in parts."""
    return CountColumns.of(data, counts_table=None, known_label=None)


def divide(bags: Bags, config: Config) -> dict[str, Bags]:
    """Training, held-out and test bags by name; bags are never split."""
    # The test split is drawn first, so that the test bags do not depend on held_out.
    generator = torch.Generator().manual_seed(config.recipe.seed)
    parts = {}
    for name, key, share in (
        ("test", "test_fraction", config.split.test_fraction),
        ("held-out", "held_out", config.recipe.held_out),
    ):
        if share is not None:
            bags, parts[name] = split_off(bags, option(key), share, generator)
    parts["training"] = bags
    return {name: parts[name] for name in ("training", "held-out", "test") if name in parts}


def take(inputs: Inputs, rows: Tensor) -> Inputs:
    """Some rows of the inputs."""
    return inputs.select(rows) if isinstance(inputs, ImageFiles) else inputs[rows]


def checksum(data: DataSet) -> str:
    """SHA-256 of inputs and bags; image files enter by name and size.

    Published results hold it, so it must not change; :mod:`llpkit.training.fingerprint` may.
    """
    digest = hashlib.sha256()
    if isinstance(data.inputs, ImageFiles):
        for path in data.inputs.paths:
            digest.update(repr((path.name, path.stat().st_size)).encode())
    else:
        digest.update(data.inputs.contiguous().numpy().data)
    bags, evidence = data.bags, data.bags.evidence
    parts = [bags.offsets, bags.rows, evidence.low, evidence.high]
    if not evidence.is_exact:
        parts += [evidence.table, evidence.table_offsets]
    for part in parts:
        digest.update(part.contiguous().numpy().data)
    return digest.hexdigest()
