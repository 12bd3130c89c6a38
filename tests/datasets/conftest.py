import io

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory, monkeypatch):
    """No test reads the user's data or writes to the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("LLPKIT_DATA", raising=False)


@pytest.fixture
def jpeg():
    """Bytes of a JPEG from a colour, or from an array (H, W, 3)."""

    def make(what, size=(72, 90)):
        image = (
            Image.fromarray(what) if isinstance(what, np.ndarray) else Image.new("RGB", size, what)
        )
        file = io.BytesIO()
        image.save(file, "JPEG", quality=100, subsampling=0)
        return file.getvalue()

    return make


@pytest.fixture
def write(tmp_path):
    """Write text, lines or bytes to a file in the test's folder; gives its path."""

    def make(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, list):
            content = "\n".join(content) + "\n"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make
