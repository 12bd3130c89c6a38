"""The page of results folders, from records that were never trained."""

import re
from pathlib import Path

import pytest

from llpkit.datasets import register
from llpkit.errors import LLPError
from llpkit.experiments import page_examples
from llpkit.experiments.page import results_page, write_report
from llpkit.experiments.protocol import Grid, Protocol, Sizes, Times
from llpkit.experiments.protocol_file import FILE, write
from llpkit.experiments.records import FoldData, Record, write_run
from llpkit.experiments.results import Results
from llpkit.experiments.run import load
from llpkit.files import add_checksums, write_text
from llpkit.report import Figure, Page

METHODS = {"supervised": 0.95, "mle": 0.9, "dllp": 0.8}


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch):
    """Figures take most of the time, and other tests look at them."""
    monkeypatch.setattr(Figure, "contents", lambda *_: b"a figure")
    monkeypatch.setattr(Figure, "svg", lambda _: "")


def protocol(**changes) -> Protocol:
    given = {
        "title": "Odd digits",
        "dataset": "digits",
        "bag_size": (1, 12),
        "folds": 3,
        "recipe": {"network": "mlp", "epochs": 2},
        "methods": {name: {} for name in METHODS},
    }
    return Protocol(**given | changes)


def record(plan: Protocol, method: str, fold: int = 0, experiment="convergence", **changes):
    final = METHODS[method] + fold / 100
    columns = {"epoch": [1, 2], "seconds": [1.0, 1.0], "log_likelihood": [-2.0, -1.0]}
    given = {
        "recipe": plan.recipe_of(method, experiment, **changes.pop("chosen", {})).to_dict(),
        "data": FoldData("0" * 64, ("even", "odd"), 9, 3, 90, 30),
        "final": {"accuracy": final, "log_likelihood": -1.0},
        "history": columns | {"test_accuracy": [0.5, final]},
        "environment": {"command": f"llpkit {experiment}", "versions": {"torch": "2.13"}},
    }
    return Record(experiment, fold=fold, **given | changes)


def fill(folder: Path, plan: Protocol, *more: Record) -> Path:
    """A results folder with all folds of every method, and other records."""
    write(plan, folder / FILE)
    for method in METHODS:
        for fold in range(plan.folds):
            write_run(folder, record(plan, method, fold))
    for each in more:
        write_run(folder, each)
    return folder


def headings(path: Path) -> list[str]:
    return re.findall(r"<h[1-6]>(.*?)</h[1-6]>", path.read_text(encoding="utf-8"))


def tables(page: Page) -> dict[str, dict[str, list[str]]]:
    """The printed cells of every table by the heading of its section and the head of its row."""
    return {
        section.heading: {
            head: [" ".join(filter(None, cell[:2])) for cell in row] for head, row in block.body
        }
        for section in page.blocks
        if section.kind == "section"
        for block in section.blocks
        if block.kind == "table"
    }


def page_of(folder: Path, plan: Protocol, *more: Record) -> Page:
    return results_page([Results.read(fill(folder, plan, *more))])


def test_a_folder_becomes_a_page_with_a_table_and_figures(tmp_path):
    path = write_report([fill(tmp_path / "digits", protocol())])
    assert path == tmp_path / "digits" / "report" / "report.html"
    found = headings(path)
    assert found == ["Odd digits", "Accuracy", "Learning curves", "Notes", "How it was made"]
    files = {each.relative_to(path.parent).as_posix() for each in path.parent.rglob("*.*")}
    figures = {f"figures/digits-accuracy.{kind}" for kind in ("png", "pdf")}
    assert files == {"report.html", "files.json", *figures}
    assert tables(results_page([Results.read(tmp_path / "digits")])) == {
        "Accuracy": {
            "supervised": ["96.0 ± 1.0", "−5.0 (−5.0 to −5.0)", "−1.000"],
            "mle": ["91.0 ± 1.0", "–", "−1.000"],
            "dllp": ["81.0 ± 1.0", "+10.0 (+10.0 to +10.0)", "−1.000"],
        }
    }


def test_a_page_shows_only_what_was_run(tmp_path):
    plan = protocol(methods={"dllp": {}, "mle": {}})
    folder = tmp_path / "few"
    write(plan, folder / FILE)
    for method in ("dllp", "mle"):
        write_run(folder, record(plan, method))
    page = results_page([Results.read(folder)])
    [facts] = [block for block in page.blocks if block.kind == "facts"]
    assert facts.pairs["folds"] == "1 of 3"
    # One fold has neither a spread nor an interval. The first method is the reference.
    assert tables(page)["Accuracy"] == {
        "dllp": ["80.0", "–", "−1.000"],
        "mle": ["90.0", "−10.0", "−1.000"],
    }


@pytest.mark.parametrize(("folds", "lead"), [(2, "+10.0"), (3, "+10.0 (+10.0 to +10.0)")])
def test_an_interval_needs_three_folds(tmp_path, folds, lead):
    page = page_of(tmp_path, protocol(folds=folds))
    [table] = [block for block in page.walk() if block.kind == "table"]
    assert any("95% interval" in column.about for column in table.shown) == (folds == 3)
    assert tables(page)["Accuracy"]["dllp"][1] == lead


def test_a_constant_rate_is_told_once(tmp_path):
    plan, final = protocol(), {"accuracy": 0.9, "log_likelihood": -1.0}
    known = final | {"baseline_log_likelihood": -2.5}
    write(plan, tmp_path / FILE)
    write_run(tmp_path, record(plan, "mle", final=known))
    text = write_report([tmp_path]).read_text(encoding="utf-8")
    assert "The log-likelihood would be −2.500 if every instance" in text


def test_every_experiment_has_a_section(tmp_path):
    plan = protocol(
        grid=Grid(folds=1, epochs=2, lr=(0.001, 0.003), weight_decay=()),
        sizes=Sizes((2, 4), folds=1, epochs=2, held_out=0.1),
        times=Times(turns=1, epochs=3),
    )
    more = []
    for method in METHODS:
        seconds = {"epoch": [1, 2, 3], "seconds": [9.0, 9.0, 2.0], "log_likelihood": [0.0] * 3}
        more.append(record(plan, method, 0, "epoch-time", history=seconds))
        for size in (2, 4):
            kept = {"epoch": 1, "accuracy": 0.7}
            more.append(record(plan, method, 0, "bag-size", bag_size=size, selected=kept))
        for lr in (0.001, 0.003):
            score = {"held_out_log_likelihood": -lr}
            more.append(record(plan, method, 0, "grid", chosen={"lr": lr}, final=score))
    page = page_of(tmp_path / "all", plan, *more)
    found = tables(page)
    assert found["Epoch time"]["mle"] == ["2.000", "1.00", "1"]
    assert found["Accuracy against bag size"]["mle"] == ["90.0", "90.0", "+0.0"]
    chosen = found["Choice of hyper-parameters"]["dllp"]
    assert chosen == ["learning rate 0.001 (end), weight decay 0", "−0.001", "2", "0", "2", "0"]
    names = ["accuracy", "bag-size", "bags-of-2", "bags-of-4"]
    assert [figure.name for figure in page.figures] == [f"all-{name}" for name in names]


def test_several_folders_become_sections(tmp_path):
    one = fill(tmp_path / "a" / "digits", protocol())
    two = fill(tmp_path / "b" / "digits", protocol(title="Others", seed=1))
    path = write_report([one, two], tmp_path / "out")
    assert {"Odd digits", "Others"} <= set(headings(path))
    assert headings(path).count("Accuracy") == 2
    assert (tmp_path / "out" / "figures" / "digits-2-accuracy.png").exists()


def notes(*every: Results) -> str:
    [block] = [block for block in results_page(every).walk() if block.kind == "notes"]
    return " ".join(block.items)


def test_notes_tell_folds_from_an_official_split(tmp_path):
    folds = Results.read(fill(tmp_path / "folds", protocol()))
    split = Results.read(fill(tmp_path / "split", protocol(official=True)))
    for every in ([folds], [split], [folds, split]):
        text = notes(*every)
        assert {word in text for word in ("test fold", "Folds divide")} == {folds in every}
        assert {word in text for word in ("test split", "every seed")} == {split in every}


def test_a_failed_run_is_on_the_page(tmp_path):
    plan = protocol()
    failed = record(plan, "mle", 0, error="LLPError: no <memory>", data=None)
    other = Record("convergence", {**failed.recipe, "lr": 9.0}, 7, error=failed.error)
    text = write_report([fill(tmp_path / "x", plan, other)]).read_text(encoding="utf-8")
    assert "mle, fold 7: LLPError: no &lt;memory&gt;" in text


def test_a_diverged_run_is_a_failure_except_in_a_grid(tmp_path):
    plan = protocol(grid=Grid(folds=1, epochs=2, lr=(0.001, 9.0), weight_decay=()))
    fields = {"error": "Diverged: inf", "diverged": True, "data": None, "chosen": {"lr": 9.0}}
    more = [record(plan, "mle", 7, **fields), record(plan, "mle", 0, "grid", **fields)]
    text = notes(Results.read(fill(tmp_path, plan, *more)))
    assert "Failed: convergence, mle, fold 7: Diverged" in text
    assert "Failed: grid" not in text


def examples(plan: Protocol, sha256: str) -> list[Record]:
    """Records with one bag of five, of which the first four instances are kept."""
    bag = {"bag": "7", "count": 2, "size": 5, "rows": [3, 1, 4, 5], "truth": [1, 0, 1, 0]}
    data = FoldData(sha256, ("even", "odd"), 9, 3, 90, 30)
    example = {**bag, "probability": [0.9, 0.1, 0.2, 0.4]}
    return [record(plan, name, 0, data=data, examples=[example]) for name in METHODS]


def folder_of_examples(folder: Path, plan: Protocol, sha256: str) -> Results:
    write(plan, folder / FILE)
    for each in examples(plan, sha256):
        write_run(folder, each)
    return Results.read(folder)


def test_example_bags_have_pictures_if_the_data_are_the_same(tmp_path):
    plan = protocol()
    _, sha256 = load(plan)
    wall = page_examples.example_bags(folder_of_examples(tmp_path / "same", plan, sha256), None)
    assert wall.has_images
    [(bag, predicted)] = wall.shown
    assert (bag.known, len(bag.shown), bag.more) == ("2 of 5 odd", 4, 1)
    assert [each.right for each in predicted] == [3] * 3
    assert [each.expected for each in predicted] == [None] * 3  # the fifth is not known
    other = folder_of_examples(tmp_path / "other", plan, "1" * 64)
    assert not page_examples.example_bags(other, None).has_images


def test_example_bags_are_of_the_first_fold(tmp_path):
    plan = protocol()
    first = examples(plan, "1" * 64)
    last = {**first[1].examples[0], "bag": "8", "rows": [9, 8, 7, 6]}
    later = record(plan, "mle", 2, data=first[1].data, examples=[last])
    wall = page_examples.example_bags(Results.of(tmp_path, plan, [*first, later]), None)
    assert [bag.id for bag in wall.bags] == ["7"]
    assert set(wall.methods) == set(METHODS)


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("name", ["group-photos", "portraits"])
def test_pictures_of_people_are_never_read(tmp_path, monkeypatch, name):
    register("portraits", summary="a plugin's", shows_people=True)(lambda: None)

    def read(*_):
        raise AssertionError("the pictures were read")

    monkeypatch.setattr(page_examples, "load", read)
    plan = protocol(dataset=name, bag_size=None)
    page = results_page([folder_of_examples(tmp_path / "people", plan, "0" * 64)])
    [wall] = [block for block in page.walk() if block.kind == "wall"]
    assert not wall.has_images


def test_only_files_of_an_earlier_report_are_replaced(tmp_path):
    folder, out = fill(tmp_path / "x", protocol()), tmp_path / "out"
    out.mkdir()
    (out / "report.html").write_text("mine")
    with pytest.raises(LLPError, match=r"report\.html was not written by llpkit"):
        write_report([folder], out)
    assert (out / "report.html").read_text() == "mine"
    (out / "report.html").unlink()
    write_report([folder], out)
    (out / "notes.txt").write_text("mine")
    folder.rename(tmp_path / "y")
    write_report([tmp_path / "y"], out)
    names = {path.name for path in (out / "figures").iterdir()}
    assert {name.partition("-")[0] for name in names} == {"y"}  # figures of x are gone
    assert (out / "notes.txt").read_text() == "mine"


def test_a_report_leaves_the_directory_of_a_run_alone(tmp_path):
    folder, page = fill(tmp_path / "x", protocol()), tmp_path / "run" / "report.html"
    write_text(page, "of a run")
    add_checksums(page.parent, [page.name])
    with pytest.raises(LLPError, match="choose another folder"):
        write_report([folder], page.parent)
    assert page.read_text() == "of a run"


def test_a_report_needs_records_and_a_folder_of_its_own(tmp_path):
    write(protocol(), tmp_path / "empty" / FILE)
    with pytest.raises(LLPError, match=r"empty has no records"):
        write_report([tmp_path / "empty"])
    folder = fill(tmp_path / "x", protocol())
    with pytest.raises(LLPError, match="x is a results folder; choose another"):
        write_report([folder], folder)
