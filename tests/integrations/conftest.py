import sys

import pytest


@pytest.fixture
def trackers_here(monkeypatch, tmp_path):
    """MLflow and W&B write into the folder of the test, and nowhere else."""
    for name in ("DIR", "CACHE_DIR", "CONFIG_DIR", "DATA_DIR"):
        monkeypatch.setenv(f"WANDB_{name}", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    yield
    if "wandb" in sys.modules:  # it reads its settings once per process
        sys.modules["wandb"].teardown()
