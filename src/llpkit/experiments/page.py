"""The page of results folders, with its figures as files."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from llpkit.errors import LLPError
from llpkit.experiments.page_examples import example_bags
from llpkit.experiments.page_sections import most_folds, sections
from llpkit.experiments.records import Record
from llpkit.experiments.results import Results
from llpkit.files import Checksums, claim, sha256
from llpkit.methods import METHODS
from llpkit.recipe import Recipe
from llpkit.report import Block, Example, Facts, Notes, Page, Section, styles, write_page

PAGE, FIGURES = "report.html", "figures"
FILES = "files.json"  # checksums.json lists the same names in the directory of a run


def write_report(
    folders: Sequence[Path], out: Path | None = None, *, data_dir: str | None = None
) -> Path:
    """Draw the records of results folders and return the path of the page.

    Files of an earlier call that this one does not write again are removed. Other files in the
    folder are neither overwritten nor removed.

    Args:
        folders: Results folders.
        out: Where to write; by default ``report`` in the first folder.
        data_dir: Where data sets are, for pictures of example bags (never of people).
    """
    every = [Results.read(folder) for folder in folders]
    for results in every:
        if not results.finished:
            raise LLPError(f"{results.folder} has no records; make some with llpkit reproduce")
    out = out or folders[0] / "report"
    if Path(os.path.realpath(out)) in (Path(os.path.realpath(folder)) for folder in folders):
        raise LLPError(f"{out} is a results folder; choose another folder with --out")
    page = results_page(every, data_dir)
    files = [path for figure in page.figures for path in figure.files(out / FIGURES)]
    names = {PAGE, *(path.relative_to(out).as_posix() for path in files)}
    # Claimed before anything is written, so that a killed call can be repeated.
    before = claim(out, names, FILES)
    path = write_page(page, out / PAGE, figures_dir=out / FIGURES)
    for name in sorted(set(before) - names):
        old = out / name
        if old.is_file() and sha256(old) == before[name]:  # keep it if the user changed it
            old.unlink()
    Checksums(out, {name: sha256(out / name) for name in sorted(names)}).write(FILES)
    return path


def results_page(every: Sequence[Results], data_dir: str | None = None) -> Page:
    """The page of some results; a single folder has no heading of its own."""
    look = styles([*METHODS, *(record.method for record in _records(every))])
    walls = [example_bags(results, data_dir) for results in every]
    labels = _labels(every)
    parts: list[list[Block]] = [
        [_facts(results), *sections(results, wall, label, look)]
        for results, wall, label in zip(every, walls, labels, strict=True)
    ]
    title, blocks = "Learning from label proportions: experiments", list[Block]()
    if len(every) == 1:
        title, wall = every[0].protocol.title, walls[0]
        opening = [Example(wall)] if wall is not None and wall.has_images else []
        blocks = [*opening, *parts[0]]
    else:
        titles = [results.protocol.title for results in every]
        blocks = [
            Section(name if titles.count(name) == 1 else f"{name} ({label})", own)
            for name, label, own in zip(titles, labels, parts, strict=True)
        ]
    notes = [*_notes(every), *(note for results in every for note in _failures(results))]
    blocks.append(Section("Notes", [Notes(notes)]))
    blocks.append(Section("How it was made", [_environment(every)]))
    return Page(title, _lead(every), blocks, look)


def _notes(every: Sequence[Results]) -> Iterator[str]:
    """How to read the page: only what applies to these records."""
    records = _records(every)
    methods = {r.method for r in records}
    official = {results.protocol.official for results in every}
    where = ["official test split" if kind else "test fold" for kind in sorted(official)]
    yield f"Accuracy is measured on the {' or the '.join(where)}, after the last epoch."
    if len(methods) > 1:
        yield "All methods share bags, seeds and the initial network."
    if len(methods) > 1 and False in official:
        yield (
            "Folds divide whole bags and are the same for all methods; two methods are compared "
            "over the folds that both have."
        )
    if True in official:
        yield "With an official test split, every seed draws new bags."
    if any(results.records["grid"] for results in every):
        yield (
            "Each method has its own hyper-parameters. A grid search chooses them by the "
            "likelihood of held-out bags, once for all folds: it sees the counts of bags that "
            "other folds test on, but not the labels."
        )
    if {"mle", "mle-pass"} <= methods:
        yield (
            "mle-pass is the algorithm of the paper: after every epoch a pass over the training "
            "data gives the logits of the next targets. mle reuses the logits of the training pass."
        )


def _lead(every: Sequence[Results]) -> list[str]:
    """The idea in plain words."""
    names = dict.fromkeys(r.data.class_names for r in _records(every) if r.data is not None)
    what = "one number is known about each bag: how many of its items belong to the positive class"
    if any(len(classes) > 2 for classes in names):
        what = "counts are known about each bag: how many of its items belong to each class"
    elif len(names) == 1:
        positive = next(iter(names))[1]
        what = f"one number is known about each bag: how many of its items are “{positive}”"
    text = (
        f"Items come in bags, and only {what}. From such counts alone each method here learns a "
        "classifier for single items."
    )
    if bounds := sorted({r.method for r in _records(every) if r.sees_labels}):
        text += (
            f" All of them see the same bags; {' and '.join(bounds)} also learned from every "
            "label, as an upper bound."
        )
    return [text]


def _facts(results: Results) -> Facts:
    protocol = results.protocol
    base = {**Recipe().to_dict(), **protocol.recipe}
    size = protocol.bag_size
    options = (f"{k} {v}" for k, v in protocol.data_options.items() if k != "classes")
    pairs: dict[str, object] = {
        "data set": ", ".join([protocol.dataset, *options]),
        "bag size": "the data set's" if size is None else _range(size),
    }
    data = next((r.data for r in results.finished if r.bag_size is None and r.data), None)
    if data is not None:
        pairs["bags"] = f"{data.train_bags + data.test_bags:,}"
        pairs["instances"] = f"{data.train_instances + data.test_instances:,}"
    done = most_folds(results.by_method("convergence")) or protocol.folds
    number = f"{done} of {protocol.folds}" if done < protocol.folds else protocol.folds
    pairs["seeds" if protocol.official else "folds"] = number
    for key in ("network", "epochs", "batch_size", "augment", "held_out", "precision"):
        if base[key] is not None:
            pairs[key.replace("_", " ")] = base[key]
    return Facts(pairs | {"seed": protocol.seed})


def _range(size: int | tuple[int, int]) -> str:
    return " to ".join(map(str, size)) if isinstance(size, tuple) else str(size)


def _records(every: Sequence[Results]) -> list[Record]:
    return [record for results in every for record in results.finished]


def _labels(every: Sequence[Results]) -> list[str]:
    """A name for each folder: its last part, numbered if folders share it."""
    names = [results.folder.resolve().name for results in every]
    return [
        name if names.count(name) == 1 else f"{name}-{names[: i + 1].count(name)}"
        for i, name in enumerate(names)
    ]


def _failures(results: Results) -> list[str]:
    return [
        f"Failed: {r.experiment}, {r.method}, fold {r.fold}: {r.error}"
        for r in results.failures
        if not (r.diverged and r.experiment == "grid")  # the grid's table counts those
    ]


def _environment(every: Sequence[Results]) -> Facts:
    records = _records(every)
    pairs: dict[str, object] = {"runs": len(records)}
    for key in ("llpkit", "python", "torch", "numpy"):
        versions = {str(r.environment.get("versions", {}).get(key, "")) for r in records}
        pairs[key] = ", ".join(sorted(filter(None, versions)))
    pairs["hardware"] = "; ".join(sorted({record.machine for record in records}))
    pairs["time of all runs"] = f"{sum(record.seconds for record in records) / 3600:.2f} h"
    days = sorted({r.environment.get("started", "")[:10] for r in records} - {""})
    if days:
        pairs["made on"] = " to ".join(dict.fromkeys((days[0], days[-1])))
    return Facts({key: value for key, value in pairs.items() if value != ""})
