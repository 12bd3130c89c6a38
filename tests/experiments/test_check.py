"""A second run of a record: with its threads on a CPU, within a tolerance on a GPU."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from experiments.conftest import small
from llpkit import LLPError
from llpkit.experiments import Check, Run, carry_out, check, plan


@pytest.fixture
def pictures(tmp_path, monkeypatch) -> Path:
    """Forty birds and forty cats of noise."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for split, number in (("train", 35), ("test", 5)):
        for name in ("bird", "cat"):
            home = tmp_path / "data" / "cifar10-jpeg" / split / name
            home.mkdir(parents=True)
            for i in range(number):
                pixels = rng.integers(256, size=(32, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(home / f"{i:04d}.jpg")
    return tmp_path / "data"


def test_a_check_takes_the_threads_of_the_record(store, place, pictures):
    place = replace(place, jobs=2, data_dir=str(pictures))
    settings = small(
        dataset="cifar10", network="small-cnn", augment="none", precision="32-true", epochs=1
    )
    carry_out(plan("convergence", settings)[0], place)
    [record] = store.read()
    assert record["hardware"]["threads"] == 1
    torch.set_num_threads(2)
    path = store.home / "records" / "convergence" / f"{record['id']}.json"
    found = check(path, replace(place, jobs=1))
    assert found.others == ()  # the threads are part of the hardware
    assert found.agrees
    assert found.told.endswith("cpu: the same to the last digit")
    assert torch.get_num_threads() == 2


def found(
    device: str, now: float | None, others: tuple[str, ...] = (), method: str = "mle"
) -> Check:
    accuracy = None if now is None else (0.8, now)
    return Check(
        Run("convergence", "digits", method), device, 0.5, "loss of epoch 1", accuracy, others
    )


def test_on_a_gpu_the_last_accuracy_has_a_tolerance():
    near, far = found("cuda", 0.8 - 0.029), found("cuda", 0.8 + 0.031)
    assert near.agrees
    assert near.told.endswith("80.00 % then, 77.10 % now, within the tolerance of 3 points")
    assert not far.agrees
    assert far.told.endswith("83.10 % now, beyond the tolerance of 3 points")
    assert found("cuda", 0.8 - 0.074, method="llp-gan").agrees
    assert not found("cuda", 0.8 + 0.076, method="llp-gan").agrees
    blind = found("cuda", None)
    assert blind.agrees
    assert blind.told.endswith("loss of epoch 1, and no accuracy to hold against")
    assert not found("cpu", 0.8).agrees  # whatever the accuracy: another loss
    assert found("cpu", 0.8, ("device",)).agrees  # the record is a GPU's


def test_a_record_that_is_not_there(place):
    with pytest.raises(LLPError, match=r"nowhere\.json is no file; give records, RESULTS/records"):
        check(Path("nowhere.json"), place)
