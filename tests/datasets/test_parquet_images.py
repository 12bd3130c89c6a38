"""Images in a Parquet file: read by row groups, shuffled in windows, trained like image files."""

import io
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import llpkit
from fits import difference, same_weights
from llpkit import LLPError, datasets
from llpkit.datasets import ParquetImages, write_images
from llpkit.training.batches import Blocks, plan_instances


def encode(pixels, kind="PNG"):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


@pytest.fixture
def shards(tmp_path):
    """192 images of 4 x 4 pixels, bright if positive, in 48 bags and 12 row groups."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 192)
    pixels = (
        rng.integers(0, 128, (192, 4, 4, 3), dtype=np.uint8)
        + (truth * 100).astype(np.uint8)[:, None, None, None]
    )
    bag = np.repeat(np.arange(48), 4)
    count = np.bincount(bag, truth).astype(int)[bag]
    columns = {"bag": bag.tolist(), "n": count.tolist(), "truth": truth.tolist()}
    path = write_images(tmp_path / "i.parquet", map(encode, pixels), columns, bag="bag", rows=15)
    return path, torch.from_numpy(pixels).permute(0, 3, 1, 2), truth


def test_bags_are_whole_in_every_row_group(shards):
    path, *_ = shards
    file = pq.ParquetFile(path)
    assert file.num_row_groups == 12
    seen = [set(file.read_row_group(i)["bag"].to_pylist()) for i in range(12)]
    assert sum(map(len, seen)) == len(set().union(*seen)) == 48


def test_rows_in_any_order_also_in_another_process(shards):
    path, pixels, _ = shards
    images = ParquetImages(path, "image", window=3)
    order = torch.randperm(192)
    assert torch.equal(images.load(order), pixels[order])
    assert images.shape == (192, 3, 4, 4)
    again = pickle.loads(pickle.dumps(images))
    part = again.select(order[:50])
    assert torch.equal(part.load([3, 1]), pixels[order[[3, 1]]])
    assert torch.equal(part.blocks, images.blocks[order[:50]])
    assert len(images._kept) <= 4  # no more than a window and the next row group


def test_a_struct_with_bytes_is_read_too(tmp_path):
    content = [{"bytes": encode(np.full((2, 2, 3), i, np.uint8)), "path": None} for i in range(3)]
    pq.write_table(pa.table({"image": content}), tmp_path / "i.parquet")
    images = ParquetImages(tmp_path / "i.parquet", "image")
    assert images.load([2, 0])[:, 0, 0, 0].tolist() == [2, 0]


def test_a_window_has_one_block_of_each_lane():
    blocks = Blocks(torch.arange(10).repeat_interleave(6), 4)
    windows = blocks.windows(torch.Generator().manual_seed(0))
    plan = plan_instances(60, 7, window=windows, generator=torch.Generator().manual_seed(0))
    order = torch.cat([step.positions for step in plan])
    assert sorted(order.tolist()) == list(range(60))
    seen = blocks.of_bag[order]
    for window in range(3):
        part = seen[windows[order] == window].unique()
        assert len(part) == len({int(b) % 4 for b in part})
    assert bool((windows[order].diff() >= 0).all())  # one window after another
    owners = blocks.owners(2)
    for window in range(2):  # each process has half of a window
        assert torch.bincount(owners[windows == window]).tolist() == [12, 12]
    with pytest.raises(LLPError, match="5 processes, but the images are read in windows of 4"):
        blocks.owners(5)


@pytest.mark.parametrize("method", ["mle", "dllp"])
def test_training_does_not_depend_on_what_is_in_memory(shards, method):
    path, _, truth = shards
    data = datasets.load("image-table", table=path, bag="bag", count="n", image="image")
    data.inputs.window = 3
    usual = {"epochs": 12, "lr": 0.02, "batch_size": 32, "progress": False, "held_out": 0.2}
    read = llpkit.fit("mlp", data.bags, data.inputs, method, resident=False, workers=1, **usual)
    kept = llpkit.fit("mlp", data.bags, data.inputs, method, resident=True, **usual)
    for a, b in zip(read.network.parameters(), kept.network.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    assert (read.predict(data.inputs).numpy() == truth).mean() > 0.9


def test_two_processes_stream_their_own_row_groups(shards):
    path, *_ = shards
    data = datasets.load("image-table", table=path, bag="bag", count="n", image="image")
    data.inputs.window = 4
    usual = {"epochs": 2, "lr": 0.02, "batch_size": 32, "progress": False, "resident": False}
    usual |= {"precision": "64-true", "workers": 0, "held_out": 0.2}
    one = llpkit.fit("mlp", data.bags, data.inputs, **usual)
    two = llpkit.fit("mlp", data.bags, data.inputs, devices=2, **usual)
    assert difference(one, two) < 1e-6


@pytest.fixture
def folder(shards, tmp_path):
    """The same images in three files."""
    path, *_ = shards
    found = tmp_path / "shards"
    found.mkdir()
    file = pq.ParquetFile(path)
    for i, groups in enumerate((range(5), range(5, 6), range(6, 12))):
        with pq.ParquetWriter(found / f"{i}.parquet", file.schema_arrow) as writer:
            for group in groups:
                writer.write_table(file.read_row_group(group))
    return found


@pytest.mark.parametrize("name", ["", "*.parquet"])
def test_several_files_are_one_table(shards, folder, name):
    path, pixels, _ = shards
    usual = {"bag": "bag", "count": "n", "image": "image"}
    one = datasets.load("image-table", table=path, **usual)
    several = datasets.load("image-table", table=folder / name, **usual)
    assert torch.equal(several.inputs.blocks, one.inputs.blocks)
    assert torch.equal(several.bags.counts, one.bags.counts)
    order = torch.randperm(192)
    assert torch.equal(several.inputs.load(order), pixels[order])
    settings = {"epochs": 2, "progress": False, "resident": False, "workers": 0}
    models = [llpkit.fit("linear", data.bags, data.inputs, **settings) for data in (one, several)]
    assert same_weights(*(model.network for model in models))


def test_a_file_that_does_not_fit_the_others_is_named(folder):
    usual = {"bag": "bag", "count": "n", "image": "image"}
    second = folder / "1.parquet"
    table = pq.read_table(second)
    pq.write_table(table.drop_columns("n"), second)
    with pytest.raises(LLPError, match=r"1\.parquet does not fit the first file"):
        datasets.load("image-table", table=folder, **usual)
    images = table["image"].to_pylist()
    images[2] = None
    pq.write_table(table.set_column(3, "image", pa.array(images, pa.binary())), second)
    data = datasets.load("image-table", table=folder, **usual)
    first = pq.read_metadata(folder / "0.parquet").num_rows
    with pytest.raises(LLPError, match=r"1\.parquet: row 3, column 'image' is empty"):
        data.inputs.load([first + 2])
    with pytest.raises(LLPError, match="there is no such Parquet file"):
        datasets.load("image-table", table=folder / "x*.parquet", **usual)


def test_what_is_wrong_is_named(tmp_path, shards):
    path, *_ = shards
    with pytest.raises(LLPError, match="no column 'photo' of encoded images"):
        ParquetImages(path, "photo")
    with pytest.raises(LLPError, match="do not follow each other"):
        write_images(tmp_path / "j", [b""] * 3, {"bag": [1, 2, 1]}, bag="bag")
    content = [encode(np.zeros((2, 2, 3), np.uint8)), b"not an image", None]
    pq.write_table(pa.table({"image": pa.array(content, pa.binary())}), tmp_path / "k.parquet")
    images = ParquetImages(tmp_path / "k.parquet", "image")
    assert [*images.bad_rows()] == [1, 2]
    with pytest.raises(LLPError, match=r"row 3, column 'image' is empty"):
        images.load([2])
