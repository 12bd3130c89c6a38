"""Lightning: the Trainer gives the weights of llpkit.fit, also after a resume."""

import sys

import numpy as np
import pandas as pd
import polars as po
import pyarrow as pa
import pytest
import pytorch_lightning as pl
import torch
from torch import nn

import llpkit
from fits import same_weights
from llpkit.augment import Augment
from llpkit.errors import LLPError
from llpkit.integrations.pytorch_lightning import LLPModule

pytestmark = pytest.mark.filterwarnings("ignore::Warning:pytorch_lightning")


@pytest.fixture(scope="module")
def toy():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(160, 4, generator=generator)
    truth = (x[:, 0] > x[:, 1]).long()
    return llpkit.random_bags(truth, size=(1, 6), generator=0), x, truth


@pytest.fixture(scope="module")
def images():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(60, 1, 8, 8, generator=generator)
    truth = (x[:, 0, 0, 0] > 0.5).long()
    return llpkit.random_bags(truth, size=(1, 6), generator=0), x, truth


def trainer(epochs=3, **more):
    usual = {"accelerator": "cpu", "enable_checkpointing": False}
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    return pl.Trainer(max_epochs=epochs, **usual | quiet | more)


def fit(*what, device="cpu", **settings):
    return llpkit.fit(*what, device=device, progress=False, **settings)


METHODS = ("mle", "direct", "teacher")


@pytest.mark.parametrize("method", [*METHODS, "mle-pass"])
def test_the_weights_and_the_history_are_those_of_fit(method, toy):
    bags, x, _ = toy
    settings = {"batch_size": 32, "lr": 1e-2, "held_out": 0.2, "seed": 3}
    direct = fit("mlp", bags, x, method, epochs=3, **settings)
    module = LLPModule("mlp", bags, x, method, **settings)
    run = trainer()
    run.fit(module)
    # Without patience or selection, the last epoch is compared.
    last = {k: v for k, v in direct.history[-1].items() if "seconds" not in k}
    assert module.history[-1] == last
    assert run.callback_metrics["held_out_log_likelihood"] == pytest.approx(
        last["held_out_log_likelihood"]
    )


@pytest.mark.parametrize("method", METHODS)
def test_augmented_images_too(method, images):
    bags, x, _ = images
    shift = {"augment": Augment(shift=0.1), "batch_size": 16}
    one = fit("small-cnn", bags, x, method, epochs=2, **shift)
    module = LLPModule("small-cnn", bags, x, method, **shift)
    trainer(2).fit(module)
    assert same_weights(one.network, module.fitted().network)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("method", METHODS)
def test_on_a_graphics_card_too(method, images):
    bags, x, _ = images
    settings = {"batch_size": 16, "seed": 1}
    one = fit(
        "small-cnn", bags, x, method, device="cuda", precision="32-true", epochs=2, **settings
    )
    module = LLPModule("small-cnn", bags, x, method, **settings)
    trainer(2, accelerator="gpu", devices=1).fit(module)
    torch.testing.assert_close(
        module.fitted().logits(x).cpu(), one.logits(x).cpu(), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_run_ends_with_the_same_weights_and_targets(method, images, tmp_path):
    bags, x, _ = images

    def module():
        return LLPModule("small-cnn", bags, x, method, batch_size=16)

    whole = module()
    trainer(4).fit(whole)
    # The same schedule: it is stopped by a callback, not by max_epochs.
    first = module()
    save = pl.callbacks.ModelCheckpoint(tmp_path, save_last=True, every_n_epochs=1)
    trainer(4, enable_checkpointing=True, callbacks=[save, StopAfter(2)]).fit(first)
    second = module()
    trainer(4).fit(second, ckpt_path=tmp_path / "last.ckpt")
    assert [row["epoch"] for row in second.history] == [1, 2, 3, 4]
    assert same_weights(whole.network, second.network)
    assert same_weights(whole.model, second.model)
    for name, value in whole.method.state_dict().items():
        assert torch.equal(value, second.method.state_dict()[name])


class StopAfter(pl.Callback):
    def __init__(self, epochs):
        self.epochs = epochs

    def on_train_epoch_end(self, trainer, module):
        trainer.should_stop = module.current_epoch + 1 == self.epochs


def test_a_run_that_stops_within_an_epoch_begins_it_again(toy, tmp_path):
    bags, x, _ = toy
    path = tmp_path / "within.ckpt"

    class Die(pl.Callback):
        def on_train_batch_end(self, trainer, *_):
            if trainer.global_step == 7:  # of five steps per epoch
                trainer.save_checkpoint(path)
                raise RuntimeError("killed")

    first = LLPModule("mlp", bags, x, "mle", batch_size=32)
    with pytest.raises(RuntimeError, match="killed"):
        trainer(3, callbacks=[Die()]).fit(first)
    second = LLPModule("mlp", bags, x, "mle", batch_size=32)
    run = trainer(3)
    run.fit(second, ckpt_path=path)
    assert second.history[0] == first.history[0]
    assert [row["epoch"] for row in second.history] == [1, 2, 3]
    assert run.global_step == 7 + 2 * 5


def test_a_checkpoint_written_by_validation_has_the_new_targets(toy, tmp_path):
    bags, x, _ = toy

    class Validated(LLPModule):
        def val_dataloader(self):
            return [torch.zeros(1)]

        def validation_step(self, *_):
            self.log("val", torch.tensor(float(self.current_epoch)))

    save = pl.callbacks.ModelCheckpoint(tmp_path, monitor="val", mode="max")
    module = Validated("mlp", bags, x)
    trainer(2, enable_checkpointing=True, callbacks=[save]).fit(module)
    state = torch.load(save.best_model_path, weights_only=True)["llpkit"]
    assert torch.equal(state["method"]["targets"], module.method.targets)


def test_a_checkpoint_predicts_with_the_teacher(toy, tmp_path):
    bags, x, _ = toy
    module = LLPModule("mlp", bags, x, "teacher", lr=1e-2)
    run = trainer()
    run.fit(module)
    run.save_checkpoint(tmp_path / "end.ckpt")
    again = LLPModule.load_from_checkpoint(
        tmp_path / "end.ckpt", network="mlp", bags=bags, inputs=x, method="teacher"
    )
    loader = torch.utils.data.DataLoader(x, batch_size=50)
    logits = torch.cat(trainer().predict(again, loader))
    assert torch.allclose(logits, module.fitted().logits(x), atol=1e-6)
    assert not same_weights(again.model, again.network)


def test_own_module_keeps_its_optimizer_and_schedule(toy):
    bags, x, truth = toy

    class Own(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x):
            return self.layer(x)

        def configure_optimizers(self):
            made = torch.optim.SGD(self.parameters(), lr=0.5)
            falls = 0.1 ** (1 / self.trainer.max_epochs)
            per_step = torch.optim.lr_scheduler.ExponentialLR(made, falls ** (1 / 6))
            return [made], [{"scheduler": per_step, "interval": "step"}]

    torch.manual_seed(0)
    module = LLPModule(Own(), bags, x, "direct", batch_size=32)
    run = trainer(12)
    run.fit(module)
    assert len({row["lr"] for row in module.history}) > 6
    model = module.fitted()
    assert (model.predict(x) == truth).float().mean() > 0.9
    with pytest.raises(LLPError, match="lr is given, but the network configures its own"):
        trainer().fit(LLPModule(Own(), bags, x, lr=0.1))


def test_a_bag_larger_than_a_batch_is_trained_in_pieces(toy):
    bags, x, _ = toy
    one = fit("linear", bags, x, "direct", epochs=1, batch_size=3)
    module = LLPModule("linear", bags, x, "direct", batch_size=3)
    trainer(1).fit(module)
    assert int(bags.sizes.max()) > 3
    assert same_weights(one.network, module.fitted().network)


def test_mixed_precision_and_early_stopping(toy):
    bags, x, truth = toy
    stop = pl.callbacks.EarlyStopping("held_out_log_likelihood", mode="max", patience=3)
    module = LLPModule("mlp", bags, x, "mle", lr=1e-2, held_out=0.2, batch_size=32)
    run = trainer(200, precision="bf16-mixed", callbacks=[stop])
    run.fit(module)
    assert len(module.history) < 200
    assert module.method.targets.dtype == torch.float32
    assert (module.fitted().predict(x) == truth).float().mean() > 0.85


def test_random_numbers_of_the_caller_are_kept(toy):
    bags, x, _ = toy
    torch.manual_seed(5)
    before = torch.get_rng_state()
    trainer(1).fit(LLPModule("mlp", bags, x))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 3}, r"epochs is a setting of the Trainer here; use Trainer\(max_epochs"),
        ({"patience": 3}, "EarlyStopping"),
        ({"method": "auto"}, "name one here"),
        ({"labels": [0] * 160}, "pass no labels"),
        ({"batchsize": 3}, "did you mean 'batch_size'"),
    ],
)
def test_wrong_settings(settings, message, toy):
    bags, x, _ = toy
    with pytest.raises(LLPError, match=message):
        LLPModule("mlp", bags, x, **settings)


def test_what_the_trainer_must_give(toy):
    bags, x, _ = toy
    with pytest.raises(LLPError, match="max_epochs = -1; give the Trainer a number"):
        trainer(-1, max_steps=3).fit(LLPModule("mlp", bags, x))


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_a_data_frame_is_encoded_as_by_fit(kind):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"ward": np.arange(80) // 4, "age": rng.normal(50, 20, 80)})
    frame["town"] = rng.choice(["a", "b", None], 80)
    frame["n_yes"] = (frame.age > 50).groupby(frame.ward).transform("sum").astype(int)
    given = {"pandas": lambda f: f, "polars": po.from_pandas, "pyarrow": pa.Table.from_pandas}
    frame = given[kind](frame)
    bags = llpkit.Bags.from_frame(frame, bag="ward", count="n_yes")
    direct = fit("mlp", bags, frame, "mle", epochs=2)
    module = LLPModule("mlp", bags, frame)
    trainer(2).fit(module)
    model = module.fitted()
    assert torch.equal(model.predict_proba(frame), direct.predict_proba(frame))


def test_a_loader_for_training_is_refused(toy):
    bags, x, _ = toy
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), 20)
    with pytest.raises(LLPError, match=r"makes its own batches.*trainer\.fit\(module\) alone"):
        trainer(1).fit(LLPModule("mlp", bags, x), loader)


def test_loaders_for_prediction(toy):
    bags, x, truth = toy
    module = LLPModule("mlp", bags, x)
    trainer(1).fit(module)
    wanted = module.fitted().logits(x)
    data = torch.utils.data.TensorDataset(x, truth)  # the label is not used
    found = trainer().predict(module, torch.utils.data.DataLoader(data, 50))
    assert torch.allclose(torch.cat(found), wanted, atol=1e-6)
    for wrong, message in (
        (x[:, :3], r"a batch has shape \(50, 3\); this model takes \(rows, 4\)"),
        ([{"x": row} for row in x], "a batch is a dict; give a tensor"),
    ):
        with pytest.raises(LLPError, match=message):
            trainer().predict(module, torch.utils.data.DataLoader(wrong, 50))


@pytest.mark.parametrize("limits", [{"limit_train_batches": 2}, {"fast_dev_run": True}])
def test_a_shortened_epoch_ends_with_its_measures(limits, toy):
    bags, x, _ = toy
    module = LLPModule("mlp", bags, x, "direct", batch_size=32)
    trainer(2, **limits).fit(module)
    assert len(module.history) == (1 if "fast_dev_run" in limits else 2)


def test_a_checkpoint_of_something_else_is_refused(toy, tmp_path):
    bags, x, _ = toy
    path, run = tmp_path / "end.ckpt", trainer(1)
    run.fit(LLPModule("mlp", bags, x))
    run.save_checkpoint(path)
    with pytest.raises(LLPError, match='of method "mle", and this is "direct"'):
        trainer(2).fit(LLPModule("mlp", bags, x, "direct"), ckpt_path=path)
    with pytest.raises(LLPError, match="different bags"):
        trainer(2).fit(LLPModule("mlp", bags[:-1], x), ckpt_path=path)


def test_a_missing_package_is_named(monkeypatch):
    from llpkit.integrations import _lightning

    _lightning.module_class.cache_clear()
    for name in ("lightning", "lightning.pytorch"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(LLPError, match=r"pip install 'llpkit\[lightning\]'"):
        from llpkit.integrations.lightning import LLPModule as _  # noqa: F401
    _lightning.module_class.cache_clear()
