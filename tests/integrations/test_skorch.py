"""The count loss as a criterion: that of ``direct``, for any evidence and number of classes."""

import pytest
import torch
from torch.utils.data import DataLoader

import llpkit
from llpkit.errors import LLPError
from llpkit.integrations.skorch import CountLoss, inputs_and_numbers
from llpkit.losses import count_loss
from llpkit.training import BagDataset


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
    with pytest.raises(
        LLPError, match="3 logits for 1 bags of 2 instances; use inputs_and_numbers"
    ):
        CountLoss(bags_of("counts"))(torch.zeros(3), torch.tensor([0]))
    with pytest.raises(LLPError, match="6 rows but inputs has 5"):
        BagDataset(bags_of("counts"), torch.zeros(5, 1))
