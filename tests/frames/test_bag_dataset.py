"""Whole bags in a torch DataLoader."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import llpkit
from llpkit import Bags, Evidence, LLPError
from llpkit.losses import count_loss
from llpkit.training import BagDataset, collate_bags


def bagged(num_classes=None):
    x = torch.randn(50, 3)
    truth = torch.randint(0, num_classes or 2, (50,))
    return x, llpkit.random_bags(truth, (1, 6), generator=0, num_classes=num_classes)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("num_classes", [None, 3])
def test_batches_hold_the_bags_once_and_whole(workers, num_classes):
    x, bags = bagged(num_classes)
    loader = DataLoader(
        BagDataset(bags, x),
        batch_size=4,
        shuffle=True,
        num_workers=workers,
        collate_fn=collate_bags,
    )
    network = torch.nn.Linear(3, num_classes or 1)

    def loss(inputs, evidence, offsets):
        z = network(inputs)
        return count_loss(z if num_classes else z[:, 0], evidence, offsets).detach()

    seen, total = [], 0.0
    for batch in loader:
        assert torch.equal(batch.inputs, x[batch.rows])
        seen += batch.rows.tolist()
        total += loss(batch.inputs, batch.evidence, batch.offsets).sum()
    assert sorted(seen) == list(range(50))
    expected = loss(x[bags.rows], bags.evidence, bags.offsets).sum()
    assert torch.allclose(total, expected, rtol=1e-5)


def test_evidence_of_all_kinds_is_kept():
    bags = Bags([0, 2, 5, 6], Evidence.interval([0, 1, 0], [1, 3, 1]))
    batch = collate_bags([BagDataset(bags, torch.randn(6, 1))[i] for i in (2, 1)])
    assert batch.evidence.high.tolist() == [1, 3]
    assert batch.offsets.tolist() == [0, 1, 4]
    with pytest.raises(LLPError, match="exact"):
        batch.counts  # noqa: B018
    assert batch.to("cpu").evidence.low.tolist() == [0, 1]


def test_frames_and_data_sets():
    frame = pd.DataFrame({"bag": [1, 1, 2], "n": [1, 1, 0], "age": [20, 30, 40]})
    data = BagDataset(Bags.from_frame(frame, "bag", "n"), frame)
    assert data.encoder.feature_names == ["age"]
    assert [len(item.rows) for item in data] == [2, 1]
    x = torch.randn(3, 2)
    other = BagDataset(data.bags, TensorDataset(x, torch.zeros(3)))
    assert torch.equal(other[-1].inputs, x[2:])


def test_bags_of_another_table():
    with pytest.raises(LLPError, match="table with 2 rows but inputs has 3"):
        BagDataset(Bags([0, 2], [1]), torch.randn(3, 1))


def test_parts_of_a_data_set():
    x, bags = bagged()
    data = BagDataset(bags, x)
    for index in (3, -1, np.int64(3), np.int64(-1), torch.tensor(3)):
        item = data[index]
        assert item.number == int(index) % len(data)
        assert item.rows.tolist() == bags[int(index)].rows.tolist()
    mask = np.isin(range(len(bags)), [2, 3, 4])
    for index in (slice(2, 5), [2, 3, 4], np.array([2, 3, 4]), mask):
        part = data[index]
        assert [item.rows.tolist() for item in part] == [b.rows.tolist() for b in bags[2:5]]
        assert [item.number for item in part] == [2, 3, 4]
        assert part[1:][0].number == 3
    assert len(list(data)) == len(bags)


@pytest.mark.parametrize("index", [100, -100, 1.0, "a", None, True, [100], [0.5]])
def test_no_part_of_a_data_set(index):
    x, bags = bagged()
    with pytest.raises(LLPError):
        BagDataset(bags, x)[index]


def test_a_loader_needs_no_collate_fn():
    x, bags = bagged()
    batch = next(iter(DataLoader(BagDataset(bags, x), batch_size=4)))
    assert torch.equal(batch.offsets, bags.offsets[:5])


@pytest.mark.parametrize("items", [[(torch.zeros(2, 1), 1)], [{"x": 1}], 3, [None]])
def test_what_cannot_be_collated(items):
    with pytest.raises(LLPError, match=r"item 0 of the batch is a .*BagDataset"):
        collate_bags(items)
