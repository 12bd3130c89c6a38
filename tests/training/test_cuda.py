"""On a card: replayed steps train what plain ones do, without waiting inside an epoch."""

import warnings

import pytest
import torch

import llpkit
from llpkit import plugins
from llpkit.datasets import load
from llpkit.errors import BaselineWarning
from llpkit.methods import BagMethod
from llpkit.training import Callback

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
METHODS = ["supervised", "mle", "mle-pass", "direct", "amle", "dllp", "llp-gan"]


def train(method, network="mlp", epochs=4, **options):
    data = load("digits")
    if method == "supervised":
        options["labels"] = data.truth
    if method == "llp-gan":
        network = None
    return data, llpkit.fit(
        network,
        data.bags,
        data.inputs,
        method,
        epochs=epochs,
        device="cuda",
        progress=False,
        precision=options.pop("precision", "32-true"),
        **options,
    )


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_captured(method):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # giving up is one
        warnings.simplefilter("ignore", BaselineWarning)
        _, model = train(method, augment="geometric", precision="auto", callbacks=[Captured()])
    assert len(model.history) == 4


@pytest.mark.parametrize("method", METHODS[:-1])
def test_replayed_steps_train_the_same_network(method):
    """A dense network without dropout: what is left is rounding."""
    data, usual = train(method, cuda_graph=False)
    _, replayed = train(method, callbacks=[Captured()])
    a, b = (m.predict_proba(data.inputs).cpu() for m in (usual, replayed))
    torch.testing.assert_close(a, b, atol=2e-3, rtol=0)
    for x, y in zip(usual.history, replayed.history, strict=True):
        assert x["loss"] == pytest.approx(y["loss"], abs=1e-3)


class Captured(Callback):
    """That a graph was captured, and is still in use."""

    def on_epoch(self, session, row):
        if row["epoch"] > 1:
            assert session._steps.graph is not None


class Listen(Callback):
    """Forbids waiting from the end of the third epoch's metrics to the end of the last."""

    def on_epoch(self, session, row):
        train = session._train

        def watched():
            torch.cuda.set_sync_debug_mode("error")
            try:
                result = train()
                session.method.end_epoch(result[1])
                return result
            finally:
                torch.cuda.set_sync_debug_mode("default")

        if row["epoch"] == 3:
            session._train = watched


@pytest.mark.parametrize("method", METHODS)
def test_nothing_waits_inside_an_epoch(method):
    train(method, epochs=5, callbacks=[Listen(), Captured()], augment="geometric")


def test_a_teacher_is_captured(own_parts):
    plugins.load([str(own_parts)])
    data, usual = train("ema-teacher", "flat", cuda_graph=False, strong_augment="none")
    _, replayed = train("ema-teacher", "flat", callbacks=[Captured()], strong_augment="none")
    a, b = (m.predict_proba(data.inputs).cpu() for m in (usual, replayed))
    torch.testing.assert_close(a, b, atol=2e-3, rtol=0)


def test_a_captured_step_follows_the_schedule():
    """With a learning rate of zero from the third epoch on the weights stand still."""
    weights = []

    class Keep(Callback):
        def on_epoch(self, session, row):  # noqa: ARG002
            weights.append([p.detach().clone() for p in session.network.parameters()])

    def schedule(optimizer):
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: float(epoch < 2))

    train("mle", epochs=4, schedule=schedule, callbacks=[Keep(), Captured()])
    assert not all(torch.equal(a, b) for a, b in zip(weights[0], weights[1], strict=True))
    assert all(torch.equal(a, b) for a, b in zip(weights[1], weights[3], strict=True))


def test_a_method_that_waits_is_run_as_it_is():
    class Waits(BagMethod):
        key = "waits"
        summary = "looks at its loss"
        replayable = True

        def bag_loss(self, logits, evidence, offsets):
            loss = llpkit.losses.count_loss(logits, evidence, offsets)
            assert float(loss.detach().mean()) < 1e6
            return loss

    with pytest.warns(UserWarning, match=r'method "waits" cannot be captured .* line \d+'):
        _, model = train(Waits())
    assert model.history[-1]["log_likelihood"] > model.history[0]["log_likelihood"]


def test_resumes_on_the_card(tmp_path):
    class Stop(Callback):
        def on_epoch(self, session, row):  # noqa: ARG002
            if row["epoch"] == 3:
                raise KeyboardInterrupt

    data, whole = train("mle", epochs=5)
    with pytest.raises(KeyboardInterrupt):
        train("mle", epochs=5, run_dir=tmp_path, callbacks=[Stop()])
    _, resumed = train("mle", epochs=5, run_dir=tmp_path, resume=True)
    a, b = (m.predict_proba(data.inputs).cpu() for m in (whole, resumed))
    torch.testing.assert_close(a, b, atol=2e-3, rtol=0)


@pytest.mark.filterwarnings("default")  # of torch.compile itself
def test_compiled_steps_train_the_same_network():
    data, usual = train("mle")
    _, compiled = train("mle", compile=True)
    a, b = (m.predict_proba(data.inputs).cpu() for m in (usual, compiled))
    torch.testing.assert_close(a, b, atol=2e-3, rtol=0)


def test_sgd_is_captured_too():
    _, model = train("mle", optimizer="sgd", lr=0.05, callbacks=[Captured()])
    assert model.history[-1]["log_likelihood"] > model.history[0]["log_likelihood"]


@pytest.mark.parametrize("method", ["mle", "direct"])
def test_batch_norm_and_dropout_are_replayed(method):
    """Other random numbers, so only the outcome can be compared."""
    data, usual = train(method, network="small-cnn", epochs=8, lr=3e-3, cuda_graph=False)
    _, replayed = train(method, network="small-cnn", epochs=8, lr=3e-3, callbacks=[Captured()])
    right = [
        float((m.predict(data.inputs).cpu() == data.truth).float().mean())
        for m in (usual, replayed)
    ]
    assert abs(right[0] - right[1]) < 0.03
    steps = [
        [int(v) for k, v in m.network.state_dict().items() if k.endswith("num_batches_tracked")]
        for m in (usual, replayed)
    ]
    assert steps[0] == steps[1]
    assert min(steps[0]) > 0


def test_another_number_is_captured_anew():
    """Momentum that a schedule changes is a number; a graph would hold the old one."""
    graphs = []

    class Change(Callback):
        def on_epoch(self, session, row):
            graphs.append(session._steps.graph)
            if row["epoch"] == 2:
                session.learner.optimizer.param_groups[0]["betas"] = (0.5, 0.9)

    train("mle", epochs=5, callbacks=[Change()])
    assert graphs[0] is graphs[1]
    assert graphs[2] is not graphs[1]
    assert graphs[4] is graphs[2]


def test_large_bags_between_replays():
    data = load("digits")
    bags = llpkit.random_bags(data.truth, (1, 60), generator=0)
    both = [
        llpkit.fit(
            "mlp", bags, data.inputs, "direct", epochs=3, batch_size=32, device="cuda",
            precision="32-true", progress=False, cuda_graph=graph,
        )
        for graph in (True, False)
    ]  # fmt: skip
    a, b = (m.predict_proba(data.inputs).cpu() for m in both)
    torch.testing.assert_close(a, b, atol=5e-3, rtol=0)


@pytest.mark.parametrize("resident", [True, False])
def test_inputs_that_are_not_resident(resident):
    _, model = train("mle", resident=resident, callbacks=[Captured()])
    assert model.history[-1]["log_likelihood"] > model.history[0]["log_likelihood"]


def test_direct_of_classes_gives_no_warning():
    data = load("digits")
    labels = data.truth + (torch.arange(len(data.truth)) % 3 == 0)
    bags = llpkit.random_bags(labels, 4, generator=0, num_classes=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", BaselineWarning)
        llpkit.fit("mlp", bags, data.inputs, "direct", epochs=1, device="cuda", progress=False)


def test_the_user_s_settings_of_cudnn_hold():
    seen = []

    class Watch(Callback):
        def on_epoch(self, session, row):  # noqa: ARG002
            cudnn = torch.backends.cudnn
            seen.append((cudnn.enabled, cudnn.deterministic, cudnn.allow_tf32))

    with torch.backends.cudnn.flags(True, deterministic=True, allow_tf32=False):
        train("mle", epochs=1, callbacks=[Watch()])
    assert seen == [(True, True, False)]
