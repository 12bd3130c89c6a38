"""Hyper-parameters: chosen by held-out bags, never by test labels, and put on record."""

import json
import shutil
from dataclasses import replace

import pytest

from experiments.conftest import small, written
from llpkit import LLPError
from llpkit.experiments import (
    Run,
    Settings,
    Store,
    _grid,
    _groups,
    _work,
    carry_out,
    plan,
    planned,
    reproduce,
)
from llpkit.experiments._plan import make
from llpkit.methods import METHODS


def searched(store: Store) -> dict:
    """What the file of the only grid says of each method."""
    [grid] = json.loads((store.home / "grid" / "digits.json").read_text())
    return grid["methods"]


def chosen(store: Store, **changes) -> dict:
    settings = small(**changes)
    return _grid.choices(settings, store, settings.methods)


def test_every_method_gets_the_same_grid_but_for_one_axis_of_llp_gan():
    for method in METHODS:
        stages = _grid.stages(method)
        if method == "llp-gan":
            first, *stages = stages
            assert list(first) == ["weight"]
        assert [(axis, len(values)) for stage in stages for axis, values in stage.items()] == [
            ("lr", 3),
            ("weight_decay", 2),
        ]


def test_the_best_held_out_likelihood_is_chosen_and_taken(store, place, monkeypatch):
    stages = ({"lr": (1e-5, 3e-4)}, {"weight_decay": (0.0, 0.1)})
    monkeypatch.setattr(_grid, "stages", lambda *_: stages)
    settings = small(methods=["mle"], folds=[0, 3])
    done = reproduce("grid", settings, store, place)
    assert (done.before, done.now, done.left) == (0, 4 * 2, 0)  # a rate beyond, then one more decay

    entry = searched(store)["mle"]
    scores = {(row["lr"], row["weight_decay"]): row["score"] for row in entry["candidates"]}
    assert set(scores) == {(1e-5, 0.0), (3e-4, 0.0), (1e-3, 0.0), (1e-3, 0.1)}
    assert scores[1e-3, 0.0] > scores[3e-4, 0.0] > scores[1e-5, 0.0]
    best = max(scores, key=scores.get)
    assert (entry["chosen"]["lr"], entry["chosen"]["weight_decay"]) == best
    assert entry["edges"] == ["lr"]  # still an end, and once is enough
    assert entry["cost"]["runs"] == 8
    assert entry["cost"]["seconds"] > 0
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

    reproduce("convergence", small(methods=["mle"], folds=[0]), store, place)
    [found] = store.read("convergence")
    assert (found["run"]["lr"], found["chosen_by"]) == (1e-3, "grid")

    again = reproduce("grid", settings, store, place)
    assert (again.before, again.now) == (8, 0)


def scored(store: Store, name: str, scores: dict[float, float], **changes) -> None:
    """Write the records of a grid's first folds with these scores for learning rates."""
    settings = small(methods=[name], **changes)
    for lr, score in scores.items():
        for decay in (0.0, 0.05):
            for run in _grid._runs(name, settings, {"lr": lr, "weight_decay": decay}):
                kept = {"held_out_log_likelihood": score - decay}
                written(store, run, [0.5] * run.epochs, final=kept, quick=settings.quick)


@pytest.mark.parametrize(
    ("scores", "wanted", "edge"),
    [
        ({3e-4: -2.0, 1e-3: -1.0, 3e-3: -3.0}, [3e-4, 1e-3, 3e-3], False),
        ({3e-4: -1.0, 1e-3: -2.0, 3e-3: -3.0}, [1e-4, 3e-4, 1e-3, 3e-3], False),
        ({3e-4: -3.0, 1e-3: -2.0, 3e-3: -1.0, 1e-2: -0.5}, [3e-4, 1e-3, 3e-3, 1e-2], True),
    ],
)
def test_the_learning_rates_go_a_step_beyond_where_the_best_is_at_an_end(
    store, scores, wanted, edge
):
    scored(store, "dllp", scores)
    found = _grid.search("dllp", small(), _grid.Known(store))
    assert sorted({run.lr for run in found.runs}) == wanted
    assert (found.choice is None) == (len(wanted) > len(scores))  # the one beyond is to be run
    assert bool(found.edges) == edge


@pytest.mark.parametrize(
    ("scores", "wanted"),
    [
        ({0.1: -3.0, 1.0: -1.0, 10.0: -2.0}, [0.1, 1.0, 10.0]),
        ({0.1: -3.0, 1.0: -2.0, 10.0: -1.0}, [0.1, 1.0, 10.0, 100.0]),
        ({0.1: -1.0, 1.0: -2.0, 10.0: -3.0}, [0.01, 0.1, 1.0, 10.0]),
    ],
)
def test_weights_go_a_step_beyond_likewise(store, scores, wanted):
    settings = small(methods=["llp-gan"])
    for weight, score in scores.items():
        candidate = {"lr": 3e-4, "weight_decay": 0.0, "weight": weight}
        for run in _grid._runs("llp-gan", settings, candidate):
            kept = {"held_out_log_likelihood": score}
            written(store, run, [0.5] * run.epochs, final=kept)
    found = _grid.search("llp-gan", settings, _grid.Known(store))
    tried = {run.method_options["weight"] for run in found.runs if run.lr == 3e-4}
    assert sorted(tried) == wanted


def test_a_choice_follows_from_the_records_of_all_folders(tmp_path):
    """Two machines search for a method each; named together or copied together is the same."""
    rates = {3e-4: -2.0, 1e-3: -3.0, 3e-3: -4.0, 1e-4: -3.0}
    stores = {name: Store([tmp_path / name]) for name in ("mle", "dllp")}
    for name, store in stores.items():
        scored(store, name, rates)
    both = Store([tmp_path / name for name in stores])
    for source in stores:
        shutil.copytree(tmp_path / source, tmp_path / "copied", dirs_exist_ok=True)
    for store in (both, Store([tmp_path / "copied"])):
        found = chosen(store)
        assert {name: (c.lr, c.chosen_by) for name, c in found.items() if name in stores} == {
            "mle": (3e-4, "grid"),
            "dllp": (3e-4, "grid"),
        }


def test_a_choice_says_where_its_grid_differs(store):
    inner = {3e-4: -2.0, 1e-3: -1.0, 3e-3: -4.0}
    scored(store, "mle", {**inner, 3e-4: 0.0, 1e-4: -1.0}, batch_size=64, seed=3)
    scored(store, "mle", inner, batch_size=64)
    only = {"methods": ["mle"]}
    same = chosen(store, **only, batch_size=64)["mle"]
    assert (same.lr, same.chosen_by) == (1e-3, "grid")
    other = chosen(store, **only, batch_size=64, seed=3)["mle"]
    assert (other.lr, other.chosen_by) == (3e-4, "grid")
    told = chosen(store, **only, epochs=5)["mle"]
    assert (told.lr, told.chosen_by) == (1e-3, "grid of 2 epochs, batches of 64")
    for changes in ({"network": "linear"}, {"quick": True}, {"grid": False}):
        assert chosen(store, **only, **changes)["mle"].chosen_by == "defaults"


def test_options_win_over_the_grid(store):
    scored(store, "mle", {3e-4: -2.0, 1e-3: -3.0, 3e-3: -4.0, 1e-4: -3.0})
    only = {"methods": ["mle"]}
    mine = chosen(store, **only, lr=0.5)["mle"]
    assert (mine.lr, mine.chosen_by) == (0.5, "options")
    mixed = chosen(store, **only, method_options={"mle": {"refresh": "pass"}})["mle"]
    assert (mixed.lr, mixed.method_options) == (3e-4, {"refresh": "pass"})
    assert mixed.chosen_by == "grid, options"
    settings = small(**only)
    assert planned("convergence", settings, store) == plan(
        "convergence", settings, chosen(store, **only)
    )


def test_a_grid_that_has_chosen_for_some_methods_only_is_not_taken(store, place):
    scored(store, "mle", {3e-4: -2.0, 1e-3: -1.0, 3e-3: -4.0})
    message = (
        "has chosen for mle but not for dllp; .*llpkit reproduce grid --dataset digits --methods "
        "dllp --epochs 2 --out .*results, or .*no-grid"
    )
    with pytest.raises(LLPError, match=message):
        reproduce("convergence", small(), store, place)
    scored(store, "dllp", {3e-4: -2.0})
    with pytest.raises(LLPError, match="is not finished: not for dllp"):
        reproduce("convergence", small(methods=["dllp"]), store, place)
    assert not list(store.read("convergence"))


def test_a_grid_chooses_for_a_variant_of_its_own(store):
    scored(store, "mle", {3e-4: -2.0, 1e-3: -1.0, 3e-3: -4.0})
    scored(store, "mle-pass", {3e-4: -2.0, 1e-3: -3.0, 3e-3: -4.0, 1e-4: -3.0})
    found = chosen(store, methods=["mle", "mle-pass"])
    assert (found["mle"].lr, found["mle-pass"].lr) == (1e-3, 3e-4)


def test_a_grid_takes_no_rates_or_options(store, place):
    for changes in ({"lr": 0.1}, {"method_options": {"mle": {"refresh": "pass"}}}):
        with pytest.raises(LLPError, match="leave out --lr and --method-option"):
            reproduce("grid", small(**changes), store, place)
        with pytest.raises(LLPError, match="leave out --lr and --method-option"):
            planned("grid", small(**changes), store)


def test_a_candidate_that_diverges_is_a_result_and_not_chosen(store, place, monkeypatch):
    monkeypatch.setattr(_grid, "stages", lambda *_: ({"lr": (1e-3, 1e30)},))
    settings = small(methods=["supervised"], folds=[0], quick=True)
    done = reproduce("grid", settings, store, place)
    assert (done.now, done.failed, done.left) == (2, [], 0)
    entry = searched(store)["supervised"]
    assert entry["chosen"]["lr"] == 1e-3
    assert "lower the learning rate" in entry["candidates"][1]["failed"][0]
    assert entry["candidates"][1]["score"] is None
    assert reproduce("grid", settings, store, place).now == 0


def test_a_failure_that_may_pass_leaves_the_stage_open(store, place, monkeypatch):
    settings = small(methods=["dllp"], folds=[0], quick=True)
    record, lr = _work._record, _grid.stages("dllp", quick=True)[0]["lr"][1]
    wanted = []

    def out_of_memory(run, *arguments):
        if run.lr == lr and not wanted:
            wanted.append(run)
            raise RuntimeError("CUDA out of memory")
        return record(run, *arguments)

    monkeypatch.setattr(_work, "_record", out_of_memory)
    first = reproduce("grid", settings, store, place)
    assert (first.now, len(first.failed), first.left) == (1, 1, 1)
    assert not (store.home / "grid").exists()
    second = reproduce("grid", settings, store, place)
    assert (second.now, second.failed, second.left) == (1, [], 0)
    assert searched(store)["dllp"]["chosen"]["lr"] == lr  # it is the better one


def test_a_grid_that_was_stopped_goes_on(store, place):
    settings = small(methods=["mle"], folds=[0], quick=True)
    wanted = planned("grid", settings, store)
    assert [run.lr for run in wanted] == [1e-3, 3e-3]
    carry_out(wanted[0], replace(place, quick=True))
    stopped = reproduce("grid", settings, store, replace(place, deadline=0.0))
    assert (stopped.before, stopped.now, stopped.left) == (1, 0, 1)
    assert not (store.home / "grid").exists()
    done = reproduce("grid", settings, store, place)
    assert (done.before, done.now, done.left) == (1, 1, 0)


def test_the_rule_tells_that_the_choice_is_not_nested():
    assert "not nested" in _grid.RULE
    run = plan("convergence", Settings("digits"))[0]
    data, _ = _work.load(run)
    used, _ = _work.divide(replace(run, fold=0), data.bags)
    _, test = _work.divide(replace(run, fold=1), data.bags)
    assert set(test.rows.tolist()) <= set(used.rows.tolist())  # which is why


def test_the_command_that_finishes_a_grid_is_the_whole_of_it(store):
    settings = Settings(
        "group-photos",
        folds=[0, 3],
        size="half",
        augment="geometric",
        epochs=50,
        precision="bf16-mixed",
    )
    store = Store([store.home / "a b", store.home])
    found = _grid._to_finish(settings, ["mle", "dllp"], store)
    assert found == (
        "llpkit reproduce grid --dataset group-photos --methods mle,dllp --augment geometric "
        f"--size half --epochs 50 --folds 0,3 --out '{store.home}' --out {store.home.parent}"
    )


def test_a_fold_that_somebody_began_does_not_undo_a_choice(store):
    scored(store, "mle", {3e-4: -2.0, 1e-3: -1.0, 3e-3: -4.0})
    one = _grid._runs("mle", small(folds=[2]), {"lr": 3e-4, "weight_decay": 0.0})[0]
    written(store, one, [0.5] * one.epochs, final={"held_out_log_likelihood": 9.0})
    assert chosen(store, methods=["mle"])["mle"].lr == 1e-3
    [grid] = _grid.grids(store, "digits")
    assert grid["methods"]["mle"]["folds"] == [0, 1]


def test_the_command_that_finishes_a_grid_is_that_of_the_missing_method(store):
    scored(store, "dllp", {3e-4: -2.0, 1e-3: -1.0, 3e-3: -4.0})
    scored(store, "mle", {3e-4: -2.0, 1e-3: -1.0}, folds=[4, 5])
    with pytest.raises(LLPError, match=r"not for mle; .* --methods mle .*--folds 4,5"):
        chosen(store)


def test_runs_and_the_report_take_the_same_of_two_grids(store):
    """Those of 40 and 100 epochs for runs of 60: by the number of epochs, not by its digits."""
    for epochs, best in ((40, 1e-3), (100, 3e-4)):
        rates = {1e-4: -3.0, 3e-4: -2.0, 1e-3: -2.0, 3e-3: -4.0}
        scored(store, "mle", rates | {best: -1.0}, epochs=epochs)
    found = chosen(store, methods=["mle"], epochs=60)["mle"]
    assert (found.lr, found.chosen_by) == (1e-3, "grid of 40 epochs")
    run = make("convergence", small(epochs=60), "mle", found, 0, (1, 12))
    written(store, run, [0.5] * 60, chosen_by=found.chosen_by)
    [group] = _groups.groups(store.read(), "convergence", _grid.grids(store, "digits"))
    assert group.source == "grid"
    assert group.of_source("mle", group.runs["mle"][0])
