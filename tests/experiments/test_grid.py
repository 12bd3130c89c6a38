"""Hyper-parameters: chosen by held-out bags, never by test labels, and put on record."""

import json
from dataclasses import replace

import pytest

from experiments.conftest import small
from llpkit import LLPError
from llpkit.experiments import Run, _grid, carry_out, plan, planned, reproduce
from llpkit.methods import METHODS


def test_every_method_gets_as_many_learning_rates():
    numbers = {
        len(stage["lr"]) for method in METHODS for stage in _grid.stages(method) if "lr" in stage
    }
    assert len(numbers) == 1
    for method in METHODS:
        axes = [axis for stage in _grid.stages(method) for axis in stage]
        assert {"lr", "weight_decay"} <= set(axes)


def test_the_best_held_out_likelihood_is_chosen_and_taken(store, place, monkeypatch):
    stages = ({"lr": (1e-5, 3e-3)}, {"weight_decay": (0.0, 0.1)})
    monkeypatch.setattr(_grid, "stages", lambda *_: stages)
    settings = small(methods=["mle"], folds=[0, 3])
    done = reproduce("grid", settings, store, place)
    assert (done.before, done.now, done.left) == (0, 3 * 2, 0)  # lr 2, then one more decay

    grid = json.loads((store.home / "grid" / "digits.json").read_text())
    entry = grid["methods"]["mle"]
    scores = {(row["lr"], row["weight_decay"]): row["score"] for row in entry["candidates"]}
    assert set(scores) == {(1e-5, 0.0), (3e-3, 0.0), (3e-3, 0.1)}
    assert scores[3e-3, 0.0] > scores[1e-5, 0.0]
    best = max(scores, key=scores.get)
    assert (entry["chosen"]["lr"], entry["chosen"]["weight_decay"]) == best
    assert entry["cost"]["runs"] == 6
    assert entry["cost"]["seconds"] > 0
    assert "held-out bags" in grid["rule"]
    by_id = {record["id"]: record for record in store.read("grid")}
    for record in by_id.values():
        assert not [name for name in record["history"] if name.startswith("test")]
        assert "accuracy" not in json.dumps(record)
    runs = [Run.of(record) for record in by_id.values()]
    assert {run.held_out for run in runs} == {0.1}
    for row in entry["candidates"]:
        its = [r for r in runs if (r.lr, r.weight_decay) == (row["lr"], row["weight_decay"])]
        last = [by_id[r.id]["history"]["held_out_log_likelihood"][-1] for r in its]
        assert row["score"] == pytest.approx(sum(last) / 2)

    reproduce("convergence", small(methods=["mle", "dllp"], folds=[0]), store, place)
    found = {r["run"]["method"]: r for r in store.read("convergence")}
    assert (found["mle"]["run"]["lr"], found["mle"]["chosen_by"]) == (3e-3, "grid")
    assert (found["dllp"]["run"]["lr"], found["dllp"]["chosen_by"]) == (1e-3, "defaults")

    again = reproduce("grid", settings, store, place)
    assert (again.before, again.now) == (6, 0)


def test_options_win_over_the_grid(store, place):
    reproduce("grid", small(folds=[0], quick=True), store, place)
    chosen = _grid.choices(small(), store)
    assert {chosen[m].chosen_by for m in ("mle", "dllp")} == {"grid"}
    mine = _grid.choices(small(lr=0.5), store)["mle"]
    assert (mine.lr, mine.chosen_by) == (0.5, "options")
    mixed = _grid.choices(small(method_options={"mle": {"refresh": "pass"}}), store)["mle"]
    assert (mixed.lr, mixed.method_options) == (chosen["mle"].lr, {"refresh": "pass"})
    assert mixed.chosen_by == "grid, options"
    other = _grid.choices(small(network="linear"), store)["mle"]
    assert other.chosen_by == "defaults"  # the grid was for another network
    assert planned("convergence", small(), store) == plan("convergence", small(), chosen)


def test_a_candidate_that_fails_is_not_chosen(store, place, monkeypatch):
    monkeypatch.setattr(_grid, "stages", lambda *_: ({"lr": (1e-3, 1e30)},))
    done = reproduce("grid", small(methods=["supervised"], folds=[0]), store, place)
    assert len(done.failed) == 1
    entry = json.loads((store.home / "grid" / "digits.json").read_text())["methods"]["supervised"]
    assert entry["chosen"]["lr"] == 1e-3
    assert "lower the learning rate" in entry["candidates"][1]["failed"][0]
    assert entry["candidates"][1]["score"] is None


def test_a_grid_that_was_stopped_goes_on(store, place):
    settings = small(methods=["mle"], folds=[0])
    wanted = planned("grid", settings, store)
    assert [run.lr for run in wanted] == [3e-4, 1e-3, 3e-3]
    carry_out(wanted[0], place)
    stopped = reproduce("grid", settings, store, replace(place, deadline=0.0))
    assert (stopped.before, stopped.now, stopped.left) == (1, 0, 2)
    assert not (store.home / "grid").exists()
    done = reproduce("grid", settings, store, place)
    assert (done.before, done.now, done.left) == (1, 4, 0)


def test_a_grid_file_that_is_damaged_is_named(store):
    path = store.home / "grid" / "digits.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with pytest.raises(LLPError, match=r"digits.json cannot be read .* llpkit reproduce grid"):
        _grid.choices(small(), store)
