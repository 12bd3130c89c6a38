"""Results folders: packing, merging, and records that do not belong."""

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet
import pytest

from experiments.conftest import record, small
from llpkit.errors import LLPError
from llpkit.experiments import Protocol, Results
from llpkit.experiments.records import write_packed, write_run
from llpkit.experiments.results import begin, merge, pack, view

FOLDER = Path("results")


@pytest.fixture(autouse=True)
def _folder():
    start(FOLDER, small())


def start(folder: Path, protocol: Protocol) -> Protocol:
    """Open a folder for runs, as ``reproduce`` does."""
    begin(results := view(folder, protocol))
    return results.protocol


def files(folder: Path = FOLDER) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*"))


def test_packing_keeps_every_value_and_is_idempotent():
    kept = [record(method, fold, [0.5, 0.75]) for method in ("mle", "dllp") for fold in (0, 1)]
    kept[0] = replace(
        kept[0],
        selected={"epoch": 1, "accuracy": 0.5},
        examples=[{"bag": "a", "probability": [0.25]}],
        recipe={**kept[0].recipe, "method_options": {}},
    )
    for each in kept:
        write_run(FOLDER, each)
    before = Results.read(FOLDER)
    pack(Results.read(FOLDER))
    assert files() == ["convergence.parquet", "protocol.yaml"]
    packed = (FOLDER / "convergence.parquet").read_bytes()
    assert Results.read(FOLDER) == before
    pack(Results.read(FOLDER))
    assert (FOLDER / "convergence.parquet").read_bytes() == packed
    assert {r.id for r in before.records["convergence"]} == {r.id for r in kept}
    table = pyarrow.parquet.read_table(FOLDER / "convergence.parquet")
    assert table["final.accuracy"].to_pylist() == [0.75] * 4
    assert table["history.test_accuracy"].to_pylist() == [[0.5, 0.75]] * 4


def test_a_kill_while_packing_loses_and_doubles_nothing(monkeypatch):
    for fold in (0, 1):
        write_run(FOLDER, record("mle", fold, [0.5]))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            pack(Results.read(FOLDER))
    assert len(files()) == 4  # packed, and the small files are still there
    assert len(Results.read(FOLDER).records["convergence"]) == 2
    pack(Results.read(FOLDER))
    assert files() == ["convergence.parquet", "protocol.yaml"]
    assert len(Results.read(FOLDER).records["convergence"]) == 2


def test_a_success_takes_the_place_of_a_failure():
    failed = replace(record("mle", 0, [0.5]), error="OSError: gone", data=None, history={})
    write_run(FOLDER, failed)
    found = pack(Results.read(FOLDER))
    assert [each.error for each in found.failures] == ["OSError: gone"]
    assert found.ids == set()
    write_run(FOLDER, record("mle", 0, [0.5]))
    found = pack(Results.read(FOLDER))
    assert (len(found.failures), len(found.ids)) == (0, 1)
    write_run(FOLDER, failed)
    assert pack(Results.read(FOLDER)).failures == []


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"recipe": {"augment": "paper"}}, "augment = 'paper', but protocol.yaml has None"),
        ({"recipe": {"epochs": 3}}, "epochs = 3, but protocol.yaml has 2"),
        ({"experiment": "grid"}, "protocol.yaml has no grid"),
        ({"bag_size": 4}, "protocol.yaml has no bags of 4"),
        ({"recipe": {"lr": 0.5}}, r"lr = 0\.5, but protocol.yaml has 0\.001"),
        ({"recipe": {"weight_decay": 0.5}}, r"weight_decay = 0\.5, but protocol.yaml has 0"),
        ({"recipe": {"method_options": {"a": 1}}}, "method_options = {'a': 1}, but"),
        ({"fold": 2}, "fold = 2; give a whole number from 0 to 1"),
    ],
)
def test_a_record_of_another_protocol_is_refused(changes, match):
    fold = changes.get("fold", 0)
    others = {key: value for key, value in changes.items() if key != "fold"}
    write_run(FOLDER, record("mle", fold, [0.5], **others))
    with pytest.raises(LLPError, match=match):
        Results.read(FOLDER)


def test_records_that_differ_among_themselves_are_refused():
    start(FOLDER, small(grid={}))  # it may choose any rate, but one for all folds
    first, other = record("mle", 0, [0.5]), record("mle", 1, [0.5])
    write_run(FOLDER, first)
    path = write_run(FOLDER, replace(other, data=replace(other.data, sha256="1" * 64)))
    with pytest.raises(LLPError, match="the checksum of the data is 1111"):
        Results.read(FOLDER)
    path.unlink()
    write_run(FOLDER, replace(other, recipe={**other.recipe, "lr": 0.5}))
    with pytest.raises(LLPError, match=r"lr of mle is 0\.(5|001) in convergence"):
        Results.read(FOLDER)


def test_times_of_two_machines_are_refused():
    folder = Path("timed")
    protocol = small(times={"epochs": 4})
    start(folder, protocol)
    for fold, name in enumerate(("slow", "fast")):
        about = {"device": "cpu", "hardware": {"processor": name, "threads": 1}}
        timed = record("mle", fold, [0.5], protocol, "epoch-time", environment=about)
        write_run(folder, timed)
    with pytest.raises(LLPError, match=r"the machine is (slow|fast)"):
        Results.read(folder)


def test_a_folder_keeps_its_protocol():
    start(FOLDER, small(folds=3))  # as long as there are no records, another may replace it
    assert Results.read(FOLDER).protocol == start(FOLDER, small(folds=3))
    start(FOLDER, small())
    write_run(FOLDER, record("mle", 0, [0.5]))
    assert start(FOLDER, replace(small(), title="Another title")).title == "Small"
    with pytest.raises(LLPError, match=r"a different protocol \(folds is 2 there and 3 here\)"):
        start(FOLDER, small(folds=3))
    Path("mine").mkdir()
    Path("mine", ".protocol.yaml.0123abcd.llpkit-part").touch()  # of a call that was killed
    start(Path("mine"), small())
    Path("mine", "protocol.yaml").rename(Path("mine", "thesis.txt"))
    with pytest.raises(LLPError, match=r"mine has no protocol\.yaml and is not empty"):
        start(Path("mine"), small())


def test_folders_of_two_machines_merge():
    for folder, fold in (("one", 0), ("two", 1), ("two", 0)):
        start(Path(folder), small())
        write_run(Path(folder), record("mle", fold, [0.5 + 0.1 * (folder == "one")]))
    merged = merge(Path("both"), [Path("one"), Path("two")])
    found = {r.fold: r.final["accuracy"] for r in merged.records["convergence"]}
    assert found == {0: 0.6, 1: 0.5}
    assert merge(Path("both"), [Path("two")]) == merged
    start(Path("other"), small(folds=3))
    with pytest.raises(LLPError, match="a different protocol"):
        merge(Path("both"), [Path("other")])
    assert Results.read(Path("both")) == merged


def test_a_merge_that_is_refused_changes_nothing():
    for folder, fold, digit in (("one", 0, "0"), ("two", 1, "1")):
        start(Path(folder), small())
        made = record("mle", fold, [0.5])
        write_run(Path(folder), replace(made, data=replace(made.data, sha256=digit * 64)))
    merged = merge(Path("both"), [Path("one")])
    for folder in ("both", "new"):
        with pytest.raises(LLPError, match="the checksum of the data"):
            merge(Path(folder), [Path("one"), Path("two")])
    assert Results.read(Path("both")) == merged
    assert not Path("new").exists()


def test_damaged_files_are_named():
    (FOLDER / "runs").mkdir()
    small_file = FOLDER / "runs" / "0123.json"
    for text in ("{", '{"data": {}, "recipe": {}}'):
        small_file.write_text(text)
        with pytest.raises(LLPError, match=r"0123\.json is not a record"):
            Results.read(FOLDER)
    small_file.unlink()
    (FOLDER / "grid.parquet").write_bytes(b"PAR1")
    with pytest.raises(LLPError, match=r"grid\.parquet is not a file of records"):
        Results.read(FOLDER)
    with pytest.raises(LLPError, match=r"nowhere has no protocol\.yaml"):
        Results.read(Path("nowhere"))


@pytest.mark.parametrize("packed", [False, True])
def test_a_record_whose_keys_differ_is_refused(packed):
    made = record("mle", 0, [0.5])
    less = {key: value for key, value in made.recipe.items() if key != "max_bags"}
    for recipe, match in (
        (less, r"it has no max_bags, so another version of llpkit wrote it\); .*remove it"),
        ({**made.recipe, "speed": 1}, "it has an unknown speed, so another version"),
    ):
        if packed:
            write_packed(FOLDER / "convergence.parquet", [replace(made, recipe=recipe)])
        else:
            write_run(FOLDER, replace(made, recipe=recipe))
        with pytest.raises(LLPError, match=match):
            Results.read(FOLDER)
        for path in FOLDER.glob("runs/*"):
            path.unlink()


def test_a_record_of_an_unknown_method_asks_for_its_plugin():
    made = record("mle", 0, [0.5])
    write_run(FOLDER, replace(made, recipe={**made.recipe, "method": "mine"}))
    with pytest.raises(LLPError, match=r"'mine'.*--plugin"):
        Results.read(FOLDER)
