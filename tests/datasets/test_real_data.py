"""The real data sets, where LLPKIT_DATA names a folder that has them."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from llpkit.datasets import group_photos, load

DATA = os.environ.get("LLPKIT_DATA")

pytestmark = pytest.mark.skipif(
    not DATA, reason="needs the real data; name its folder in LLPKIT_DATA"
)


def has(*names):
    if not any((Path(DATA) / name).exists() for name in names):
        pytest.skip(f"{' or '.join(names)} is not in LLPKIT_DATA")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def one_cache(own_folders, cache, monkeypatch):  # noqa: ARG001 own_folders must come first
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


def test_bird_and_cat():
    has("cifar10-jpeg.tar.xz", "cifar10-jpeg", "cifar-10-python.tar.gz", "cifar-10-batches-py")
    data = load("cifar10", data_dir=DATA)
    assert data.inputs.shape == (12000, 3, 32, 32)
    assert torch.bincount(data.truth).tolist() == [6000, 6000]
    test = load("cifar10", data_dir=DATA, split="test", classes=["cat", "dog", "ship"])
    assert torch.bincount(test.truth).tolist() == [1000, 1000, 1000]
    first = load("cifar10", data_dir=DATA, split="train", classes=["airplane", "frog"])
    blue = first.inputs[first.truth == 0].double().mean((0, 2, 3))
    assert blue[2] > blue[0] + 5  # skies: the channels are red, green, blue


def test_group_photos():
    has("group-photos-faces.tar.xz", "group-photos-faces", "group-photos")
    data = load("group-photos", data_dir=DATA)
    assert (len(data.bags), int(data.truth.sum()), int((1 - data.truth).sum())) == (
        1913,
        4012,
        3439,
    )
    assert data.inputs.shape == (7451, 3, 90, 72)
    assert int(data.bags.sizes.max()) == 12
    assert load("group-photos", data_dir=DATA, size="half").inputs.shape == (7451, 3, 45, 36)


def test_crops_of_the_original_photos_are_the_published_faces():
    has("group-photos-raw-sample.zip")
    has("group-photos-faces.tar.xz")
    cut = load("group-photos", source=Path(DATA) / "group-photos-raw-sample.zip", partial=True)
    assert (len(cut.bags), len(cut.inputs)) == (55, 238)
    faces = load("group-photos", data_dir=DATA)
    published = {}
    for row, face in enumerate(faces.inputs):
        published.setdefault(face[:, ::9, ::9].numpy().tobytes(), []).append(row)
    found = []
    for face in cut.inputs:
        file = io.BytesIO()
        Image.fromarray(face.permute(1, 2, 0).numpy()).save(file, "JPEG", quality=92)
        saved = np.asarray(Image.open(file)).transpose(2, 0, 1)
        rows = published.get(saved[:, ::9, ::9].tobytes(), [])
        found += [row for row in rows if np.array_equal(faces.inputs[row], saved)][:1]
    assert len(found) == 238
    assert torch.equal(faces.truth[found], cut.truth)
    assert group_photos.TOTALS == (1913, 4012, 3439)


def test_the_experiments_divide_the_real_data_by_bags():
    has("cifar10-jpeg.tar.xz", "cifar10-jpeg", "cifar-10-python.tar.gz", "cifar-10-batches-py")
    from llpkit import experiments
    from llpkit.experiments.run import divide, load

    protocol = experiments.load("bird-cat")
    data, _ = load(protocol, DATA)
    train, held = divide(protocol, data, fold=9)
    assert train.num_instances + held.num_instances == 12000
    assert 10_500 < train.num_instances < 11_100  # nine tenths of the bags, 10,800 on average
    assert data.bags.sizes.unique().tolist() == list(range(1, 13))
