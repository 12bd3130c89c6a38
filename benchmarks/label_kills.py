"""Kill `llpkit label` while people answer, again and again: no acknowledged answer may be missing.

The server is the real one, in a process of its own, and is started again after every kill on the
project that the last one left. Several clients answer as fast as they can, until the server is
killed (SIGKILL) at a random time. Then every answer that was acknowledged with status 200 must be
in the project's file.

    python benchmarks/label_kills.py --kills 200
"""

import argparse
import contextlib
import http.client
import json
import os
import random
import re
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]+)")
FOLDERS, PHOTOS = 20, 4


def make_photos(folder: Path) -> None:
    from PIL import Image

    draw = np.random.default_rng(0)
    for home in range(FOLDERS):
        (folder / f"shelf{home:02d}").mkdir(parents=True)
        for i in range(PHOTOS):
            pixels = draw.integers(0, 256, (24, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"shelf{home:02d}" / f"{i}.png")


def warm_up() -> None:
    """Import what every server needs, so that a fork of this process starts at once."""
    import importlib

    os.environ["OMP_NUM_THREADS"] = "1"
    for name in ("cli", "cli.label", "label.opening", "label.server", "datasets.images"):
        importlib.import_module(f"llpkit.{name}")
    importlib.import_module("uvicorn.protocols.http.auto")
    importlib.import_module("uvicorn.lifespan.on")
    importlib.import_module("rich.progress")


class Server:
    """`llpkit label` in a process of its own, which shares its memory with nobody."""

    def __init__(self, home: Path) -> None:
        self.log = home / "log"
        self.log.write_bytes(b"")
        self.pid = os.fork()
        if self.pid == 0:
            code = 70
            with contextlib.suppress(BaseException):
                os.setsid()  # with its training process, a group that can be ended together
                os.chdir(home)
                out = os.open(self.log, os.O_WRONLY)
                os.dup2(out, 1)
                os.dup2(out, 2)
                from llpkit.cli import main

                code = main(["label", "photos", "--project", "counted", "--no-browser"])
            os._exit(code)
        while (found := ADDRESS.search(self.log.read_text())) is None:
            assert os.waitpid(self.pid, os.WNOHANG)[0] == 0, self.log.read_text()
            time.sleep(0.005)
        self.port, self.token = int(found[1]), found[2]

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def end_training(self) -> None:
        """End what trains in the background now; it would end by itself a second later."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


class Clients:
    """People who answer until the server is gone, and remember what was acknowledged."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.acknowledged: dict[float, tuple[int, str, int]] = {}
        self._serial = 0
        self._lock = threading.Lock()

    def answer(self, server: Server) -> list[threading.Thread]:
        threads = [
            threading.Thread(target=self._work, args=(server, f"person {i}"))
            for i in range(self.number)
        ]
        for thread in threads:
            thread.start()
        return threads

    def _work(self, server: Server, person: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        headers = {
            "Content-Type": "application/json",
            "Cookie": f"llpkit-token-{server.port}={server.token}",
        }
        draw = random.Random(f"{person} {server.pid}")
        with contextlib.suppress(OSError, http.client.HTTPException):
            while True:
                with self._lock:
                    self._serial += 1
                    seconds = self._serial / 128  # a number of its own for every answer
                bag, count = draw.randint(1, FOLDERS), draw.randint(0, PHOTOS)
                body = {"person": person, "bag": bag, "low": count, "high": count}
                sent = json.dumps({**body, "seconds": seconds})
                connection.request("POST", "/api/answer", sent, headers)
                response = connection.getresponse()
                response.read()
                assert response.status == 200, response.status
                with self._lock:
                    self.acknowledged[seconds] = (bag, person, count)


def missing(home: Path, acknowledged: dict[float, tuple[int, str, int]]) -> int:
    """How many acknowledged answers are not in the project's file."""
    base = sqlite3.connect(home / "counted" / "counts.sqlite")
    try:
        assert base.execute("pragma integrity_check").fetchone() == ("ok",)
        found = base.execute("select seconds, bag, person, low from answer").fetchall()
    finally:
        base.close()
    stored = {seconds: tuple(rest) for seconds, *rest in found}
    return sum(stored.get(key) != value for key, value in acknowledged.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="the latest time of a kill")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warm_up()
    draw, clients, lost, start = random.Random(given.seed), Clients(given.clients), 0, time.time()
    with tempfile.TemporaryDirectory(prefix="llpkit-label-kills-") as folder:
        home = Path(folder)
        make_photos(home / "photos")
        for _ in range(given.kills):
            before = len(clients.acknowledged)
            server = Server(home)
            try:
                threads = clients.answer(server)
                # A kill before the first answer would show nothing.
                while len(clients.acknowledged) == before:
                    time.sleep(0.001)
                time.sleep(draw.uniform(0, given.seconds))
                server.kill()
                for thread in threads:
                    thread.join()
            finally:
                server.end_training()
            lost += missing(home, clients.acknowledged)
    print(
        f"{given.kills} kills, {len(clients.acknowledged)} acknowledged answers, {lost} lost "
        f"({time.time() - start:.0f} s)"
    )
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
