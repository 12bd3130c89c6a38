"""Bags of the first test fold, with the predictions of all methods."""

from collections.abc import Sequence
from typing import Any

from llpkit.datasets import DATASETS
from llpkit.errors import LLPError
from llpkit.experiments.records import Record
from llpkit.experiments.results import Results
from llpkit.experiments.run import load
from llpkit.experiments.summary import bounds
from llpkit.report import Wall, WallBag, WallInstance
from llpkit.report.instances import is_picture


def example_bags(results: Results, data_dir: str | None) -> Wall | None:
    """The example bags of the records, with pictures if the data are found and show no people."""
    records = [r for r in results.records["convergence"] if r.examples]
    if not records:
        return None
    # All methods have the same bags in one fold, and other bags in another.
    first = min(records, key=lambda r: r.fold)
    chosen = {r.method: r for r in records if r.fold == first.fold}
    assert first.data is not None
    names = first.data.class_names
    rows = [row for example in first.examples for row in example["rows"]]
    pictures = _pictures(results, first, rows, data_dir)
    bags = []
    for example in first.examples:
        instances = [
            WallInstance(f"instance {i}", pictures.get(row), truth)
            for i, (row, truth) in enumerate(zip(example["rows"], example["truth"], strict=True), 1)
        ]
        known = f"{example['count']} of {example['size']} {names[1]}"
        left_out = example["size"] - len(instances)
        bags.append(WallBag(str(example["bag"]), known, instances, left_out))
    return Wall(
        bags,
        names,
        {method: [e["probability"] for e in r.examples] for method, r in chosen.items()},
        note="Bags of the first test fold, after the last epoch. No method was trained on them.",
        bounds=bounds(results.by_method("convergence")),
    )


def _pictures(
    results: Results, record: Record, rows: Sequence[int], data_dir: str | None
) -> dict[int, Any]:
    """The images of some rows, if the data are found; never of people."""
    if DATASETS[results.protocol.dataset].shows_people:
        return {}
    try:
        data, sha256 = load(results.protocol, data_dir)
    except LLPError:
        return {}
    if record.data is None or sha256 != record.data.sha256:
        return {}
    inputs: Any = data.inputs
    images = {row: inputs[row].numpy() for row in rows}
    return images if all(map(is_picture, images.values())) else {}
