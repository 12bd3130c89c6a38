"""The search of the grid, on records that are made up."""

from dataclasses import replace

import pytest

from experiments.conftest import record, small
from llpkit.errors import LLPError
from llpkit.experiments.page import results_page
from llpkit.experiments.results import Results
from llpkit.experiments.search import choices, search, searches

LADDERS = {"lr": [0.0001, 0.001, 0.01, 0.1, 1.0], "weight_decay": [0.0, 0.5]}
GRID = small(grid={"folds": 2, "epochs": 2, **LADDERS}, methods={"mle": {}, "dllp": {}})


def answer(runs, score, diverged=lambda run: False):  # noqa: ARG005
    """Records for runs, by a function of their recipe."""
    found = {}
    for run in runs:
        made = record(run.method, run.fold, [0.5], GRID, "grid", recipe=run.recipe)
        made = replace(made, final={"held_out_log_likelihood": score(run.recipe)})
        if diverged(run):
            made = replace(made, error="Diverged: the loss is nan", diverged=True, final={})
        found[made.id] = made
    return found


def finished(score, **more):
    """A search to its end, and how many calls it took."""
    known, calls = {}, 0
    while True:
        found = search(GRID, "mle", known)
        calls += 1
        new = [run for run in found.runs if run.id not in known]
        if not new:
            return found, calls
        known |= answer(new, score, **more)


def test_the_search_goes_axis_by_axis():
    found, calls = finished(lambda recipe: -abs(recipe["lr"] - 0.01) - recipe["weight_decay"])
    assert found.choice == {"lr": 0.01, "weight_decay": 0.0}
    assert [c.values["lr"] for c in found.candidates] == [0.001, 0.01, 0.1, 0.01]
    assert (found.number, calls) == (8, 3)  # (3 + 1) candidates of two folds
    assert found.edges == []


@pytest.mark.parametrize(("best", "tried"), [(1.0, {0.001, 0.01, 0.1, 1.0}), (0.0001, None)])
def test_an_axis_gets_one_step_longer_where_the_best_is_at_its_end(best, tried):
    found, _ = finished(lambda recipe: -abs(recipe["lr"] - best))
    assert found.choice["lr"] == best
    assert {c.values["lr"] for c in found.candidates} == (tried or {0.0001, 0.001, 0.01, 0.1})
    assert "lr" in found.edges


def test_what_diverges_has_lost():
    found, _ = finished(lambda recipe: recipe["lr"], diverged=lambda run: run.recipe["lr"] >= 0.1)
    assert found.choice["lr"] == 0.01
    assert [c.diverged for c in found.candidates if c.values["lr"] == 0.1] == [2]
    found = search(GRID, "mle", answer(search(GRID, "mle", {}).runs, lambda _: 0.0, lambda _: True))
    assert found.choice is None


def test_choices_are_those_of_a_complete_grid(tmp_path):
    def results(*methods, protocol=GRID):
        records = []
        for method in methods:
            known = {}
            while (found := search(GRID, method, known)).choice is None:
                known |= answer(found.runs, lambda recipe: -recipe["lr"])
            records += known.values()
        return Results(tmp_path, protocol, {"grid": records}, [])

    chosen = {"lr": 0.0001, "weight_decay": 0.0}
    both = results("mle", "dllp")
    assert [each.choice for each in searches(both)] == [chosen, chosen]
    assert choices(both, ["mle", "dllp"]) == {"mle": chosen, "dllp": chosen}
    assert choices(results(), ["mle", "dllp"]) == {"mle": {}, "dllp": {}}  # none has begun
    with pytest.raises(LLPError, match="has no choice for dllp; finish it"):
        choices(results("mle"), ["mle", "dllp"])
    given = replace(GRID, methods={"mle": {}, "dllp": {"lr": 0.5}})
    assert choices(results("mle", protocol=given), ["mle", "dllp"])["dllp"] == {}


@pytest.mark.parametrize(
    ("best", "text"), [(None, "none (end)"), ("sinkhorn", "sinkhorn"), ("auto", "auto (end)")]
)
def test_the_page_shows_choices_that_are_not_numbers(tmp_path, best, text):
    own = {"mle": {"approximation": [None, "sinkhorn", "auto"], "lr": [], "weight_decay": []}}
    protocol = small(grid={"folds": 1, "epochs": 2, "methods": own}, methods={"mle": {}})

    def score(recipe):
        return float((recipe["method_options"] or {}).get("approximation") == best)

    records = list(answer(search(protocol, "mle", {}).runs, score).values())
    page = results_page([Results.of(tmp_path, protocol, records)])
    [table] = [block for block in page.walk() if block.kind == "table"]
    chosen, *numbers = (cell.text for cell in table.body[0][1])
    assert f"approximation {text}" in chosen
    assert numbers == ["1.000", "3", "0", "3", "3"]
