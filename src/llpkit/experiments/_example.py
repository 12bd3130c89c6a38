"""One bag to look at: what every method says of its instances."""

from typing import Any

from llpkit.errors import LLPError
from llpkit.experiments._groups import Group
from llpkit.experiments._run import Record, Run
from llpkit.experiments._work import load
from llpkit.report._results import ExampleBag
from llpkit.report._wall import data_uri

_FACES = "group-photos"  # of people: nothing of their pictures leaves the data set


def example_bag(group: Group, data_dir: str | None) -> ExampleBag | None:
    """One test bag as every method sees it, in the first fold that all of them have."""
    folds = [{r["run"]["fold"] for r in records} for records in group.runs.values()]
    common = set.intersection(*folds) if folds else set()
    if not common:
        return None
    chosen = {
        name: next(r for r in records if r["run"]["fold"] == min(common))
        for name, records in group.runs.items()
    }
    record = next(iter(chosen.values()))
    example, classes = record["example"], record["data"]["class_names"]
    if any(r["example"]["rows"] != example["rows"] for r in chosen.values()):
        return None  # records of different data, which the notes tell
    pictures = _pictures(record, data_dir)
    word = "face" if group.dataset == _FACES else "instance"
    said = {name: r["example"]["probability"] for name, r in chosen.items()}
    return ExampleBag(
        known=f"{example['count']} of {example['size']} {classes[1]}",
        instances=[(p, f"{word} {i}") for i, p in enumerate(pictures, 1)],
        truth=[classes[label] for label in example["truth"]],
        probability=said,
        right={
            name: [(p >= 0.5) == bool(t) for p, t in zip(values, example["truth"], strict=True)]
            for name, values in said.items()
        },
        positive=classes[1],
        hidden=example["size"] - len(example["rows"]),
    )


def _pictures(record: Record, data_dir: str | None) -> list[str | None]:
    """The instances of the example as images, where the data are at hand; never faces."""
    rows = record["example"]["rows"]
    if record["run"]["dataset"] == _FACES:
        return [None] * len(rows)
    try:
        data, sha256 = load(Run.of(record), data_dir)
    except LLPError:
        return [None] * len(rows)
    if sha256 != record["data"]["sha256"]:
        return [None] * len(rows)
    images: Any = data.inputs
    return [data_uri(images[row].numpy(), f"row {row}") for row in rows]
