"""The commands that list what can be chosen by name."""

from collections.abc import Iterable, Sequence

from llpkit.cli.arguments import DataDir
from llpkit.cli.printing import echo, terminal


def datasets(data_dir: DataDir = None) -> None:
    """List the data sets, which of them were found, and where to get them."""
    from llpkit.config import TABLE_DATASETS
    from llpkit.datasets import DATASETS, data_folder

    folder = data_folder(data_dir)
    rows = []
    for name, entry in DATASETS.items():
        found = entry.found(folder)
        remedy = "" if found else f"{entry.source}; save it there as {entry.save_as}"
        if name in TABLE_DATASETS:
            remedy = "llpkit fit TABLE --bag COLUMN --count COLUMN"
            remedy += " --image COLUMN" if name == "image-table" else ""
        rows.append((name, entry.summary, "yes" if found else "no", remedy))
    _print(("name", "what", "found", "how to get it"), rows, space=1)
    echo(f"data folder: {folder} (--data-dir or LLPKIT_DATA chooses another)")


def methods() -> None:
    """List the methods: what they do, what they need, what to cite."""
    from llpkit.methods import METHODS

    rows = []
    for name, method in METHODS.items():
        counts = "exact counts" if method.needs_exact_counts else "counts or ranges"
        batches = "instances" if method.batches == "instances" else "whole bags"
        source = "labels" if method.needs_labels else counts
        rows.append((name, method.summary, batches, source, f"{method.lr:g}"))
    _print(("name", "what", "batches of", "learns from", "lr"), rows)
    # Below the table, because a column of references would leave no room for the others.
    references = [(name, method.reference) for name, method in METHODS.items() if method.reference]
    echo("")
    _print(("cite", ""), references, space=1)


def estimators() -> None:
    """List the estimators for tables."""
    from llpkit.estimators import ESTIMATORS

    _print(("name", "what"), [(name, entry.summary) for name, entry in ESTIMATORS.items()])


def networks() -> None:
    """List the networks that can be trained by name."""
    from llpkit.networks import NETWORKS

    _print(("name", "what"), [(name, entry.summary) for name, entry in NETWORKS.items()])


def augmentations() -> None:
    """List the augmentations of images."""
    from llpkit.augment import AUGMENTATIONS

    _print(("name", "what"), [(name, entry.summary) for name, entry in AUGMENTATIONS.items()])


def _print(heads: Sequence[str], rows: Iterable[Sequence[str]], space: int = 0) -> None:
    """Print a table with the first column in bold, and ``space`` lines between the rows."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, space, 0))
    for head in heads:
        table.add_column(head, overflow="fold")  # addresses are to be copied, not cut
    for name, *cells in rows:
        table.add_row(Text(name, style="bold"), *map(Text, cells))
    terminal().print(table)
