"""Several processes train as one does: whole bags, the same batches, the same weights."""

import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import llpkit
from fits import difference
from llpkit.errors import Diverged, LLPError, LostProcess
from llpkit.methods import METHODS
from llpkit.training.batches import plan_bags, plan_instances
from llpkit.training.launch import watching_others
from llpkit.training.shards import Shard, deal
from ranks import Divergent, FullDisk, HalfUsed, KillAnother, Leaves, Note, toy

SHARDABLE = [name for name, method in METHODS.items() if vars(method).get("shardable")]
ALIKE = (
    "amle",
    "amle-paper",
    "mle-pass",
    "one-vs-rest",
    "rot",
)  # trained by the same steps as others
USUAL = {"epochs": 3, "lr": 0.05, "batch_size": 32, "precision": "64-true", "progress": False}


def train(network, data, method="mle", **settings):
    x, truth, bags = data
    labels = truth if method in METHODS and METHODS[method].needs_labels else None
    return llpkit.fit(network, bags, x, method, labels=labels, **(USUAL | settings))


# Shards, without processes


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.integers(1, 7))
def test_bags_are_dealt_evenly(sizes, number):
    sizes = torch.tensor(sizes)
    owner = deal(sizes, number)
    load = torch.bincount(owner, sizes.double(), number)
    assert float(load.max() - load.min()) <= int(sizes.max())


@pytest.mark.parametrize("batches", ["instances", "bags"])
@given(
    sizes=st.lists(st.integers(0, 9), min_size=3, max_size=30),
    number=st.integers(2, 4),
    size=st.integers(9, 20),
)
def test_the_parts_of_a_step_make_up_the_step(batches, sizes, number, size):
    sizes[:number] = [3] * number  # something for every process
    bags = llpkit.Bags(torch.tensor([0, *sizes]).cumsum(0), torch.zeros(len(sizes), dtype=int))
    generator = torch.Generator().manual_seed(0)
    if batches == "instances":
        plan = plan_instances(bags.num_instances, size, generator=generator)
    else:
        plan = plan_bags(bags, size, generator=generator)
    shards = [Shard.of(bags, rank, number) for rank in range(number)]
    assert sorted(torch.cat([s.numbers for s in shards]).tolist()) == list(range(len(bags)))
    # The loss of a step is linear in per-instance (or per-bag) values: any values will do.
    values = torch.randn(bags.num_instances if batches == "instances" else len(bags)).double()
    parts = [shard.restrict(plan) for shard in shards]
    for i, step in enumerate(plan):
        chosen = step.positions if batches == "instances" else step.bags
        total, seen = 0.0, []
        for shard, part in zip(shards, parts, strict=True):
            own = part[i]
            assert len(own.positions) >= 1  # DDP needs every process
            numbers = own.positions if batches == "instances" else own.bags
            places = shard.positions if batches == "instances" else shard.numbers
            total += float(own.weights @ values[places[numbers]]) / number  # as DDP averages
            kept = own.into < shard.bags.num_instances
            seen += shard.positions[own.into[kept]].tolist()
        assert total == pytest.approx(float(values[chosen].mean()), abs=1e-12)
        assert sorted(seen) == sorted(step.positions.tolist())
        assert sum(part[i].share for part in parts) == pytest.approx(step.share)


# Real processes


@pytest.mark.parametrize(
    "method", [pytest.param(m, marks=[pytest.mark.slow] if m in ALIKE else []) for m in SHARDABLE]
)
def test_two_processes_give_the_weights_of_one(method):
    data, settings = toy(), {"held_out": 0.25, "measure": "all"}
    one = train("mlp", data, method, **settings)
    two = train("mlp", data, method, devices=2, **settings)
    assert difference(one, two) < 1e-6
    assert two.selected_epoch == one.selected_epoch
    for before, after in zip(one.history, two.history, strict=True):
        times = {"seconds", "measure_seconds"}
        assert {k: v for k, v in after.items() if k not in times} == pytest.approx(
            {k: v for k, v in before.items() if k not in times}, rel=1e-6
        )
    known, found = (model.details["baseline"] for model in (one, two))
    assert found["held-out"] == pytest.approx(known["held-out"])


def test_a_network_of_your_own_with_many_classes_is_trained_in_place():
    torch.manual_seed(0)
    network, copy = nn.Linear(3, 3), nn.Linear(3, 3)
    copy.load_state_dict(network.state_dict())
    one = train(network, toy(3), "mle")
    two = train(copy, toy(3), "mle", devices=2)
    assert difference(one, two) < 1e-6
    for a, b in zip(copy.parameters(), two.network.parameters(), strict=True):
        assert torch.equal(a.cpu(), b.cpu())


def test_callbacks_run_in_the_first_process_and_all_stop_together():
    model = train("linear", toy(), devices=2, callbacks=Note(), epochs=5)
    assert len(model.history) == 2
    assert len({row["process"] for row in model.history}) == 1
    assert model.history[0]["process"] != os.getpid()


def test_a_killed_process_stops_the_run_which_resumes_on_any_number(tmp_path):
    data, folder = toy(), tmp_path / "run"
    settings = {"epochs": 4, "run_dir": folder, "callbacks": KillAnother(epoch=2), "held_out": 0.2}
    with pytest.raises(LLPError, match=r"process 1 of the run was killed by SIGKILL.*resume=True"):
        train("mlp", data, devices=2, **settings)
    settings |= {"callbacks": (), "resume": True}
    for number in (2, 3):
        again = tmp_path / str(number)
        again.mkdir()
        (again / "checkpoint.pt").write_bytes((folder / "checkpoint.pt").read_bytes())
        model = train("mlp", data, devices=number, **settings | {"run_dir": again})
        alone = train("mlp", data, epochs=4, held_out=0.2)
        assert difference(alone, model) < 1e-6
        assert [row["epoch"] for row in model.history] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("exit", r"process 1 of the run ended with exit code 3.*resume=True"),
        ("interrupt", r"process 1 of the run was interrupted.*resume=True"),
    ],
)
def test_a_process_that_ends_is_named(how, message):
    with pytest.raises(LLPError, match=message):
        train("linear", toy(), Leaves(how), devices=2)


def test_a_full_disk_is_told_and_costs_one_epoch(tmp_path):
    settings = {"epochs": 4, "run_dir": tmp_path}
    with pytest.raises(LLPError, match=r"is the disk full|cannot be written: File too large"):
        train("linear", toy(), devices=2, callbacks=FullDisk(), **settings)
    model = train("linear", toy(), devices=2, resume=True, **settings)
    assert difference(train("linear", toy(), epochs=4), model) < 1e-6


def test_a_process_without_memory_is_told_as_such():
    with pytest.raises(MemoryError):  # the command line has a message of its own for this
        train("linear", toy(), Leaves("memory"), devices=2)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("[/src/gloo/transport/tcp/pair.cc:553] Connection closed"), LostProcess),
        (torch.distributed.DistBackendError("NCCL error"), LostProcess),
        (RuntimeError("cannot restore what was stored"), RuntimeError),
    ],
)
def test_only_errors_of_the_group_mean_a_lost_process(error, expected, monkeypatch):
    monkeypatch.setattr("llpkit.training.launch._GRACE", 0)
    with pytest.raises(expected), watching_others():
        raise error


def test_divergence_is_agreed():
    with pytest.raises(Diverged, match="epoch 2: the loss is nan"):
        train("linear", toy(), devices=2, callbacks=Divergent())


# Refusals


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "llp-gan", "network": "llp-gan"}, 'method "llp-gan" trains on one process'),
        ({"network": nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))}, "has batch norm"),
        (
            {
                "network": nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1)),
                "sync_batchnorm": True,
                "device": "cpu",
            },
            "torch synchronises batch norm on CUDA devices only",
        ),
        ({"method": "dllp", "batch_size": 5}, r"a bag has 6 instances.*batch_size=6 or more"),
        ({"compile": True}, "compile is for one process"),
        ({"network": nn.LazyLinear(1)}, "has lazy layers"),
        ({"network": HalfUsed()}, "parameters on which its output does not depend"),
        ({"schedule": lambda _: None}, "cannot get a copy of an argument.*top level"),
    ],
    ids=["method", "batch norm", "on a CPU", "large bag", "compile", "lazy", "unused", "lambda"],
)
def test_what_would_differ_from_one_process_is_refused(settings, message):
    network = settings.pop("network", "linear")
    with pytest.raises(LLPError, match=message):
        train(network, toy(), devices=2, **settings)


def test_more_processes_than_bags_are_refused():
    x = torch.randn(4, 2)
    bags = llpkit.Bags([0, 4], [2])
    with pytest.raises(LLPError, match="there are 2 processes but 1 bag"):
        llpkit.fit("linear", bags, x, devices=2, progress=False)


def test_batch_norm_of_each_process_is_an_explicit_choice():
    network = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))
    model = train(network, toy(), devices=2, sync_batchnorm=False)
    assert torch.isfinite(model.network[0].running_mean).all()
    assert model.history[-1]["log_likelihood"] > model.history[0]["log_likelihood"]


def test_an_interactive_session_cannot_start_processes(monkeypatch):
    monkeypatch.setattr("sys.ps1", ">>> ", raising=False)
    with pytest.raises(LLPError, match="a notebook or an interactive session cannot start"):
        train("linear", toy(), devices=2)
