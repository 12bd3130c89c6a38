"""The one call, its refusals, and what the loop promises."""

import errno
import itertools
import os
import time
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import llpkit
from llpkit import LLPError
from llpkit.errors import Diverged
from llpkit.files import add_checksums
from llpkit.methods.mle import MLE
from llpkit.training import Callback, Feed, TestMetrics, bag_batches, instance_batches
from llpkit.training.callbacks import instance_measures
from llpkit.training.check_logits import refuse_probabilities
from llpkit.training.checkpoint import Checkpoint


def toy(rows=200, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 3, generator=generator)
    truth = (x[:, 0] > 0).long()
    return x, truth, llpkit.random_bags(truth, (1, 6), generator=seed)


def quick(**options):
    x, _, bags = toy()
    return llpkit.fit("mlp", bags, x, **{"epochs": 2, "progress": False, **options})


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.network.state_dict().values()])


# What it gives


def test_the_history_has_one_row_per_epoch():
    x, truth, _ = toy()
    model = quick(epochs=3, held_out=0.25, callbacks=[TestMetrics(x, truth)])
    assert [row["epoch"] for row in model.history] == [1, 2, 3]
    expected = {
        "loss", "seconds", "lr", "log_likelihood", "proportion_error", "held_out_log_likelihood",
        "held_out_proportion_error", "test_accuracy", "test_log_loss", "test_auc",
    }  # fmt: skip
    assert expected <= set(model.history[0])


@pytest.mark.parametrize("kind", ["module", "numpy", "uint8 images", "two logits"])
def test_any_network_and_any_array(kind):
    x, _, bags = toy()
    network, inputs = "mlp", x
    if kind == "module":
        network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    elif kind == "numpy":
        inputs = x.double().numpy()
    elif kind == "uint8 images":
        network = nn.Sequential(nn.Flatten(), nn.Linear(48, 1))
        inputs = torch.randint(0, 256, (200, 3, 4, 4), dtype=torch.uint8)
    else:
        network = nn.Linear(3, 2)
    model = llpkit.fit(network, bags, inputs, epochs=1, progress=False)
    p = model.predict_proba(inputs)
    assert p.shape == (200, 2)
    assert ((p >= 0) & (p <= 1)).all()
    assert torch.equal(p.sum(1), torch.ones(200))


def test_the_posterior_of_rows_agrees_with_the_counts():
    x, _, bags = toy()
    model = quick()
    phi = model.posterior(x, bags)
    for bag in bags:
        assert float(phi[bag.rows, 1].sum()) == pytest.approx(bag.count, abs=1e-4)


def test_the_posterior_takes_the_inputs_of_the_whole_table():
    x, _, bags = toy()
    _, test = bags.split(0.8, generator=0)
    with pytest.raises(LLPError, match=rf"table with 200 rows but inputs has {len(test.rows)}"):
        quick().posterior(x[test.rows], test)


def test_rows_in_any_order_give_the_same_bags():
    """The permutation that Bags keeps puts each row beside its bag-mates."""
    x, truth, _ = toy()
    groups = np.arange(200) % 40  # bags interleaved
    bags = llpkit.Bags.from_labels(truth, groups)
    model = llpkit.fit("linear", bags, x, "direct", epochs=30, lr=0.1, progress=False)
    assert (model.predict(x) == truth).float().mean() > 0.95


def test_a_seed_settles_everything_and_the_global_state_is_left_alone():
    torch.manual_seed(123)
    expected = torch.rand(3)
    torch.manual_seed(123)
    first, second, other = quick(seed=1), quick(seed=1), quick(seed=2)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(weights(first), weights(second))
    assert not torch.equal(weights(first), weights(other))


def test_held_out_bags_choose_the_epoch():
    model = quick(epochs=12, held_out=0.3, lr=0.05)
    values = [row["held_out_log_likelihood"] for row in model.history]
    assert model.selected_epoch == 1 + int(np.argmax(values))
    last = quick(epochs=12, lr=0.05)
    assert last.selected_epoch == 12


def test_patience_stops_the_run():
    x, _, _ = toy()
    # Counts of pure noise: held-out likelihood soon falls.
    noise = llpkit.random_bags(torch.randint(0, 2, (200,)), (1, 6), generator=3)
    model = llpkit.fit(
        "mlp", noise, x, epochs=300, lr=0.05, held_out=0.3, patience=3, progress=False
    )
    assert len(model.history) < 300
    assert len(model.history) == model.selected_epoch + 3


def test_a_callback_may_look_on_and_stop():
    class Stop(Callback):
        def on_epoch(self, session, row):
            row["mine"] = float(session.logits(torch.zeros(2, 3)).sigmoid().mean())
            session.stop = row["epoch"] == 2

    model = quick(epochs=9, callbacks=[Stop()])
    assert len(model.history) == 2
    assert 0 < model.history[0]["mine"] < 1


def test_one_callback_needs_no_list_and_its_labels_no_tensor():
    x, truth, _ = toy()
    model = quick(callbacks=TestMetrics(x, truth.tolist()))
    assert 0 <= model.history[0]["test_accuracy"] <= 1
    with pytest.raises(LLPError, match=r"truth has shape \(150,\) but inputs has 200 rows"):
        TestMetrics(x, truth[:150])


def test_the_log_loss_of_certain_mistakes_is_exact():
    z = torch.tensor([200.0, -200.0, 0.0])
    for logits in (z, torch.stack([-z / 2, z / 2], 1)):
        found = instance_measures(logits, torch.tensor([0, 1, 1]))
        assert found["test_log_loss"] == pytest.approx((400 + np.log(2)) / 3)


def test_what_a_callback_writes_can_be_saved(tmp_path):
    class Write(Callback):
        def __init__(self, value):
            self.value = value

        def on_epoch(self, session, row):  # noqa: ARG002
            row["mine"] = self.value

    for value in (torch.tensor(0.5), np.float32(0.5), np.array(0.5), 0.5):
        model = quick(callbacks=[Write(value)], run_dir=tmp_path / str(type(value)))
        assert type(model.history[0]["mine"]) is float
        assert llpkit.load(model.save(tmp_path / "model")).history == model.history
    with pytest.raises(LLPError, match=r"wrote a Tensor into row\['mine'\], which cannot be"):
        quick(callbacks=[Write(torch.zeros(3))])


def test_whole_numbers_of_any_kind_will_do():
    assert torch.equal(weights(quick(seed=np.int64(3))), weights(quick(seed=3)))


def test_mixed_precision_trains():
    model = quick(precision="bf16-mixed", epochs=3)
    assert np.isfinite(model.history[-1]["loss"])


def test_schedules_and_optimisers_of_ones_own():
    rates = [row["lr"] for row in quick(epochs=4, schedule="tail", lr=0.1).history]
    assert rates == pytest.approx([0.1, 0.1, 0.1, 0.05])
    model = quick(
        optimizer=lambda parameters: torch.optim.Adagrad(parameters, lr=0.3),
        schedule=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5),
    )
    assert [row["lr"] for row in model.history] == pytest.approx([0.3, 0.15])


def test_progress_is_shown_in_lines_without_a_terminal(capfd):
    quick(progress=True, epochs=2, method="mle")
    shown = capfd.readouterr().err
    assert "mle: epoch 2/2" in shown
    assert "bag log-lik" in shown
    assert "prop. error" in shown
    assert "s left" in shown


# Labels stay out


def test_no_method_but_supervised_takes_labels():
    _, truth, _ = toy()
    for method in ("mle", "direct", "amle", "dllp", "llp-gan"):
        with pytest.raises(LLPError, match=f'"{method}" learns from counts; pass no labels'):
            quick(method=method, labels=truth)
    with pytest.raises(LLPError, match='"supervised" learns from instance labels; pass labels='):
        quick(method="supervised")


# Batches


def test_instance_batches_visit_each_instance_once():
    batches = instance_batches(101, 10)
    assert sorted(torch.cat(batches).tolist()) == list(range(101))
    assert [len(b) for b in batches] == [10] * 9 + [11]


def test_bag_batches_fill_up_by_instances():
    sizes = torch.randint(0, 13, (500,), generator=torch.Generator().manual_seed(0))
    batches = bag_batches(sizes, 64)
    visited = torch.cat(batches)
    assert sorted(visited.tolist()) == (sizes > 0).nonzero()[:, 0].tolist()
    filled = torch.tensor([int(sizes[b].sum()) for b in batches])
    assert (filled <= 65).all()
    assert (filled[:-1] > 64 - 12).all()


def test_a_bag_larger_than_a_batch_is_learnt_from():
    x, truth, _ = toy()
    bags = llpkit.Bags(
        [0, 150, 160, 200], [int(truth[a:b].sum()) for a, b in [(0, 150), (150, 160), (160, 200)]]
    )
    for method in ("mle", "direct", "amle", "dllp", "llp-gan"):
        network = "llp-gan" if method == "llp-gan" else "mlp"
        model = llpkit.fit(network, bags, x, method, epochs=2, batch_size=32, progress=False)
        assert np.isfinite(model.history[-1]["loss"])


# Feeds


class Pretend:
    """Files, as far as the feed can tell."""

    def __init__(self, images):
        self.images = images
        self.nbytes, self.shape = images.nbytes, images.shape

    def __len__(self):
        return len(self.images)

    def load(self, rows):
        return self.images[torch.as_tensor(list(rows))]


@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("files", [True, False])
def test_all_ways_to_the_device_give_the_same_weights(files, resident):
    images = torch.randint(0, 256, (60, 1, 4, 4), dtype=torch.uint8)
    torch.manual_seed(5)
    images = torch.randint(0, 256, (60, 1, 4, 4), dtype=torch.uint8)
    bags = llpkit.random_bags(torch.arange(60) % 2, (1, 5), generator=0)
    inputs = Pretend(images) if files else images
    model = llpkit.fit(
        "small-cnn", bags, inputs, epochs=1, batch_size=16, resident=resident, workers=0,
        progress=False,
    )  # fmt: skip
    expected = llpkit.fit("small-cnn", bags, images, epochs=1, batch_size=16, progress=False)
    assert torch.equal(weights(model), weights(expected))


def test_files_are_read_by_workers():
    images = torch.randint(0, 256, (40, 1, 4, 4), dtype=torch.uint8)
    feed = Feed(Pretend(images), torch.device("cpu"), resident=False, workers=2)
    batches = list(torch.arange(40).split(16))
    for raw, rows in zip(feed.stream(batches), batches, strict=True):
        assert torch.equal(raw, images[rows])


def test_what_does_not_fit_stays_outside(monkeypatch):
    monkeypatch.setattr("llpkit.training.inputs._free_memory", lambda _: 100)
    assert not Feed(torch.zeros(100, 3), torch.device("cpu")).resident
    assert Feed(torch.zeros(4, 3), torch.device("cpu")).resident


# Checkpoints


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    quick(run_dir=tmp_path)
    with pytest.raises(LLPError, match=r"seed = 0, but this run has 7; use another run directory"):
        quick(run_dir=tmp_path, resume=True, seed=7)


def test_a_checkpoint_of_another_network_is_refused(tmp_path):
    x, _, bags = toy()
    run = {"epochs": 1, "run_dir": tmp_path, "resume": True, "progress": False}
    llpkit.fit(nn.Linear(3, 1), bags, x, **run)
    with pytest.raises(LLPError, match=r"checkpoint\.pt do not fit this network: Error"):
        llpkit.fit(nn.Linear(3, 2), bags, x, **run)


def other_schedule(optimizer):
    return torch.optim.lr_scheduler.ConstantLR(optimizer)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "cosine"}, "schedule = 'tail', but this run has 'cosine'"),
        ({"schedule": other_schedule}, r"schedule = 'tail', but this run has '.*\.other_schedule'"),
        ({"optimizer": "sgd"}, "optimizer = 'adam', but this run has 'sgd'"),
        ({"weight_decay": 0.1}, r"weight_decay = 0\.0, but this run has 0\.1"),
        ({"augment": abs}, r"augment = None, but this run has 'builtins\.abs'"),
        ({"held_out": 0.3}, r"held_out = 0\.2, but this run has 0\.3"),
    ],
)
def test_a_run_is_resumed_with_its_own_settings(tmp_path, options, message):
    quick(run_dir=tmp_path, epochs=1, held_out=0.2)
    with pytest.raises(LLPError, match=f"{message}; use another run directory"):
        quick(run_dir=tmp_path, resume=True, **{"epochs": 1, "held_out": 0.2, **options})


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"method": MLE(step=1.0)}, {"method": MLE(step=1.5)}),
        ({"method": "mle", "method_options": {"step": 1.5}}, {"method": "mle"}),
        (
            {"optimizer": partial(torch.optim.SGD, lr=0.1, momentum=0.9)},
            {"optimizer": partial(torch.optim.SGD, lr=0.1)},
        ),
    ],
)
def test_options_of_methods_and_optimisers_are_settings_too(tmp_path, first, then):
    quick(run_dir=tmp_path, epochs=1, **first)
    with pytest.raises(LLPError, match=f"{tmp_path}.* is from a run with"):
        quick(run_dir=tmp_path, resume=True, epochs=1, **then)


def test_the_same_said_otherwise_is_resumed(tmp_path):
    x, _, bags = toy()
    how = {"epochs": 1, "run_dir": tmp_path, "progress": False, "held_out": 0.2}
    first = llpkit.fit("mlp", bags, x.double().numpy(), "mle", **how)
    how |= {"resume": True, "held_out": np.float32(0.2)}
    options = {"step": 1}
    again = llpkit.fit("mlp", bags, x.float(), "mle", method_options=options, **how)
    assert torch.equal(weights(first), weights(again))
    again = llpkit.fit("mlp", bags, x.float(), MLE(step=1.0), **how)
    assert torch.equal(weights(first), weights(again))


def test_a_run_is_resumed_with_its_own_data(tmp_path):
    x, truth, whole = toy()
    bags, held_out = whole.split(0.7, generator=0)

    def run(bags=bags, x=x, held_out=held_out, labels=truth):
        return llpkit.fit(
            "mlp", bags, x, "supervised", held_out=held_out, labels=labels, epochs=1,
            run_dir=tmp_path, resume=True, progress=False,
        )  # fmt: skip

    changed = x.clone()
    changed[17] += 1
    first = run()
    assert torch.equal(weights(run()), weights(first))
    turned = llpkit.Bags(bags.offsets, bags.sizes - bags.counts, rows=bags.rows, num_rows=200)
    for options, name in [
        ({"x": changed}, "inputs"),
        ({"labels": 1 - truth}, "labels"),
        ({"bags": turned}, "bags"),
        ({"held_out": held_out[1:]}, "held-out bags"),
    ]:
        with pytest.raises(LLPError, match=f"has different {name}; use another run directory"):
            run(**options)


def test_large_inputs_and_files_are_told_apart_at_little_cost(tmp_path, monkeypatch):
    from PIL import Image

    from llpkit.datasets import ImageFiles
    from llpkit.training.fingerprint import of_inputs

    monkeypatch.setattr("llpkit.training.fingerprint.MOST_BYTES", 120)
    x = torch.randn(100, 3)
    first = of_inputs(x)
    assert of_inputs(x.clone()) == first
    assert of_inputs(x + 1) != first
    assert of_inputs(x[:99]) != first

    def picture(name, value, side=4):
        Image.new("RGB", (side, side), (value,) * 3).save(tmp_path / name)
        return tmp_path / name

    paths = [picture(f"{i}.bmp", i) for i in range(3)]
    files = ImageFiles(paths)
    first = of_inputs(files)
    assert of_inputs(ImageFiles(paths)) == first
    assert of_inputs(ImageFiles(paths[::-1])) != first
    picture("1.bmp", 1, side=5)
    assert of_inputs(files) != first


def test_a_broken_checkpoint_is_named(tmp_path):
    (tmp_path / "checkpoint.pt").write_bytes(b"not one")
    with pytest.raises(LLPError, match=r"checkpoint\.pt cannot be read as a checkpoint"):
        quick(run_dir=tmp_path, resume=True)


def test_a_checkpoint_that_lacks_a_part_is_named(tmp_path):
    quick(run_dir=tmp_path)
    path = tmp_path / "checkpoint.pt"
    whole = path.read_bytes()
    for content in (b"", whole[:-1], whole[: len(whole) // 2], whole[:20], whole + b"\0"):
        path.write_bytes(content)
        with pytest.raises(LLPError, match=r"checkpoint\.pt cannot .* remove it to start again"):
            quick(run_dir=tmp_path, resume=True)
    Checkpoint(path, {}, {}).save({"network": {}})
    with pytest.raises(LLPError, match="it has no optimizer"):
        quick(run_dir=tmp_path, resume=True)
    path.write_bytes(whole)
    assert len(quick(run_dir=tmp_path, resume=True).history) == 2


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.system, (f"touch {tmp_path / 'ran'}",))

    torch.save({"settings": {}, "network": Evil()}, tmp_path / "checkpoint.pt")
    with pytest.raises(LLPError, match="cannot be read as a checkpoint"):
        quick(run_dir=tmp_path, resume=True)
    assert not (tmp_path / "ran").exists()


def test_no_half_written_file_is_left(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "disk full")

    class Fill(Callback):
        def on_epoch(self, session, row):  # noqa: ARG002
            if row["epoch"] == 2:
                self.before = (tmp_path / "checkpoint.pt").read_bytes()
                monkeypatch.setattr(os, "replace", fail)

    disk = Fill()
    with pytest.raises(LLPError, match=r"checkpoint\.pt cannot be written: disk full"):
        quick(run_dir=tmp_path, callbacks=disk)
    assert (tmp_path / "checkpoint.pt").read_bytes() == disk.before
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint.pt"]


@pytest.mark.parametrize(("seconds", "waits"), [(0, False), (1, True)])
def test_checkpoints_wait_for_the_disk_where_epochs_take_time(
    tmp_path, monkeypatch, seconds, waits
):
    clock, synced = itertools.count(step=seconds) if seconds else itertools.repeat(0), []
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(os, "fsync", synced.append)
    quick(epochs=3, run_dir=tmp_path)
    assert (len(synced) >= 3) if waits else not synced


def test_a_checkpoint_is_not_overwritten(tmp_path):
    quick(run_dir=tmp_path)
    before = (tmp_path / "checkpoint.pt").read_bytes()
    with pytest.raises(LLPError, match="the checkpoint of a run; continue it with resume=True"):
        quick(run_dir=tmp_path, seed=1)
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


# Saving


def test_a_network_of_ones_own_is_loaded_by_passing_it(tmp_path):
    x, _, bags = toy()
    model = llpkit.fit(nn.Linear(3, 1), bags, x, epochs=1, progress=False)
    model.save(tmp_path)
    with pytest.raises(LLPError, match=r"custom network \(Linear\)"):
        llpkit.load(tmp_path)
    again = llpkit.load(tmp_path, nn.Linear(3, 1))
    assert torch.equal(again.predict_proba(x), model.predict_proba(x))
    with pytest.raises(LLPError, match="do not fit this network"):
        llpkit.load(tmp_path, nn.Linear(4, 1))


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(LLPError, match="is not a run directory; give a folder that"):
        llpkit.load(tmp_path)
    (tmp_path / "model.json").write_text("{")
    with pytest.raises(LLPError, match=r"is damaged: checksums\.json is missing"):
        llpkit.load(tmp_path)
    (tmp_path / "weights.safetensors").touch()
    add_checksums(tmp_path, ["model.json", "weights.safetensors"])
    with pytest.raises(LLPError, match="cannot be read"):
        llpkit.load(tmp_path)


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs = 0; give a whole number from 1 to 1000000000"),
        ({"seed": -1}, "seed = -1; give a whole number from 0"),
        ({"patience": 0, "held_out": 0.2}, "patience = 0; give a whole number of at least 1"),
        ({"precision": "x"}, "precision = 'x'; available: auto, 32-true"),
        ({"weight_decay": -1}, "weight_decay = -1; give a number from 0"),
        ({"callbacks": [TestMetrics]}, r"callbacks\[0\] is the class TestMetrics; pass objects"),
        ({"callbacks": 5}, r"callbacks\[0\] is a int; pass objects"),
        ({"recipe": {"epochs": 2}}, "recipe is a dict; pass an llpkit.training.Recipe"),
        ({"lr": -1.0}, "lr = -1.0; give a number above 0"),
        ({"optimizer": "adamm"}, "optimizer = 'adamm'; give adam or sgd"),
        ({"schedule": "up"}, "schedule = 'up'; give tail, cosine or constant$"),
        ({"device": "tpu9"}, "device = 'tpu9'"),
        ({"resident": "maybe"}, "resident = 'maybe'; give true, false or auto"),
        ({"patience": 3}, "patience needs held-out bags; give held_out=0.1"),
        ({"resume": True}, "resume needs the run_dir"),
        ({"method": "mel"}, "method = 'mel'; did you mean 'mle'"),
        ({"epoch": 3}, "fit has no argument 'epoch'; did you mean 'epochs'"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(LLPError, match=message):
        quick(**options)


def test_held_out_bags_are_of_the_same_table_and_share_no_row_with_the_others():
    x, truth, bags = toy()
    part, rest = bags.split(0.7, generator=0)
    model = llpkit.fit("mlp", part, x, held_out=rest, epochs=1, progress=False)
    assert "held_out_log_likelihood" in model.history[0]
    three = llpkit.Bags([0, 2], [[1, 1, 0]], rows=rest.rows[:2], num_rows=200)
    for held_out, message in [
        (llpkit.random_bags(truth[:60], 3, generator=0), "held_out is for a table with 60 rows"),
        (llpkit.Bags([0, 1], [1], rows=[200]), "held_out is for a table with 201 rows but inputs"),
        (llpkit.Bags([0, 0], [0], num_rows=200), "held_out holds no instances"),
        (three, "held_out has counts of 3 classes but bags has binary counts"),
        (
            part[[3, 4]],
            rf"row {int(part[3].rows[0])} is in bags and in held_out "
            rf"\({part[[3, 4]].num_instances} such rows",
        ),
    ]:
        with pytest.raises(LLPError, match=message):
            llpkit.fit("mlp", part, x, held_out=held_out, epochs=1, progress=False)


def test_the_share_held_out_is_any_number_between_0_and_1():
    model = quick(held_out=np.float32(0.25))
    assert "held_out_log_likelihood" in model.history[0]
    for held_out in (0, 1, 0.0, 1.5, True, float("nan"), "a"):
        with pytest.raises(LLPError, match=f"held_out = {held_out!r}; give a number betw"):
            quick(held_out=held_out)
    with pytest.raises(LLPError, match=r"held_out = 0\.001 of \d+ bags leaves a part without"):
        quick(held_out=0.001)


def test_inputs_must_match_the_table():
    x, _, bags = toy()
    with pytest.raises(LLPError, match="table with 200 rows but inputs has 150"):
        llpkit.fit("mlp", bags, x[:150], progress=False)
    with pytest.raises(LLPError, match=r"inputs has shape \(200,\)"):
        llpkit.fit("mlp", bags, x[:, 0], progress=False)
    with pytest.raises(LLPError, match=r"bags is a Tensor; pass llpkit\.Bags"):
        llpkit.fit("mlp", x, x, progress=False)
    with pytest.raises(LLPError, match="inputs is a str"):
        llpkit.fit("mlp", bags, "x", progress=False)
    with pytest.raises(LLPError, match="this model takes"):
        quick().predict(torch.zeros(2, 5))
    with pytest.raises(LLPError, match="no parameters to train"):
        llpkit.fit(nn.Identity(), bags, x, progress=False)


def test_inputs_must_be_numbers():
    x, truth, bags = toy()
    bags = bags[:-1]
    inside, outside = int(bags.rows[5]), int(toy()[2][-1].rows[0])
    for value in ("nan", "inf", "-inf"):
        bad = x.clone()
        bad[outside, 1] = float(value)
        model = llpkit.fit("mlp", bags, bad, epochs=1, progress=False)  # is in no bag
        bad[inside, 0] = float(value)
        with pytest.raises(LLPError, match=rf"inputs\[{inside}\] has the value {value} \(1 such"):
            llpkit.fit("mlp", bags, bad, epochs=1, progress=False)
        first = min(inside, outside)
        for use in (model.predict, lambda x, m=model: m.posterior(x, bags)):
            with pytest.raises(LLPError, match=rf"inputs\[{first}\] has the value {value} \(2 su"):
                use(bad)
        with pytest.raises(LLPError, match=rf"inputs\[{first}\] has the value"):
            quick(callbacks=[TestMetrics(bad, truth)])


def test_a_diverging_run_says_what_to_do():
    with pytest.raises(
        Diverged, match=r"epoch 1: .*lower the learning rate \(now 1e\+30\) or look "
    ):
        quick(lr=1e30, optimizer="sgd")


# Labels and networks that would teach nothing, or the wrong thing


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda y: 2 * y - 1, r"labels\[\d+\] = -1 but labels go from 0 to 1"),
        (lambda y: torch.where(y == 1, torch.nan, 0.0), r"labels\[\d+\] = nan"),
        (lambda y: y[:-1], "labels has shape"),
        (lambda _: None, "pass labels="),
    ],
)
def test_labels_must_be_classes(change, message):
    x, truth, bags = toy()
    with pytest.raises(LLPError, match=message):
        llpkit.fit("mlp", bags, x, "supervised", labels=change(truth), epochs=1, progress=False)


def test_labels_in_every_form_and_only_of_rows_in_bags():
    x, truth, bags = toy()
    options = {"epochs": 2, "progress": False}
    expected = weights(llpkit.fit("mlp", bags, x, "supervised", labels=truth, **options))
    for labels in (truth.tolist(), truth.numpy(), truth.float(), truth.bool()):
        model = llpkit.fit("mlp", bags, x, "supervised", labels=labels, **options)
        assert torch.equal(weights(model), expected)
    part, rest = bags.split(0.5, 0)
    labels = truth.double()
    labels[rest.rows] = torch.nan  # nobody asks for these
    llpkit.fit("mlp", part, x, "supervised", labels=labels, **options)
    three = llpkit.random_bags(truth, 4, generator=0, num_classes=3)
    llpkit.fit("mlp", three, x, "supervised", labels=truth + 1, **options)
    with pytest.raises(LLPError, match="from 0 to 2"):
        llpkit.fit("mlp", three, x, "supervised", labels=truth + 2, **options)


class Ends(nn.Module):
    """A linear layer and something after it."""

    def __init__(self, outputs, end):
        super().__init__()
        self.linear, self.end = nn.Linear(3, outputs), end

    def forward(self, x):
        return self.end(self.linear(x))


@pytest.mark.parametrize(
    ("outputs", "end"),
    [
        (1, nn.Sigmoid()),
        (1, lambda z: z.double().sigmoid().float().reshape(-1)),
        (1, nn.functional.logsigmoid),
        (2, nn.Softmax(1)),
        (2, lambda z: z.softmax(1)[:, 1]),
        (1, lambda z: torch.cat([1 - z.sigmoid(), z.sigmoid()], 1)),
        (3, nn.Softmax(1)),
        (3, lambda z: z.sigmoid()),
        (3, lambda z: z.exp() / z.exp().sum(1, keepdim=True)),
        (1, lambda z: z.sigmoid().clamp(1e-6, 1 - 1e-6)),
        (3, lambda z: z.softmax(1).clamp_min(0.3)),
        (1, lambda z: 0.5 * (torch.tanh(z / 2) + 1)),
        (1, lambda z: z.clamp(0, 1)),
        (1, nn.ReLU()),
    ],
)
def test_a_network_that_returns_probabilities_is_refused(outputs, end):
    x, truth, bags = toy()
    if outputs == 3:
        bags = llpkit.random_bags(truth, 4, generator=0, num_classes=3)
    for method, precision in (("mle", "32-true"), ("direct", "bf16-mixed"), ("dllp", "32-true")):
        how = {"precision": precision, "epochs": 1, "progress": False}
        with pytest.raises(LLPError, match="returns logits"):
            llpkit.fit(Ends(outputs, end), bags, x, method, **how)


@pytest.mark.parametrize(
    ("outputs", "end"),
    [
        (1, lambda z: z * z.sigmoid()),
        (1, lambda z: 4 * z.sigmoid() - 2),
        (2, nn.LogSoftmax(1)),
        (3, nn.LogSoftmax(1)),
        (3, nn.ReLU()),
        (3, lambda z: z.exp()),
        (1, nn.Tanh()),
    ],
)
def test_a_network_of_logits_is_taken(outputs, end):
    x, truth, bags = toy()
    if outputs == 3:
        bags = llpkit.random_bags(truth, 4, generator=0, num_classes=3)
    llpkit.fit(Ends(outputs, end), bags, x, epochs=1, progress=False)


def test_changed_weights_count_in_mixed_precision_too():
    """Within one autocast context, torch would reuse the weights that it has rounded before."""
    network = nn.Sequential(nn.Linear(3, 1), nn.Sigmoid())
    with pytest.raises(LLPError, match="returns values between 0 and 1"):
        refuse_probabilities(
            network, torch.randn(8, 3), lambda: torch.autocast("cpu", torch.bfloat16)
        )


class Rising(nn.Module):
    """Positive before training, and as long as the bias is small."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x.sigmoid() @ nn.functional.softplus(self.weight) + self.bias


def test_a_network_that_starts_between_zero_and_one_is_taken():
    x, _, bags = toy()
    small = nn.Linear(3, 1)
    nn.init.constant_(small.weight, 1e-3)
    nn.init.constant_(small.bias, 0.5)
    before = small.weight.detach().clone()
    refuse_probabilities(small, x[:8])
    assert torch.equal(small.weight, before)
    for network in (small, Rising(), nn.Sequential(nn.Linear(3, 2), nn.Sigmoid(), nn.Linear(2, 1))):
        llpkit.fit(network, bags, x, epochs=1, progress=False)


@pytest.mark.parametrize("outputs", [2, 3])
def test_a_last_layer_of_zeros_is_no_softmax(outputs):
    """Its outputs are its bias, the rates of the classes, say, which sum to one."""
    x, truth, bags = toy()
    if outputs == 3:
        bags = llpkit.random_bags(truth, 4, generator=0, num_classes=3)
    network = nn.Linear(3, outputs)
    nn.init.zeros_(network.weight)
    nn.init.constant_(network.bias, 1 / outputs)
    llpkit.fit(network, bags, x, epochs=1, progress=False)


def test_the_look_at_the_network_leaves_no_trace():
    """Running statistics, modes and random numbers are those of the steps alone."""

    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.linear = nn.BatchNorm1d(3), nn.Linear(3, 1)
            self.register_buffer("seen", torch.zeros(()))
            self.modes = []

        def forward(self, x):
            self.seen += len(x)
            self.modes.append(self.training)
            return self.linear(self.norm(x + 0.1 * torch.randn_like(x)))

    x, _, bags = toy()
    torch.manual_seed(0)
    network = Noisy()
    state = torch.get_rng_state()
    llpkit.fit(network, bags, x, "mle", epochs=2, batch_size=50, device="cpu", progress=False)
    steps, looked = 2 * 4, network.modes.index(True)
    assert network.modes[looked : looked + steps] == [True] * steps
    assert not any(network.modes[:looked] + network.modes[looked + steps :])
    judged = bags.num_instances  # once more at the end, when the model is held to the baseline
    assert int(network.seen) == 2 * bags.num_instances + judged
    assert int(network.norm.num_batches_tracked) == steps
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
@pytest.mark.parametrize(
    ("network", "precision"),
    [
        (lambda: nn.Linear(3, 1).double(), "64-true"),
        (lambda: nn.Linear(3, 1), "bf16-true"),
        (lambda: nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.Linear(4, 1)), "32-true"),
    ],
)
def test_networks_of_other_precisions_or_of_no_shape_yet_train(network, precision):
    x, _, bags = toy()
    options = {"precision": precision, "device": "cpu", "progress": False}
    assert len(llpkit.fit(network(), bags, x, epochs=1, **options).history) == 1


def test_a_function_makes_the_optimizer_with_its_own_rate():
    x, _, bags = toy()
    how = {"epochs": 1, "progress": False}
    made = llpkit.fit("linear", bags, x, optimizer=lambda p: torch.optim.SGD(p, lr=0.25), **how)
    assert made.details["settings"]["lr"] == 0.25
    for more in ({"lr": 0.5}, {"weight_decay": 0.1}):
        with pytest.raises(LLPError, match="leave them out"):
            llpkit.fit("linear", bags, x, optimizer=torch.optim.SGD, **how, **more)
    with pytest.raises(LLPError, match="schedule is a function that returned None"):
        llpkit.fit("linear", bags, x, schedule=lambda _: None, **how)


def test_no_augmentation_is_no_augmentation_of_features_either():
    x, _, bags = toy()
    how = {"epochs": 2, "progress": False}
    none, named = (llpkit.fit("linear", bags, x, augment=a, **how) for a in (None, "none"))
    assert torch.equal(none.logits(x), named.logits(x))


def test_likelihoods_of_a_method_are_one_per_bag():
    class Short(llpkit.methods.Method):
        key = "short"
        summary = "returns the wrong shape"

        def loss(self, logits, batch):  # noqa: ARG002
            return logits.square().mean()

        def end_epoch(self, logits):
            return logits[:1]

    x, _, bags = toy()
    with pytest.raises(LLPError, match=r"end_epoch of Short gave shape .* per bag"):
        llpkit.fit("linear", bags, x, Short(), epochs=1, progress=False)


def test_large_bags_have_one_view():
    class Two(llpkit.methods.BagMethod):
        key = "two"
        summary = "two views of whole bags"
        views = 2

    x, _, bags = toy()
    with pytest.raises(LLPError, match="batch_size of at least"):
        llpkit.fit("linear", bags, x, Two(), epochs=1, batch_size=2, progress=False)


def test_views_are_one_or_two():
    class Three(llpkit.methods.Method):
        key = "three"
        summary = "three views"
        views = 3

    with pytest.raises(LLPError, match="views = 3; give 1 or 2"):
        llpkit.methods.make(Three)
