"""A folder of photos, and a real browser."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

STARTED = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]+)")


def paint(path: Path, bright: bool, draw: np.random.Generator) -> None:
    pixels = draw.integers(0, 60, (20, 20, 3), dtype=np.uint8)
    if bright:
        pixels[4:16, 4:16] += 150
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """40 folders of photos, and which of them have a bright square."""
    folder = tmp_path_factory.mktemp("photos")
    draw = np.random.default_rng(0)
    truth = {}
    for home in range(40):
        for i in range(int(draw.integers(3, 7))):
            name = f"shelf{home:02d}/photo{i}.png"
            truth[name] = int(draw.random() < (home % 5) / 4)
            paint(folder / name, bool(truth[name]), draw)
    return folder, truth


class Server:
    """``llpkit label`` as a process of its own."""

    def __init__(self, arguments: list[str], cwd: Path) -> None:
        self.arguments, self.cwd = arguments, cwd
        self.start()

    def start(self) -> None:
        code = "import sys; from llpkit.cli import main; sys.exit(main())"
        command = [sys.executable, "-c", code, "label", *self.arguments, "--no-browser"]
        environment = os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
        self.log = self.cwd / f"log-{time.monotonic_ns()}"
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                command, cwd=self.cwd, stdout=out, stderr=subprocess.STDOUT, env=environment
            )
        while (found := STARTED.search(self.log.read_text())) is None:
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)
        self.port, self.token = int(found[1]), found[2]
        self.address = found[0]

    def stop(self, number: int = signal.SIGINT) -> str:
        """End the process and return what it printed."""
        self.process.send_signal(number)
        self.process.wait(60)
        return self.log.read_text()


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """A function that starts a server in a folder of its own."""
    running: list[Server] = []

    def start(*arguments: object) -> Server:
        cwd = tmp_path_factory.mktemp("server")
        running.append(Server([str(each) for each in arguments], cwd))
        return running[-1]

    yield start
    for server in running:
        if server.process.poll() is None:
            server.stop(signal.SIGKILL)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[object]:
    """Chromium under the control of the test."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        if os.environ.get("LLPKIT_REQUIRE_BROWSER"):
            pytest.fail("chromium and chromedriver are needed")
        pytest.skip("needs chromium and chromedriver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (
        "headless",
        "no-sandbox",
        "disable-gpu",
        "disable-quic",
        "no-first-run",
        "disable-background-networking",
        "disable-component-update",
        "disable-sync",
        "hide-scrollbars",
        f"user-data-dir={tmp_path / 'browser'}",
        "window-size=1280,1000",
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driven = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield driven
    driven.quit()
