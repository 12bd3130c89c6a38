"""Loggers: settings, one row per epoch, final measures; a resumed run goes on in its log."""

import json
import pickle
import struct
from collections import Counter

import pytest
import torch
import yaml
from typer.testing import CliRunner

import llpkit
from fits import Pause
from llpkit.cli import app
from llpkit.errors import LLPError
from llpkit.integrations.loggers import LOGGERS, STATE, MLflow, TensorBoard, WandB
from llpkit.training import Callback

# The packages themselves warn of what they will change.
pytestmark = pytest.mark.filterwarnings("ignore::Warning")


@pytest.fixture(scope="module")
def toy():
    x = torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
    return llpkit.random_bags((x[:, 0] > 0).long(), size=(1, 6), generator=0), x


class DieAfter(Callback):
    """Fails after the loggers have seen the epoch, and before its checkpoint is written."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch(self, session, row):  # noqa: ARG002
        if row["epoch"] == self.epoch:
            raise RuntimeError("killed")


def train(toy, logger, run_dir, *more, resume=False):
    bags, x = toy
    return llpkit.fit(
        "linear",
        bags,
        x,
        "mle",
        epochs=4,
        held_out=0.2,
        callbacks=[logger, *more],
        run_dir=run_dir,
        resume=resume,
        progress=False,
    )


def interrupted(toy, make, run_dir):
    """A run that pauses after epoch 1, dies in epoch 3, and is then finished."""
    train(toy, make(), run_dir, Pause(1))
    with pytest.raises(RuntimeError, match="killed"):
        train(toy, make(), run_dir, DieAfter(3), resume=True)
    return train(toy, make(), run_dir, resume=True)


def scalars(folder):
    """All scalars of a folder of event files, as (name, step) -> value; twice is an error."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder)).Reload()
    events = [(n, e.step, e.value) for n in found.Tags()["scalars"] for e in found.Scalars(n)]
    assert max(Counter((n, step) for n, step, _ in events).values()) == 1
    return {(n, step): value for n, step, value in events}, found


class TestTensorBoard:
    def test_epochs_settings_and_final_measures(self, toy, tmp_path):
        model = train(toy, TensorBoard(tmp_path / "log"), tmp_path / "run")
        found, reader = scalars(tmp_path / "log")
        for row in model.history:
            for name in ("loss", "log_likelihood", "held_out_log_likelihood", "lr"):
                assert found[name, row["epoch"]] == pytest.approx(row[name])
        best = model.history[model.selected_epoch - 1]
        assert found["final/log_likelihood", 4] == pytest.approx(best["log_likelihood"])
        assert found["final/epoch", 4] == model.selected_epoch
        assert "_hparams_/experiment" in reader.summary_metadata
        start = reader.summary_metadata["_hparams_/session_start_info"].plugin_data.content
        assert b"epochs" in start
        assert b"method" in start

    def test_a_resumed_run_logs_every_epoch_once(self, toy, tmp_path):
        model = interrupted(toy, TensorBoard, tmp_path)
        found, _ = scalars(tmp_path / "tensorboard")
        assert [step for name, step in found if name == "loss"] == [1, 2, 3, 4]
        assert found["loss", 3] == pytest.approx(model.history[2]["loss"])
        assert json.loads((tmp_path / STATE).read_text())["tensorboard"]["epoch"] == 4

    def test_a_logger_that_joins_late_logs_the_epochs_before(self, toy, tmp_path):
        train(toy, Callback(), tmp_path, Pause(2))
        train(toy, TensorBoard(), tmp_path, resume=True)
        found, _ = scalars(tmp_path / "tensorboard")
        assert [step for name, step in found if name == "loss"] == [1, 2, 3, 4]

    def test_it_needs_a_place(self, toy):
        with pytest.raises(LLPError, match="no folder to write to; give log_dir= or run_dir="):
            train(toy, TensorBoard(), None)

    @pytest.mark.slow
    def test_several_processes_log_once(self, toy, tmp_path):
        bags, x = toy
        llpkit.fit(
            "linear",
            bags,
            x,
            "mle",
            epochs=2,
            devices=2,
            callbacks=TensorBoard(tmp_path),
            progress=False,
            device="cpu",
        )
        found, _ = scalars(tmp_path)
        assert [step for name, step in found if name == "loss"] == [1, 2]

    def test_the_command_line(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        table(tmp_path / "t.csv")
        columns = ["--bag", "bag", "--count", "count", "--label", "truth"]
        how = ["--method", "mle", "--network", "linear", "--epochs", "2", "--test-fraction", "0.2"]
        run("fit", "t.csv", *columns, *how, "--log", "tensorboard", "--out", "net")
        found, _ = scalars("net/tensorboard")
        assert [step for name, step in found if name == "test_accuracy"] == [1, 2]
        assert 0 <= found["final/test/instances/accuracy", 2] <= 1
        assert yaml.safe_load((tmp_path / "net/config.yaml").read_text())["log"] == ["tensorboard"]
        run("evaluate", "net")  # the event files are part of the run

    @pytest.mark.slow
    def test_the_path_of_em(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        table(tmp_path / "t.csv")
        (tmp_path / "c.yaml").write_text(
            "data: {table: t.csv, bag: bag, count: count, label: truth}\nlog: [tensorboard]\n"
            "estimator: naive-bayes\n"
        )
        run("fit", "c.yaml", "--out", "em")
        found, _ = scalars("em/tensorboard")
        steps = [step for name, step in found if name == "log_likelihood"]
        assert steps == [*range(1, len(steps) + 1)]
        assert len(steps) > 1
        assert ("final/training/bags/log_likelihood", steps[-1]) in found


class TestMLflow:
    def test_a_resumed_run_is_one_run(self, toy, tmp_path):
        from mlflow import MlflowClient

        store = f"sqlite:///{tmp_path / 'mlflow.db'}"
        model = interrupted(toy, lambda: MLflow("trial", tracking_uri=store), tmp_path / "run")
        client = MlflowClient(store)
        experiment = client.get_experiment_by_name("trial")
        (run,) = client.search_runs([experiment.experiment_id])
        path = client.get_metric_history(run.info.run_id, "loss")
        assert [m.step for m in path] == [1, 2, 3, 4]
        assert [m.value for m in path] == pytest.approx([row["loss"] for row in model.history])
        assert run.info.status == "FINISHED"
        assert run.data.params["method"] == "mle"
        assert run.data.params["epochs"] == "4"
        assert run.data.metrics["final/epoch"] == model.selected_epoch

    def test_an_unreachable_store_is_named(self, toy):
        with pytest.raises(LLPError, match=r"mlflow failed: .*; fix that, or use another logger"):
            train(toy, MLflow(tracking_uri="nowhere://"), None)


@pytest.mark.usefixtures("trackers_here")
class TestWandB:
    def test_the_parts_of_a_resumed_run_have_one_id_and_every_epoch_once(self, toy, tmp_path):
        from wandb.proto.wandb_internal_pb2 import Record

        interrupted(toy, WandB, tmp_path / "run")
        files = sorted(
            tmp_path.glob("wandb/offline-run-*/*.wandb"), key=lambda f: f.stat().st_mtime
        )
        assert len(files) == 3
        (name,) = {file.stem for file in files}
        assert name == "run-" + json.loads((tmp_path / "run" / STATE).read_text())["wandb"]["run"]
        steps, summary, settings = [], set(), set()
        for file in files:
            for record in map(Record.FromString, leveldb_records(file.read_bytes())):
                keys = {i.key or "/".join(i.nested_key) for i in record.history.item}
                if "loss" in keys:
                    steps.append(record.history.step.num)
                summary |= {i.key or "/".join(i.nested_key) for i in record.summary.update}
                settings |= {i.key for i in record.run.config.update}
        assert steps == [1, 2, 3, 4]
        assert "final/log_likelihood" in summary
        assert {"method", "epochs"} <= settings


def leveldb_records(data):
    """The records of a log of LevelDB, the format of W&B's files, after their seven bytes."""
    at, parts = 7, b""
    while at + 7 <= len(data):
        left = 2**15 - at % 2**15
        if left < 7:  # padding at the end of a block
            at += left
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield parts
            parts = b""


def table(path):
    """Twenty bags of four with one to three positives each, those with the largest x."""
    rows = [(bag, bag % 3 + 1, i - 0.1 * (bag % 5)) for bag in range(20) for i in range(4)]
    lines = [f"{bag},{y},{x},{int(x > 2.6 - y)}" for bag, y, x in rows]
    path.write_text("\n".join(["bag,count,x,truth", *lines, ""]))


def run(*arguments):
    done = CliRunner().invoke(app, [*arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_loggers_can_be_sent_to_other_processes():
    for kind in LOGGERS.values():
        assert isinstance(pickle.loads(pickle.dumps(kind())), kind)


def test_an_unknown_logger_is_refused():
    done = CliRunner().invoke(app, ["fit", "--dataset", "digits", "--log", "tensorbord"])
    assert done.exit_code != 0
    assert "tensorboard" in str(done.exception) + done.output


def test_a_missing_package_stops_before_training(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    out = str(tmp_path / "run")
    done = CliRunner().invoke(app, ["fit", "--dataset", "digits", "--log", "wandb", "--out", out])
    assert done.exit_code != 0
    assert "pip install 'llpkit[wandb]'" in str(done.exception) + done.output
    assert not (tmp_path / "run").exists()


def test_a_damaged_state_is_named(toy, tmp_path):
    (tmp_path / STATE).write_text("[]")
    with pytest.raises(LLPError, match="is damaged; remove it to start a new log"):
        train(toy, TensorBoard(), tmp_path)
