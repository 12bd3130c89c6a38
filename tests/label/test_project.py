"""Bags, beliefs and the choice of the next bag."""

import csv
import itertools
import json
import math
import shlex
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from PIL import Image

import llpkit
from llpkit.cli import main
from llpkit.errors import LLPError
from llpkit.estimators import LLPLogisticRegression
from llpkit.evaluation import Gain
from llpkit.label import ArrayItems, ImageItems, Project, RowItems, Store, bagging, learning
from llpkit.label.counts import KnownCount, bags_of, combine, without_labels
from llpkit.label.features import Features
from llpkit.label.opening import opened
from llpkit.label.simulation import counting, digits, fresh, labelling
from llpkit.label.store import Answer

NO_GAIN = Gain(0.0, 0.0, math.inf, 1)


@pytest.fixture(scope="module")
def pool():
    with ThreadPoolExecutor(1) as made:
        yield made


def lamps(number=240, seed=0):
    """Small images, bright on the left or on the right."""
    draw = torch.Generator().manual_seed(seed)
    truth = torch.randint(2, (number,), generator=draw)
    images = torch.randint(0, 90, (number, 1, 4, 4), generator=draw)
    images[truth == 1, :, :, 2:] += 120
    return ArrayItems(images.to(torch.uint8)), truth


@pytest.mark.parametrize("way", ["random", "time", "folder"])
def test_every_item_is_in_one_bag_of_a_comfortable_size(way):
    groups = [f"f{i % 3}" for i in range(50)]
    made = bagging.make(way, range(50), 12, 0, groups, [float(-i) for i in range(50)])
    assert sorted(itertools.chain(*made.values())) == list(range(50))
    assert max(map(len, made.values())) <= 12
    if way == "folder":
        assert all(len({groups[i] for i in bag}) == 1 for bag in made.values())


def test_bags_that_cannot_be_made_are_refused():
    for way in ("folder", "time"):
        with pytest.raises(LLPError, match="way='random'"):
            bagging.make(way, range(5), 2, 0)


def test_people_who_disagree_give_a_range():
    given = [Answer(1, "A", 2, 2, 1), Answer(1, "B", 3, 4, 1), Answer(2, "A", 0, 0, 1)]
    assert combine(given) == {1: KnownCount(2, 4, 2, False), 2: KnownCount(0, 0, 1, True)}


def test_taking_a_labelled_item_out_of_its_bag_loses_nothing():
    # log P(count, label) = log P(label) + log P(count - label of the others), by enumeration.
    z = torch.tensor([0.3, -1.2, 0.8, 2.0], dtype=torch.float64)
    p = z.sigmoid()
    for low, high, item, value in itertools.product(range(4), range(4), range(4), (0, 1)):
        if low > high:
            continue
        total = sum(
            math.prod(float(p[i] if h[i] else 1 - p[i]) for i in range(4))
            for h in itertools.product((0, 1), repeat=4)
            if low <= sum(h) <= high and h[item] == value
        )
        if not max(low - value, 0) <= min(high - value, 3):
            continue
        known = {1: KnownCount(low, high, 1, True)}
        parts = without_labels({1: [0, 1, 2, 3]}, {1: "b"}, known, {item: value}, list("abcd"))
        bags = bags_of(parts, 4)
        found = llpkit.likelihood.log_prob(z[bags.rows], bags.evidence, bags.offsets).sum()
        if low - value >= 0 and high - value <= 3:
            assert float(found.exp()) == pytest.approx(total)


def test_information_is_the_mutual_information_of_count_and_model():
    draw = np.random.default_rng(0)
    members = draw.normal(size=(3, 6)) * 2
    bags = [[0, 1, 2], [3], [4, 5]]
    expected = []
    for bag in bags:
        joint = np.zeros((3, len(bag) + 1))
        for m, h in itertools.product(range(3), itertools.product((0, 1), repeat=len(bag))):
            p = 1 / (1 + np.exp(-members[m, bag]))
            joint[m, sum(h)] += np.prod(np.where(h, p, 1 - p)) / 3
        independent = joint.sum(0) * joint.sum(1)[:, None]
        expected.append((joint * np.log(joint / independent)).sum())
    assert learning.information(members, bags) == pytest.approx(np.array(expected))
    same = np.repeat(members[:1], 3, 0)
    assert learning.information(same, bags) == pytest.approx(np.zeros(3), abs=1e-12)


def test_a_surprising_count_has_a_small_chance():
    logits = np.array([[4.0, 4.0, 4.0, -4.0, -4.0]])
    beliefs = learning.Beliefs(logits, np.zeros(5, np.int64), NO_GAIN, logits)
    bags = llpkit.Bags([0, 3, 5], [3, 2])
    chance = learning.surprise(beliefs, bags)
    assert chance[0] == pytest.approx(1)
    p = 1 / (1 + math.exp(4))
    assert chance[1] == pytest.approx(p * p)


def test_a_project_learns_from_counts_and_finds_the_miscount(pool):
    items, truth = lamps()
    project = Project(items, Store(":memory:"), size=6, pool=pool, positive="right")
    wrong = None
    while (bag := project.next_bag("Ada")) is not None:
        members = project.store.bags()[bag]
        count = int(truth[members].sum())
        if wrong is None and count >= 5:
            wrong, count = bag, 0
        project.answer(bag, "Ada", count, count, 1.0)
        project.learner.wait()
    state = project.state()
    newest = state["history"][-1]
    assert newest["log_likelihood"] > newest["baseline"]
    assert wrong in [each["bag"] for each in state["unlikely"]]
    assert state["counted"] == state["bags"] == 40
    shown = project.describe(1, "Ada")
    known = shown["low"]
    assert sum(item["after"] for item in shown["items"]) == pytest.approx(known, abs=1e-2)


def test_at_most_one_count_in_twenty_is_a_possible_miscount(pool):
    items, truth = lamps()
    project = Project(items, Store(":memory:"), size=6, pool=pool)
    counted(project, 1 - truth, 8)  # and then the reverse, so that many counts are unlikely
    counted(project, truth)
    chance = learning.surprise(project.learner.beliefs, project.bags())
    assert (chance < 0.05).sum() > 2
    unlikely = [each["bag"] for each in project.state()["unlikely"]]
    assert len(unlikely) == 2
    # One that was counted again is checked, and another one takes its place.
    answer = next(a for a in project.store.answers() if a.bag == unlikely[0])
    project.answer(answer.bag, "Ada", answer.low, answer.high, 1.0)
    left = [each["bag"] for each in project.state()["unlikely"]]
    assert unlikely[0] not in left
    assert len(left) == 2


def counted(project, truth, number=None):
    """Count bags, all or some, without mistakes."""
    for _ in itertools.count() if number is None else range(number):
        bag = project.next_bag("Ada")
        if bag is None:
            break
        project.answer(bag, "Ada", *[int(truth[project.store.bags()[bag]].sum())] * 2, 1.0)
        project.learner.wait()


def test_corrected_counts_are_learned(pool):
    items, truth = lamps()
    project = Project(items, Store(":memory:"), size=6, pool=pool)
    counted(project, truth, 14)
    before = project.learner.beliefs
    for bag in [answer.bag for answer in project.store.answers()][:4]:
        project.answer(bag, "Ada", 0, 6, 1.0)
    project.learner.wait()
    assert project.learner.beliefs is not before
    before = project.learner.beliefs
    for _ in range(4):
        project.undo("Ada")
    project.learner.wait()
    assert project.learner.beliefs is not before


@pytest.mark.parametrize("way", ["random", "score"])
@pytest.mark.parametrize("number", [20, 60, 66])
def test_the_last_counts_of_a_project_are_learned(pool, number, way):
    items, truth = lamps(number)
    project = Project(items, Store(":memory:"), way=way, pool=pool)
    counted(project, truth)
    assert project.learner.beliefs.gain.number == len(project.store.bags()) >= 10


def test_few_bags_are_enough_if_there_are_no_more(pool):
    items, truth = lamps(48)
    project = Project(items, Store(":memory:"), size=12, pool=pool)
    counted(project, truth)
    assert project.state()["least"] == project.learner.beliefs.gain.number == 4


def test_a_label_that_contradicts_a_count_is_refused_and_the_reverse():
    items, _ = lamps(24)
    project = Project(items, Store(":memory:"), size=6)
    item, other, *_ = project.store.bags()[1]
    project.answer(1, "Ada", 0, 0, 1.0)
    project.label(other, "Ada", 0)
    with pytest.raises(LLPError, match="0 of 6, leaves no room") as refused:
        project.label(item, "Ada", 1)
    assert refused.value.bag == 1
    with pytest.raises(LLPError, match="not saved") as refused:
        project.label(item, "Bob", 1)
    assert "0" not in str(refused.value).replace("bag 0001", "")  # Bob is not told Ada's count
    assert project.store.labels() == {other: 0}
    project.answer(1, "Bob", 1, 1, 1.0)
    project.label(item, "Bob", 1)
    for count in (0, 6):
        with pytest.raises(LLPError, match="1 to 5 of 6"):
            project.answer(1, "Ada", count, count, 1.0)
    project.answer(1, "Ada", 0, 1, 1.0)


def test_people_who_label_an_item_differently_are_counted():
    items, _ = lamps(24)
    project = Project(items, Store(":memory:"), size=6)
    for item, person, value in ((0, "Ada", 1), (0, "Bob", 0), (1, "Ada", 1), (1, "Bob", 1)):
        project.label(item, person, value)
    project.label(2, "Ada", 1)
    project.label(2, "Bob", None)
    state = project.state()
    assert (state["labels_compared"], state["labels_agreed"]) == (2, 1)


def test_few_counts_prove_little():
    verdicts = [learning.verdict(Gain(mean, 0.0, 0.5, 9), 9) for mean in (-3.0, 0.5, 3.0)]
    assert "no better" in verdicts[0]
    assert "Too few" in verdicts[1]
    assert "better" in verdicts[2]
    assert "no better" not in verdicts[2]


def test_labels_are_not_called_counts(pool):
    items, truth = lamps()
    project = Project(items, Store(":memory:"), size=6, pool=pool)
    project.label(0, "Ada", int(truth[0]))
    counted(project, truth, 5)
    assert "5 counts and 1 label" in project.state()["verdict"]
    counted(project, truth)
    answers = [each["answers"] for each in project.state()["history"]]
    assert answers == sorted(set(answers))


@pytest.mark.parametrize("way", ["random", "score"])
def test_the_state_says_how_many_bags_there_will_be(way):
    items, _ = lamps(50)
    assert Project(items, Store(":memory:"), way=way, size=5).state()["number"] == 10


def test_bags_on_another_page_are_not_offered():
    items, _ = lamps(24)
    project = Project(items, Store(":memory:"), size=6)
    first, second = project.next_bag("Ada"), project.next_bag("Bob")
    assert first != second
    assert project.next_bag("Ada") == first  # a reload shows the same bag


def test_the_count_of_another_person_is_not_shown(pool):
    items, _ = lamps(60)
    project = Project(items, Store(":memory:"), size=6, pool=pool)
    for _ in range(6):
        project.answer(project.next_bag("Ada"), "Ada", 2, 4, 1.0)
    project.learner.wait()
    bag = project.store.answers()[0].bag
    own, other = project.describe(bag, "Ada"), project.describe(bag, "Bob")
    assert (own["low"], own["high"]) == (2, 4)
    assert (other["low"], other["high"]) == (None, None)
    assert own["items"][0]["after"] is not None
    assert other["items"][0]["after"] is None


def test_a_reload_shows_the_same_bag_after_a_training(pool):
    items, truth = lamps(240)
    project = Project(items, Store(":memory:"), size=6, pool=pool)
    for number in range(6):
        bag = project.next_bag("Ada")
        if number == 5:
            waiting = project.next_bag("Bob")
        project.answer(bag, "Ada", *[int(truth[project.store.bags()[bag]].sum())] * 2, 1.0)
    project.learner.wait()
    assert project.learner.beliefs is not None
    assert project.next_bag("Bob") == waiting
    assert project.undo("Ada")["bag"]["bag"] == bag
    assert project.next_bag("Ada") == bag


def test_people_share_some_bags_so_that_they_can_be_compared():
    items, truth = lamps(240)
    project = Project(items, Store(":memory:"), size=6)
    for _ in range(12):
        for person in ("Ada", "Bob"):
            bag = project.next_bag(person)
            count = int(truth[project.store.bags()[bag]].sum())
            project.answer(bag, person, count, count, 1.0)
    state = project.state()
    assert state["compared"] >= 3
    assert state["agreed"] == state["compared"]
    assert {each["name"] for each in state["people"]} == {"Ada", "Bob"}


def test_bags_by_score_are_made_as_the_model_learns(pool):
    items, truth = lamps(120)
    project = Project(items, Store(":memory:"), way="score", size=6, pool=pool)
    for _ in range(12):
        bag = project.next_bag("Ada")
        count = int(truth[project.store.bags()[bag]].sum())
        project.answer(bag, "Ada", count, count, 1.0)
        project.learner.wait()
    used = list(itertools.chain(*project.store.bags().values()))
    assert len(used) == len(set(used)) == 72
    first = [set(truth[bag].tolist()) for bag in list(project.store.bags().values())[-3:]]
    assert min(map(len, first)) == 1  # neighbours in score have the same label


def test_a_folder_of_photos(photos, tmp_path):
    folder, truth = photos
    (folder / "broken.jpg").write_bytes(b"no image")
    (folder / ".hidden.png").write_bytes(b"")
    (folder / "outside.png").symlink_to(tmp_path / "elsewhere.png")
    Image.new("RGB", (9, 9)).save(tmp_path / "elsewhere.png")
    items = ImageItems(folder)
    assert sorted(items.names) == sorted(truth)
    assert "broken.jpg" in items.notes[0]
    assert items.inputs().shape == (len(truth), 3, 32, 32)
    shown = items.picture(0)
    assert shown.media_type == "image/png"
    assert shown.content.startswith(b"\x89PNG")
    (folder / "broken.jpg").unlink()
    (folder / "outside.png").unlink()


@pytest.mark.parametrize("way", ["folder", "time", "alike", "random", "score"])
def test_photos_added_later_are_counted_too(tmp_path, way):
    def add(*names):
        for name in names:
            image = Image.new("RGB", (20, 20), (int(name[1:]), 0, 0))
            image.save(tmp_path / f"{name}.png")

    def shown(project):
        return {
            project.items.names[i]: (project.items.inputs()[i, 0, 0, 0].item(), i)
            for bag in project.store.bags().values()
            for i in bag
        }

    add(*(f"m{i:03}" for i in range(0, 200, 10)))
    store = Store(":memory:")
    project = Project(ImageItems(tmp_path), store, way=way, size=4)
    bag = project.next_bag("Ada")
    project.answer(bag, "Ada", 1, 1, 1.0)
    before, bags = shown(project), store.bags()
    add("a005", "n015", "z025")
    project = Project(ImageItems(tmp_path), store, way=way, size=4)
    while (bag := project.next_bag("Ada")) is not None:
        project.answer(bag, "Ada", 1, 1, 1.0)
    after = shown(project)
    assert after.items() >= before.items()
    assert store.bags().items() >= bags.items()
    assert len(after) == 23
    assert all(red == int(name[1:4]) for name, (red, _) in after.items())


def test_counts_are_exported_after_a_photo_was_added(tmp_path, capfd):
    for name in "bcdefg":
        Image.new("RGB", (9, 9)).save(tmp_path / f"{name}.png")
    folder = tmp_path / ".project"
    with opened(folder, ImageItems(tmp_path), way="random", learn=False) as project:
        project.answer(1, "Ada", 1, 1, 1.0)
        names = {project.items.names[item] for item in project.store.bags()[1]}
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    command = ["label", str(tmp_path), "--project", str(folder), "--export"]
    assert main(command) == 0, capfd.readouterr().err
    with (folder / "counts.csv").open() as file:
        assert {row["image"] for row in csv.DictReader(file)} == names
    (tmp_path / "b.png").unlink()
    assert main(command) == 2
    assert "missing now: b.png" in capfd.readouterr().err


def test_the_usage_has_single_brackets(capfd):
    assert main(["label", "--help"]) == 0
    assert "[PHOTOS|TABLE]" in (text := capfd.readouterr().out)
    assert "[[" not in text


def test_a_folder_without_images_is_refused(tmp_path):
    with pytest.raises(LLPError, match="holds no images"):
        ImageItems(tmp_path)


def test_the_features_of_rows_are_those_of_fit(tmp_path):
    table = tmp_path / "people.csv"
    rows = [f"person {i},{1900 + i}-01-01,{20 + i}" for i in range(90)]
    table.write_text("\n".join(["name,born,age", *rows]))
    items = RowItems(table)
    assert items.inputs().shape == (90, 1)
    assert [note.split("'")[1] for note in items.notes] == ["name", "born"]
    assert "name: person 0" in items.caption(0)  # people see all columns


def test_rows_of_a_table_are_exported_with_their_counts(tmp_path):
    table = tmp_path / "people.csv"
    table.write_text("district,age\n" + "".join(f"d{i // 3},{20 + i}\n" for i in range(9)))
    project = Project(RowItems(table, "district"), Store(":memory:"), way="folder", size=5)
    assert project.describe(1, "Ada")["items"][0]["caption"] == "age: 20"
    with pytest.raises(LLPError, match="nothing was counted"):
        project.export(tmp_path / "counts.csv")
    project.answer(1, "Ada", 1, 2, 1.0)
    project.label(1, "Ada", 1)
    project.export(tmp_path / "counts.csv")
    assert (tmp_path / "counts.csv").read_text().splitlines() == [
        "bag,count_low,count_high,age",
        "d0,0,1,20",
        "d0,0,1,22",
        "item row 2,1,1,21",
    ]


def slides(path, sizes):
    """A table of slides with their counts and true labels, which are nothing to learn from."""
    rows = []
    for slide, size in enumerate(sizes):
        truth = [i % 3 < slide % 4 for i in range(size)]
        rows += [
            (f"S{slide}", i * 7 % 10 + 20 * t, sum(truth), int(t)) for i, t in enumerate(truth)
        ]
    lines = [",".join(map(str, row)) for row in rows]
    path.write_text("\n".join(["slide,area,count_low,truth", *lines]))
    return path


def sizes_in(folder):
    store = Store(folder / "counts.sqlite")
    found = {name: len(store.bags()[bag]) for bag, name in store.bag_names().items()}
    store.close()
    return found


@pytest.mark.parametrize("sizes", [[5, 14, 30, 8, 13, 2], [20]])
def test_the_bags_of_a_table_are_kept_whole(tmp_path, capfd, sizes):
    table = slides(tmp_path / "slides.csv", sizes)
    command = ["label", str(table), "--bag", "slide", "--export", "--drop", "count_low"]
    assert main([*command, "--project", str(tmp_path / "whole")]) == 0
    assert sizes_in(tmp_path / "whole") == {f"S{i}": size for i, size in enumerate(sizes)}
    assert "--size" not in capfd.readouterr().err


def test_bags_of_a_table_are_divided_only_as_asked(tmp_path, capfd):
    table = slides(tmp_path / "slides.csv", [5, 14, 30])
    command = ["label", str(table), "--bag", "slide", "--export", "--size", "14"]
    assert main([*command, "--project", str(tmp_path / "divided")]) == 0
    assert sizes_in(tmp_path / "divided") == {
        "S0": 5,
        "S1": 14,
        "S2 (1)": 10,
        "S2 (2)": 10,
        "S2 (3)": 10,
    }
    assert "1 of 3 bags has more than --size 14 items and is divided" in capfd.readouterr().err
    assert main([*command, "--project", str(tmp_path / "divided")]) == 0
    assert "divided;" not in capfd.readouterr().err  # they were divided before


def test_a_bag_that_is_large_to_count_is_noted(tmp_path, capfd):
    table = slides(tmp_path / "slides.csv", [5, 14, 51])
    command = ["label", str(table), "--bag", "slide", "--export"]
    assert main([*command, "--project", str(tmp_path / "large")]) == 0
    assert sizes_in(tmp_path / "large") == {"S0": 5, "S1": 14, "S2": 51}
    noted = capfd.readouterr().err
    assert "1 of 3 bags is large to count: the largest, S2, has 51 items" in noted


def test_a_dropped_column_is_neither_shown_nor_learned_from(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = slides(tmp_path / "slides.csv", [6 + i % 9 for i in range(30)])
    command = ["label", "slides.csv", "--bag", "slide", "--project", "counted", "--export"]
    assert main(command) == 0
    assert "to leave it out, give --drop count_low" in capfd.readouterr().err
    command += ["--drop", "count_low", "--drop", "truth"]

    items = RowItems(table, "slide", ["count_low", "truth"])
    assert items.caption(0) == "area: 0"
    assert items.inputs().shape == (len(items), 1)
    with opened(tmp_path / "counted", items, way="folder", learn=False) as project:
        truth = items.table.numbers("truth")
        for bag, members in project.store.bags().items():
            count = int(truth[members].sum())
            project.answer(bag, "Ada", count, count, 1.0)

    assert main(command) == 0
    told = capfd.readouterr()
    assert "--drop" not in told.err
    header, first, *_ = (tmp_path / "counted" / "counts.csv").read_text().splitlines()
    assert header == "counted_bag,counted_count_low,counted_count_high,area"
    assert first == "S0,0,0,0"
    train, predict = (shlex.split(line)[1:] for line in told.out.splitlines() if "llpkit " in line)
    assert main([*train, "--estimator", "logistic"]) == 0, capfd.readouterr().err
    assert main(predict) == 0, capfd.readouterr().err
    with open("counted/predicted.csv") as file:
        found = list(csv.DictReader(file))
    right = [(float(row["probability"]) > 0.5) == (row["truth"] == "1") for row in found]
    assert sum(right) / len(right) > 0.95


def test_only_columns_of_a_table_can_be_dropped(photos, tmp_path, capfd):
    table = slides(tmp_path / "slides.csv", [5, 5])
    for source, column, message in (
        (table, "ares", "has no column 'ares' to leave out; did you mean 'area'?"),
        (photos[0], "area", "--drop names columns of a table"),
    ):
        project = str(tmp_path / "project")
        assert main(["label", str(source), "--drop", column, "--project", project]) == 2
        assert message in " ".join(capfd.readouterr().err.split())
    everything = [f"--drop={name}" for name in ("slide", "area", "count_low", "truth")]
    assert main(["label", str(table), *everything, "--project", project]) == 2
    assert "has no column to learn from" in capfd.readouterr().err


def test_the_commands_train_on_the_counts_and_predict_every_row(tmp_path, capfd):
    folder = tmp_path / "it's a project"
    folder.mkdir()
    table = tmp_path / "people.csv"
    # The table has a column of its own that is called bag.
    rows = [(i // 4, 20 + (i * 37) % 60, (i * 7) % 5) for i in range(160)]
    table.write_text("district,age,bag\n" + "".join(f"d{d},{age},{b}\n" for d, age, b in rows))
    items = RowItems(table, "district")
    project = Project(items, Store(":memory:"), way="folder", size=4, folder=folder)
    for bag, members in list(project.store.bags().items())[:30]:
        count = sum(rows[i][1] > 50 for i in members)
        project.answer(bag, "Ada", count, count, 1.0)
    project.write()
    train, predict = (shlex.split(command)[1:] for command in project.commands())
    assert main([*train, "--estimator", "logistic"]) == 0, capfd.readouterr().err
    assert "held-out" in capfd.readouterr().out
    assert main(predict) == 0, capfd.readouterr().err
    with (folder / "predicted.csv").open() as file:
        found = list(csv.DictReader(file))
    assert [row["district"] for row in found] == [f"d{d}" for d, _, _ in rows]
    right = sum((float(row["probability"]) > 0.5) == (int(row["age"]) > 50) for row in found)
    assert right > 150
    # Another run does not replace the first.
    assert project.commands()[0].endswith("run-2'")


def test_the_simulated_person_teaches_the_models(pool):
    demo = digits(number=300)
    project = fresh(demo, pool, size=6, order="information", way="random", seed=0)
    steps = list(counting(project, demo.truth, demo.test_truth, bags=14))
    assert [step.answers for step in steps] == [6, 10, 14]
    assert steps[-1].accuracy > 0.55
    single = labelling(
        project.items.inputs(),
        demo.truth,
        demo.test,
        demo.test_truth,
        steps[-1:],
        pool,
        same="keystrokes",
    )
    assert [step.answers for step in single] == [steps[-1].keystrokes]


def test_bags_by_likeness_hold_items_of_one_kind():
    items, truth = lamps(96)
    project = Project(items, Store(":memory:"), way="alike", size=6)
    bags = project.store.bags()
    assert sorted(itertools.chain(*bags.values())) == list(range(96))
    mixed = [bag for bag in bags.values() if len(set(truth[bag].tolist())) == 2]
    assert len(mixed) <= 2


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (1, 32, 32), (3, 24, 40)])
def test_features_tell_pictures_apart(shape):
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (30, *shape), generator=draw).to(torch.uint8)
    images[15:] = images[:15]  # the same pictures again
    found = Features(images)(images)
    assert torch.allclose(found[15:], found[:15])
    assert torch.pdist(found[:15]).min() > 0.1


def test_features_of_equal_items_are_finite():
    same = torch.zeros(8, 3, 32, 32, dtype=torch.uint8)
    assert Features(same)(same).isfinite().all()


def test_a_mirror_image_is_closer_than_another_image():
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (20, 3, 32, 32), generator=draw).to(torch.uint8)
    images = torch.cat([images, images[:1].flip(-1)])
    far = torch.cdist(Features(images)(images[:1]), Features(images)(images[1:]))[0]
    assert far.argmin() == 19


def test_draws_have_the_variance_of_a_logistic_regression(monkeypatch):
    # Bags of one are labels, whose information is known in closed form.
    monkeypatch.setattr(learning, "_DRAWS", 20_000)
    draw = np.random.default_rng(0)
    x = draw.normal(size=(60, 2))
    labels = (draw.random(60) < 1 / (1 + np.exp(-x[:, 0]))).astype(int)
    bags = llpkit.Bags(np.arange(61), labels)
    model = LLPLogisticRegression(C=learning._C).fit(x, labels)
    draws = learning.draws_of(model, x, bags, seed=0)
    design = np.column_stack([x, np.ones(60)])
    p = model.predict_proba(x)[:, 1]
    precision = design.T @ (design * (p * (1 - p))[:, None]) + np.eye(3) / learning._C
    expected = np.einsum("np,pq,nq->n", design, np.linalg.inv(precision), design)
    assert draws.var(0) == pytest.approx(expected, rel=0.05)


def test_training_survives_counts_that_are_all_zero(pool):
    items, _ = lamps(60)
    project = Project(items, Store(":memory:"), size=6, pool=pool)
    for count in (0, 0, 0, 0, 0, 6):
        project.answer(project.next_bag("Ada"), "Ada", count, count, 1.0)
    project.learner.wait()
    assert project.learner.error is None
    json.dumps(project.state(), allow_nan=False)  # what the server does


def test_photos_are_ordered_by_the_time_of_the_camera(tmp_path):
    for i, day in enumerate(("03", "01", "02")):
        image = Image.new("RGB", (20, 20))
        exif = image.getexif()
        exif.get_ifd(0x8769)[0x9003] = f"2024:05:{day} 12:00:00"
        image.save(tmp_path / f"{i}.jpg", exif=exif)
    items = ImageItems(tmp_path)
    assert list(np.argsort(items.times)) == [1, 2, 0]
    Image.new("RGB", (20, 20)).save(tmp_path / "later.png")
    assert np.argmax(ImageItems(tmp_path).times) == 3


def test_items_that_are_misjudged_together_are_less_of_a_surprise():
    # Ten equal items of an unknown kind: all positive or all negative is what one expects.
    certain = np.zeros((2, 10))
    either = np.stack([np.full(10, -4.0), np.full(10, 4.0)])
    bags = llpkit.Bags([0, 10], [10])
    none = np.zeros(10, np.int64)
    chances = [
        learning.surprise(learning.Beliefs(d, none, NO_GAIN, d), bags)[0] for d in (certain, either)
    ]
    assert chances[0] < 0.01
    assert chances[1] > 0.5
