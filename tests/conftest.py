import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"  # the workers share the cores already; before torch loads

os.environ |= {  # before the packages load: they must not reach for the network
    "HF_HUB_OFFLINE": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_MODE": "offline",
}

import pytest
import torch
from hypothesis import HealthCheck, settings

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports Triton

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it

settings.register_profile(
    "llpkit",
    deadline=None,  # the first call of a compiled kernel takes seconds
    derandomize="CI" in os.environ,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("llpkit")


collect_ignore = ["own_parts.py"]  # a plugin: importing it registers what is in it


def pytest_runtest_setup() -> None:
    torch.manual_seed(0)  # what a test draws without a generator of its own is the same every time


class Done(NamedTuple):
    """A call of the command line: its exit code and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def llpkit(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run the command line in this process; the exit code and what was printed."""
    from llpkit.cli import main

    def run(*arguments: object) -> Done:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Done(code, *capsys.readouterr())

    return run


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    from llpkit import augment, datasets, estimators, methods, networks, plugins

    monkeypatch.setattr(plugins, "_loaded", {})
    for registry in (
        methods.METHODS,
        networks.NETWORKS,
        datasets.DATASETS,
        augment.AUGMENTATIONS,
        estimators.ESTIMATORS,
    ):
        monkeypatch.setattr(registry, "_entries", dict(registry))


@pytest.fixture
def own_parts(registries: None) -> Path:  # noqa: ARG001
    """A plugin, to be loaded: what it registers is forgotten after the test."""
    return Path(__file__).with_name("own_parts.py")
