"""Official test splits: folds are seeds that redraw the bags; any number of classes."""

import time
from dataclasses import replace

import pytest
import torch

from experiments.conftest import small
from llpkit.errors import LLPError
from llpkit.experiments import Results, reproduce
from llpkit.experiments import run as run_module
from llpkit.experiments.page import results_page
from llpkit.experiments.plan import plan
from llpkit.experiments.protocol_file import load, parse
from llpkit.experiments.run import UNFINISHED, divide
from llpkit.experiments.run import load as load_data

TEN = {
    "data_options": {"classes": 10},
    "bag_size": 20,
    "official": True,
    "methods": {"supervised": {}, "mle": {}, "dllp": {}},
    "sizes": {"sizes": [10, 40], "folds": 2, "epochs": 2},
}


def test_seeds_redraw_the_bags_of_one_training_split():
    protocol = small(**TEN)
    data, _ = load_data(protocol)
    drawn = [divide(protocol, data, fold) for fold in (0, 0, 1)]
    for train, test in drawn:
        assert torch.equal(train.rows.sort().values, (~data.test).nonzero()[:, 0])
        assert torch.equal(test.rows.sort().values, data.test.nonzero()[:, 0])
        assert int(train.sizes.max()) == 20
        truth = data.truth[train.rows[: train.offsets[1]]]
        assert torch.equal(train.counts[0], torch.bincount(truth, minlength=10))
    (first, _), (again, _), (other, _) = drawn
    assert torch.equal(first.rows, again.rows)
    assert not torch.equal(first.rows, other.rows)
    assert int(divide(protocol, data, 0, 7)[0].sizes.max()) == 7


def test_concentrated_bags_have_fewer_classes():
    protocol = small(**TEN)
    data, _ = load_data(protocol)
    number = [
        (divide(replace(protocol, concentration=alpha), data, 0)[0].counts > 0)
        .sum(1)
        .float()
        .mean()
        for alpha in (None, 0.1)
    ]
    assert number[1] < number[0] / 2


def test_a_benchmark_of_ten_classes_and_its_page(settings):
    settings = replace(settings, protocol=small(**TEN))
    done = reproduce(settings, ["bag-size"])["bag-size"]
    # Labels do not depend on bags: supervised training runs at one size only.
    assert (done.now, done.failed) == (2 * (1 + 2 + 2), [])
    results = Results.read(settings.folder)
    for record in results.records["bag-size"]:
        assert record.data.test_instances == 297
        assert len(record.data.class_names) == 10
        assert record.data.redrawn
        assert 0 < record.final["accuracy"] < 1
        assert record.final["log_loss"] > 0
    page = results_page([results])
    assert "each class" in page.lead[0]
    [facts, *_] = [block for block in page.walk() if block.kind == "facts"]
    assert (facts.pairs["data set"], facts.pairs["seeds"]) == ("digits", 2)
    [section] = [block for block in page.blocks if getattr(block, "heading", "").endswith("size")]
    assert "over 2 seeds" in section.text
    [notes] = [block for block in page.walk() if block.kind == "notes"]
    assert any("official test split" in note for note in notes.items)
    [table] = [block for block in page.walk() if block.kind == "table"]
    cells = {name: [cell.text for cell in row] for name, row in table.body}
    assert set(cells) == set(TEN["methods"])
    assert cells["supervised"][0] == cells["supervised"][1]  # the bound is shown at every size


def test_a_run_stopped_by_the_time_limit_continues_where_it_was(settings, monkeypatch):
    protocol = small(methods={"mle": {}}, recipe={"network": "mlp", "epochs": 6})
    whole = replace(settings, protocol=protocol, folder=settings.folder.with_name("whole"))
    reproduce(whole, ["convergence"], folds=[0])

    # The clock of the first call jumps beyond the limit after its first epochs.
    parts = replace(settings, protocol=protocol, deadline=time.time() + 3600)
    (run,) = plan(Results.of(settings.folder, protocol), "convergence", folds=[0])
    ticks = iter([False, False, False, True])
    real = time.time
    clock = type("Clock", (), {"time": staticmethod(lambda: real() + 7200 * next(ticks, False))})
    monkeypatch.setattr(run_module, "time", _Proxy(time, clock.time))
    first = reproduce(parts, ["convergence"], folds=[0])["convergence"]
    assert (first.now, first.left) == (0, 1)
    assert (settings.folder / UNFINISHED / run.id).is_dir()
    second = reproduce(parts, ["convergence"], folds=[0])["convergence"]
    assert (second.now, second.left) == (1, 0)
    assert not (settings.folder / UNFINISHED).exists()

    one, other = (
        Results.read(folder).records["convergence"][0] for folder in (whole.folder, settings.folder)
    )
    for name in ("loss", "test_accuracy", "epoch"):
        assert one.history[name] == other.history[name]


class _Proxy:
    """A module with another ``time``."""

    def __init__(self, module, now):
        self._module, self.time = module, now

    def __getattr__(self, name):
        return getattr(self._module, name)


def test_what_cannot_be_an_official_split(settings):
    with pytest.raises(LLPError, match="concentration needs official"):
        small(concentration=1.0)
    with pytest.raises(LLPError, match="official draws random bags; set bag_size"):
        parse({"title": "A", "dataset": "digits", "official": True})
    protocol = small(official=True, dataset="synthetic", bag_size=5)
    with pytest.raises(LLPError, match="synthetic has no test split"):
        reproduce(replace(settings, protocol=protocol), ["convergence"])


@pytest.mark.parametrize("name", ["cifar10-ten", "fashion-ten"])
def test_the_presets_of_the_benchmark(name):
    protocol = load(name)
    assert protocol.official
    assert protocol.folds >= 3
    assert {"supervised", "teacher", "mle", "dllp"} <= set(protocol.methods)
    assert not protocol.searched("supervised")  # no ladder, no search
