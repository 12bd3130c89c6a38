"""Reading a table in the way in which a finished run read its own."""

import torch
from torch import Tensor

from llpkit import datasets
from llpkit._validation import option
from llpkit.bags import Bags
from llpkit.config import Data
from llpkit.datasets import ImageFiles, Inputs
from llpkit.errors import LLPError
from llpkit.runs.opening import Run
from llpkit.tables import CountColumns, Table, listed


class NoCounts(LLPError):
    """A table lacks the columns with the counts of its bags."""


def read_table(data: Data) -> Table:
    """The table, without its images."""
    assert data.table is not None
    if data.image is None:
        return Table.read(data.table)
    return datasets.table_without_images(data.table, data.image)


def table_inputs(run: Run, data: Data, table: Table) -> tuple[Inputs, Tensor, list[str]]:
    """Inputs of the readable rows, the numbers of these rows, and notes."""
    if run.encoder is not None:
        features = run.encoder.apply(table)
        return features, torch.arange(len(table)), run.encoder.notes(table)
    files = table_images(run, data, table)
    bad = files.bad_rows() if data.skip_bad else {}
    good = torch.tensor([row for row in range(len(table)) if row not in bad], dtype=torch.int64)
    if not len(good):
        raise LLPError(f"no image can be read; the first: {next(iter(bad.values()))}")
    return files.select(good), good, [f"no prediction: {reason}" for reason in bad.values()]


def table_images(run: Run, data: Data, table: Table) -> ImageFiles:
    """The images of a table, which must have the size that the run learned from."""
    assert data.image is not None  # a run on a table has an encoder or an image column
    channels, height, width = run.model.input_shape
    files = datasets.image_files(
        table,
        data.image,
        root=data.image_root,
        size=data.image_size,
        channels=channels,
        check=not data.skip_bad,
    )
    if files.size != (height, width):
        raise LLPError(
            f"the images of {table.path} have {files.size[0]} x {files.size[1]} pixels, but the "
            f"run learned from {height} x {width}; resize them with "
            f"{option('image_size', f'{height}x{width}')}"
        )
    return files


def table_bags(run: Run, data: Data, table: Table) -> tuple[Bags, list[str]]:
    """The bags of a table, with notes; raises :class:`NoCounts` if it has no counts."""
    known_label = data.known_label if data.known_label in table.names else None
    count, low, high, proportion = data.count, data.count_low, data.count_high, data.proportion
    if (count or proportion) and (low or high) and not data.counts_table:
        # Of counts and bounds together, one is enough.
        if not set(listed(low) + listed(high)) <= set(table.names):
            low = high = None
        elif not set(listed(count) + listed(proportion)) <= set(table.names):
            count = proportion = None
    counts = CountColumns.of(
        data,
        count=count,
        count_low=low,
        count_high=high,
        proportion=proportion,
        decimals=data.decimals if proportion else None,
        count_noise=data.count_noise if count else None,
        known_label=known_label,
        class_names=data.class_names or run.class_names,
    )
    if not counts.names:  # the run learned from known labels alone, and here there are none
        raise NoCounts(f"{table.path} has no column {data.known_label!r}")
    assert data.bag is not None  # checked with the configuration
    needed = [data.bag, *([] if data.counts_table else counts.names)]
    missing = [name for name in needed if name not in table.names]
    if missing:
        remedy = ""
        if run.config.data.counts_table is not None and missing[0] != data.bag:
            remedy = f"; name the table that has it with {option('counts_table')}"
        raise NoCounts(f"{table.path} has no column {', '.join(map(repr, missing))}{remedy}")
    return counts.read(table, data.bag)
