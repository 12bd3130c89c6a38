"""Pausing a run, and checkpoints that are not written after every epoch."""

import pytest

import llpkit
from fits import Pause, same_weights
from llpkit import datasets
from llpkit.training.checkpoint import Checkpoint


def train(**more):
    data = datasets.load("synthetic", bag_size=5)
    return llpkit.fit(
        "mlp", data.bags, data.inputs, epochs=5, batch_size=64, device="cpu", progress=False, **more
    )


def test_a_paused_run_continues_bit_for_bit(tmp_path):
    whole = train()
    part = train(run_dir=tmp_path, callbacks=Pause(2), checkpoint_every=3600)
    assert len(part.history) == 2
    resumed = train(run_dir=tmp_path, resume=True, checkpoint_every=3600)
    assert len(resumed.history) == 5
    assert same_weights(whole.network, resumed.network)


@pytest.mark.parametrize(("every", "written"), [(0, 5), (3600, 1)])
def test_checkpoints_are_as_far_apart_as_asked_for(tmp_path, monkeypatch, every, written):
    saved = []
    real = Checkpoint.save
    monkeypatch.setattr(
        Checkpoint, "save", lambda *args, **kw: (saved.append(1), real(*args, **kw))
    )
    train(run_dir=tmp_path, checkpoint_every=every)
    assert len(saved) == written  # the last epoch is always saved
