"""The count loss as a criterion: that of ``direct``, for any evidence and number of classes."""

import pytest
import torch
from skorch import NeuralNet
from torch.utils.data import DataLoader, TensorDataset

import llpkit
from llpkit.errors import LLPError
from llpkit.integrations.skorch import CountLoss, inputs_and_numbers
from llpkit.losses import count_loss
from llpkit.training import BagDataset, collate_bags


def bags_of(kind):
    offsets, rows = torch.tensor([0, 2, 2, 5]), torch.tensor([4, 0, 1, 5, 2])
    evidence = {
        "counts": llpkit.Evidence.exact([1, 0, 2]),
        "ranges": llpkit.Evidence.interval([0, 0, 1], [1, 0, 2]),
        "classes": llpkit.Evidence.exact([[1, 1, 0], [0, 0, 0], [1, 0, 2]]),
    }[kind]
    return llpkit.Bags(offsets, evidence, rows=rows, num_rows=6)


@pytest.mark.parametrize("kind", ["counts", "ranges", "classes"])
def test_the_loss_is_that_of_the_bags_in_the_batch(kind):
    bags, outputs = bags_of(kind), 3 if kind == "classes" else 1
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    network = torch.nn.Linear(4, outputs)
    loader = DataLoader(BagDataset(bags, x), 3, collate_fn=inputs_and_numbers, shuffle=True)
    ((rows, numbers),) = loader
    z = network(x)[bags.rows]
    expected = count_loss(z if outputs > 1 else z[:, 0], bags.evidence, bags.offsets)
    found = CountLoss(bags)(network(rows), numbers)
    assert found.item() == pytest.approx(expected.mean().item(), abs=1e-6)


def test_rows_that_are_not_those_of_the_bags_are_refused():
    with pytest.raises(LLPError, match=r"3 logits for 1 bags of 2 instances; .*inputs_and_numbers"):
        CountLoss(bags_of("counts"))(torch.zeros(3), torch.tensor([0]))
    with pytest.raises(LLPError, match="6 rows but inputs has 5"):
        BagDataset(bags_of("counts"), torch.zeros(5, 1))


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (torch.tensor([0.0]), r"numbers is float32 \(1,\)"),
        (torch.tensor([[0]]), r"numbers is int64 \(1, 1\)"),
        (torch.tensor([0, 3]), r"numbers\[1\] = 3, but there are 3 bags"),
        ([0], "numbers is a list"),
        (None, "numbers is a NoneType"),
    ],
)
def test_a_batch_of_something_else_is_refused(numbers, message):
    with pytest.raises(LLPError, match=rf"{message}.*inputs_and_numbers"):
        CountLoss(bags_of("counts"))(torch.zeros(2), numbers)


def test_outputs_that_are_no_logits_are_refused():
    with pytest.raises(LLPError, match="the network returned a tuple; return a tensor of logits"):
        CountLoss(bags_of("counts"))((torch.zeros(2),), torch.tensor([0]))


def test_a_net_that_is_fitted_to_rows_names_the_remedy():
    bags = bags_of("counts")
    net = NeuralNet(
        torch.nn.Linear(4, 1), CountLoss, criterion__bags=bags, train_split=None, verbose=0
    )
    with pytest.raises(LLPError, match=r"numbers is float32.*BagDataset.*inputs_and_numbers"):
        net.fit(torch.zeros(6, 4), torch.zeros(6))


@pytest.mark.parametrize("collate", [collate_bags, inputs_and_numbers])
def test_items_of_another_data_set_are_refused(collate):
    loader = DataLoader(TensorDataset(torch.zeros(6, 4)), 3, collate_fn=collate)
    with pytest.raises(LLPError, match=r"item 0 of the batch is a tuple.*BagDataset"):
        next(iter(loader))
