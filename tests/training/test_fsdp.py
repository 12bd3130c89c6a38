"""A network that is divided between processes is trained like a whole one."""

import pytest
import torch
from torch import nn

import llpkit
from fits import difference
from llpkit.errors import LLPError
from llpkit.training import TestMetrics
from ranks import KillAnother, Shadow, Tied, toy

# On a CPU: FSDP takes one GPU per process, and a machine may have a single one.
USUAL = {
    "epochs": 3,
    "lr": 0.05,
    "batch_size": 32,
    "precision": "64-true",
    "device": "cpu",
    "progress": False,
}


def train(network, method="mle", data=None, **settings):
    x, _, bags = data or toy()
    return llpkit.fit(network, bags, x, method, **(USUAL | settings))


@pytest.mark.parametrize("method", ["mle", pytest.param("dllp", marks=pytest.mark.slow)])
def test_two_processes_give_the_weights_of_one(method, tmp_path):
    one = train("mlp", method, held_out=0.25)
    two = train("mlp", method, held_out=0.25, devices=2, strategy="fsdp")
    assert difference(one, two) < 1e-6
    assert two.selected_epoch == one.selected_epoch
    for before, after in zip(one.history, two.history, strict=True):
        for name in ("loss", "log_likelihood", "held_out_log_likelihood"):
            assert after[name] == pytest.approx(before[name], rel=1e-6)
    two.save(tmp_path / "model")
    x = toy()[0][:5]
    assert torch.equal(llpkit.load(tmp_path / "model").predict(x), two.predict(x))


def test_weights_that_modules_share_stay_shared():
    torch.manual_seed(0)
    network, copy = Tied(), Tied()
    copy.load_state_dict(network.state_dict())
    one = train(network)
    two = train(copy, devices=2, strategy="fsdp")
    assert difference(one, two) < 1e-6
    assert two.network.body[0].weight is two.network.body[2].weight
    for a, b in zip(copy.parameters(), two.network.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
def test_a_checkpoint_resumes_with_any_strategy_on_any_number(tmp_path):
    settings = {"epochs": 4, "held_out": 0.2}
    alone = train("mlp", **settings)
    folder = tmp_path / "run"
    with pytest.raises(LLPError, match=r"process 1 of the run was killed by SIGKILL"):
        train(
            "mlp",
            devices=2,
            strategy="fsdp",
            run_dir=folder,
            callbacks=KillAnother(epoch=2),
            **settings,
        )
    for number, strategy in ((3, "fsdp"), (2, "ddp"), (1, "ddp")):
        again = tmp_path / f"{strategy}-{number}"
        again.mkdir()
        (again / "checkpoint.pt").write_bytes((folder / "checkpoint.pt").read_bytes())
        model = train(
            "mlp", devices=number, strategy=strategy, run_dir=again, resume=True, **settings
        )
        assert difference(alone, model) < 1e-6, (number, strategy)
        assert [row["epoch"] for row in model.history] == [1, 2, 3, 4]


def test_a_process_may_have_fewer_batches_to_measure():
    # 1,100 instances in one bag and 60 others: three batches for one process, one for the other.
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1160, 2, generator=generator)
    offsets = torch.tensor([0, *range(1100, 1161, 2)])
    truth = (x[:, 0] > 0).long()
    counts = torch.stack([part.sum() for part in truth.tensor_split(offsets[1:-1])])
    data = x, truth, llpkit.Bags(offsets, counts)
    one = train("linear", "mle-pass", data)
    two = train("linear", "mle-pass", data, devices=2, strategy="fsdp")
    assert difference(one, two) < 1e-6


def test_with_one_process_there_is_nothing_to_divide():
    assert difference(train("linear"), train("linear", strategy="fsdp")) == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "16-mixed"}, "16-mixed.*not possible with strategy='fsdp'"),
        ({"method": Shadow()}, r'"shadow" keeps a copy of the network.*use ddp'),
        ({"network": nn.Sequential(nn.Linear(3, 1), nn.Sigmoid())}, "between 0 and 1"),
        (
            {"callbacks": TestMetrics(torch.randn(4, 3), [0, 1, 0, 1])},
            "callbacks run in one process.*they cannot predict; use ddp",
        ),
    ],
    ids=["precision", "teacher", "probabilities", "callback"],
)
def test_refused(settings, message):
    network = settings.pop("network", "linear")
    with pytest.raises(LLPError, match=message):
        train(network, devices=2, strategy="fsdp", **settings)


def test_unknown_strategy():
    with pytest.raises(LLPError, match="strategy = 'deepspeed'"):
        train("linear", strategy="deepspeed")
