"""The demonstration: every method on handwritten digits, with nothing to download."""

import csv
import io
import json
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from llpkit import datasets, evaluation
from llpkit._files import locked, write_text
from llpkit.bags import Bags, random_bags
from llpkit.datasets import DataSet
from llpkit.errors import BaselineWarning, LLPError
from llpkit.likelihood import posterior
from llpkit.methods import METHODS
from llpkit.report._data import Calibration, Series, SummaryRow, summarise
from llpkit.report._page import Page, write_page
from llpkit.report._wall import wall_bags
from llpkit.runs import FIGURES, REPORT, Place, environment, flat
from llpkit.training import Callback, Feed, Fitted, fit

SIZES = (1, 12)
TEST = 597  # a third of the digits
BATCH = 32
EPOCHS, QUICK_EPOCHS = 40, 3
MARK = "demo.json"

# Of the learning rates 0.001, 0.003 and 0.01, and of llp-gan's weights 1 and 10, those with the
# best likelihood of held-out bags: mean of five seeds not used here.
LR = {
    "supervised": 1e-3,
    "mle": 3e-3,
    "direct": 1e-3,
    "amle": 1e-3,
    "dllp": 1e-3,
    "llp-gan": 1e-3,
}
OPTIONS: dict[str, dict[str, Any]] = {"llp-gan": {"weight": 10.0}}

Progress = Callable[[str, int, int, str], None]
"""Called with the run, the epochs done and to do in all, and at the end of a run its result."""


class Split(NamedTuple):
    """The digits of one seed: rows to learn from in bags, and others to test on, in bags too."""

    train: Tensor
    test: Tensor
    bags: Bags
    test_bags: Bags


@dataclass(frozen=True)
class Result:
    """What the demonstration found, and the page that shows it."""

    rows: list[SummaryRow]
    page: Path


def demo(
    out: Path,
    *,
    seeds: int = 5,
    epochs: int | None = None,
    quick: bool = False,
    callback: Progress = lambda *_: None,
) -> Result:
    """Train every method on odd and even digits in bags of 1 to 12, and write a page.

    The labels of the test digits are used to evaluate and for nothing else; those of the training
    digits by ``supervised`` alone, the others see counts.

    Args:
        out: A directory for the page and its figures; one of an earlier demo is replaced.
        seeds: Runs of each method.
        epochs: Of each run; 30 unless given.
        quick: One seed and three epochs, to see that everything works.
        callback: Is told how it goes.
    """
    with locked(out):
        _place(out)
    seeds = 1 if quick else seeds
    epochs = epochs or (QUICK_EPOCHS if quick else EPOCHS)
    data = datasets.load("digits")
    inputs = data.inputs.flatten(1).float() / 255  # type: ignore[union-attr]
    series: list[Series] = []
    tested: dict[str, list[tuple[Tensor, Tensor]]] = {method: [] for method in LR}
    shown: dict[str, Any] = {}
    start, threads = time.perf_counter(), torch.get_num_threads()
    torch.set_num_threads(1)  # batches this small gain nothing from a second thread
    try:
        for seed in range(seeds):
            split = divide(data, seed)
            for method in LR:
                done = (len(series) * epochs, seeds * len(LR) * epochs)
                model = _run(method, data, inputs, split, seed, epochs, _Tick(callback, *done))
                series.append(Series(method, seed, model.history))
                p = model.predict_proba(inputs[split.test])
                tested[method].append((p, data.truth[split.test]))  # type: ignore[index]
                if seed == 0:
                    shown[method] = _wall(model, data, split.bags, inputs)
    finally:
        torch.set_num_threads(threads)
    curves = []
    for method, pairs in tested.items():
        p, y = (torch.cat(part) for part in zip(*pairs, strict=True))
        curves.append(Calibration(method, *evaluation.calibration(p, y)))
    rows = summarise(series, curves)
    record = {**environment(), "seeds": seeds, "epochs": epochs}
    record["minutes"] = round((time.perf_counter() - start) / 60, 2)
    page = _page(data, series, rows, curves, shown, record)
    with locked(out):
        place = _place(out)
        place.clear()
        place.begin()
        write_page(page, place.work / REPORT, figures_dir=place.work / FIGURES)
        _write_table(place.work / "histories.csv", series)
        about = record | {"summary": [asdict(row) for row in rows]}
        write_text(place.work / MARK, json.dumps(about, indent=1))
        place.finish()
        place.publish()
    return Result(rows, out / REPORT)


def _place(out: Path) -> Place:
    """Where to write to, if nothing is lost by that; what a call that was killed left is sorted."""
    place = Place(out)
    place.recover(force=False)
    if place.kept and not (place.work / MARK).exists():
        raise LLPError(f"{out} holds a run that was stopped; choose another directory with --out")
    if out.exists() and not (out / MARK).exists():
        raise LLPError(f"{out} exists and is not a demo; choose another directory with --out")
    if out.exists():
        place.check_replaceable()
    return place


def divide(data: DataSet, seed: int) -> Split:
    """Test digits kept apart, the others in random bags; the same for every method."""
    assert data.truth is not None
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(data.truth), generator=generator)
    test, train = order[:TEST], order[TEST:]
    bags = [_bags(data.truth, rows, generator) for rows in (train, test)]
    return Split(train, test, *bags)


def _bags(truth: Tensor, rows: Tensor, generator: torch.Generator) -> Bags:
    """Random bags of some rows of the table."""
    part = random_bags(truth[rows], SIZES, generator=generator)
    return Bags(part.offsets, part.evidence, rows=rows[part.rows], num_rows=len(truth))


def _run(
    method: str,
    data: DataSet,
    inputs: Any,
    split: Split,
    seed: int,
    epochs: int,
    tick: Callback,
) -> Fitted:
    assert data.truth is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BaselineWarning)  # the table has the baseline beside it
        return fit(
            None,
            split.bags,
            inputs,
            method,
            labels=data.truth if METHODS[method].needs_labels else None,
            method_options=OPTIONS.get(method),
            epochs=epochs,
            batch_size=BATCH,
            lr=LR[method],
            seed=seed,
            device="cpu",
            callbacks=[_Watch(inputs, data.truth, split), tick],
            progress=False,
        )


def _wall(model: Fitted, data: DataSet, bags: Bags, inputs: Tensor) -> list[Any]:
    shown = bags[:12]
    logits = torch.zeros(len(inputs))
    logits[shown.rows] = model.logits(inputs[shown.rows])
    phi = logits.sigmoid()
    phi[shown.rows] = posterior(logits[shown.rows], shown.evidence, shown.offsets)
    return wall_bags(
        shown,
        data.inputs,
        logits.sigmoid(),
        class_names=data.class_names,
        posterior=phi,
        truth=data.truth,
    )


class _Watch(Callback):
    """Accuracy of the test digits, and how well their bags' counts are foretold; for the curves."""

    def __init__(self, inputs: Tensor, truth: Tensor, split: Split) -> None:
        rows = split.test_bags.rows
        self.feed = Feed(inputs[rows], torch.device("cpu"))
        self.truth, self.bags = truth[rows], split.test_bags
        rate = evaluation.constant_rate(split.bags)
        self.baseline = float(evaluation.baseline_log_likelihood(self.bags, rate).mean())

    def on_epoch(self, session: Any, row: dict[str, Any]) -> None:
        z = session.logits(self.feed)
        p = z.sigmoid()
        row["test_accuracy"] = evaluation.accuracy(p, self.truth)
        row["held_out_log_likelihood"] = float(evaluation.bag_log_likelihood(z, self.bags).mean())
        row["held_out_baseline_log_likelihood"] = self.baseline
        row["held_out_proportion_error"] = evaluation.proportion_error(p, self.bags)


class _Tick(Callback):
    def __init__(self, callback: Progress, done: int, total: int) -> None:
        self.callback, self.done, self.total = callback, done, total

    def on_epoch(self, session: Any, row: dict[str, Any]) -> None:
        name = f"{session.method.key}, seed {session.seed}"
        last = row["epoch"] == session.epochs
        told = f"test accuracy {100 * row['test_accuracy']:.1f} %" if last else ""
        self.callback(name, self.done + row["epoch"], self.total, told)


def _page(
    data: DataSet,
    series: Sequence[Series],
    rows: Sequence[SummaryRow],
    curves: Sequence[Calibration],
    shown: dict[str, Any],
    record: dict[str, Any],
) -> Page:
    train = len(data.inputs) - TEST
    rates = ", ".join(f"{method} {rate:g}" for method, rate in LR.items())
    return Page(
        title="Odd or even, learnt from counts",
        lead=(
            f"{train:,} handwritten digits lie in bags of {SIZES[0]} to {SIZES[1]}. Of each bag "
            "the learner is told one number: how many of its digits are odd. From that it learns "
            "to tell odd from even, digit by digit.",
        ),
        class_names=data.class_names,
        facts={
            "data": f"digits of 8 x 8 pixels, {train:,} to learn from and {TEST:,} to test on",
            "bags": f"{SIZES[0]} to {SIZES[1]} digits, drawn at random anew for each seed",
            "network": "two dense layers of 64 on the pixels; llp-gan has its own",
            "training": f"{record['epochs']} epochs, batches of {BATCH}, Adam",
        },
        summary=rows,
        measured="exact",  # as it is for two classes
        series=series,
        calibrations=curves,
        wall=shown,
        wall_note="Bags of the training digits of seed 0: what was told, what was learnt.",
        notes=(
            "supervised is told every digit's label and is the bound for the others.",
            "Accuracy is that of the last epoch, on the test digits, whose labels were used for "
            "nothing else. Held-out bags are these test digits in bags of their own.",
            "Every method but llp-gan trains the same network from the same start on the same "
            "bags. llp-gan brings a discriminator and a generator of dense layers.",
            f"Each method has its own learning rate ({rates}; llp-gan with weight 10): of three "
            "the one with the best likelihood of held-out bags on other seeds, not by labels.",
            "An epoch's time is that of one thread and leaves the evaluation out.",
        ),
        environment=flat(record),
    )


def _write_table(path: Path, series: Iterable[Series]) -> None:
    """All histories in one table: a row an epoch of a run."""
    rows = [
        {"method": run.method, "seed": run.seed_or_fold, **row}
        for run in series
        for row in run.history
    ]
    names = list(dict.fromkeys(key for row in rows for key in row))
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, names)
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, table.getvalue())
