"""A method of one's own with a teacher and two views: the teacher is the model throughout."""

import copy

import pytest
import torch

import llpkit
from fits import same_weights
from llpkit import datasets, methods, plugins
from llpkit.evaluation import bag_log_likelihood
from llpkit.training import Callback, job


@pytest.fixture(autouse=True)
def _loaded(own_parts):
    plugins.load([str(own_parts)])


def train(method="ema-teacher", **options):
    data = datasets.load("lamps", bag_size=4)
    how = {"epochs": 6, "batch_size": 32, "lr": 0.02, "device": "cpu", "progress": False}
    return data, llpkit.fit("flat", data.bags, data.inputs, method, **how | options)


class Watch(Callback):
    """Keeps both networks as they were after every epoch."""

    def __init__(self):
        self.students, self.teachers = [], []

    def on_epoch(self, session, row):  # noqa: ARG002
        self.students.append(copy.deepcopy(session.network).state_dict())
        self.teachers.append(copy.deepcopy(session.model).state_dict())


def test_it_learns_and_the_teacher_predicts(tmp_path):
    method, watch = methods.make("ema-teacher"), Watch()
    data, model = train(method, epochs=30, callbacks=watch)
    assert model.network is method.model
    for name, value in model.network.state_dict().items():
        assert torch.equal(value, watch.teachers[-1][name])
        student = watch.students[-1][next(key for key in watch.students[-1] if key.endswith(name))]
        assert not torch.equal(value, student)
    assert (model.predict(data.inputs) == data.truth).float().mean() > 0.95
    again = llpkit.load(model.save(tmp_path))
    assert torch.equal(again.predict_proba(data.inputs), model.predict_proba(data.inputs))


def test_the_teacher_is_what_held_out_bags_select():
    watch = Watch()
    held_out = datasets.load("lamps", bag_size=4).bags[:8]
    data = datasets.load("lamps", bag_size=4)
    model = llpkit.fit(
        "flat", data.bags[8:], data.inputs, "ema-teacher", held_out=held_out, epochs=8, lr=0.3,
        schedule="constant", callbacks=watch, device="cpu", progress=False,
    )  # fmt: skip
    found = []
    for weights in watch.teachers:
        model.network.load_state_dict(weights)
        logits = model.logits(data.inputs)[held_out.rows]
        found.append(float(bag_log_likelihood(logits, held_out).mean()))
    history = [row["held_out_log_likelihood"] for row in model.history]
    assert history == pytest.approx(found, rel=1e-5)
    assert model.selected_epoch == 1 + found.index(max(found))


def test_padding_changes_nothing(monkeypatch):
    """Where the strong view is not random, that is: noise is drawn for the padding too."""
    models = []
    for pad in (False, True):
        monkeypatch.setattr(job, "paddable", lambda *_, pad=pad: pad)
        data, model = train(batch_size=50, strong_augment=torch.sqrt)
        models.append(model.predict_proba(data.inputs))
    torch.testing.assert_close(*models)


def test_the_strong_view_is_the_method_s_own_or_the_user_s():
    _, own = train()
    _, same_by_name = train(strong_augment="speckle")
    _, other = train(strong_augment="none")
    assert same_weights(own.network, same_by_name.network)
    assert not same_weights(own.network, other.network)
    with pytest.raises(llpkit.LLPError, match='"mle" has one view; leave strong_augment out'):
        train("mle", strong_augment="speckle")


@pytest.mark.parametrize("precision", ["64-true", "bf16-true", "bf16-mixed"])
def test_the_teacher_has_the_precision_of_the_run(precision):
    data, model = train(epochs=20, lr=0.05, precision=precision, held_out=0.2)
    assert (model.predict(data.inputs) == data.truth).float().mean() > 0.95
