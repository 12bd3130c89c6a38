"""Memory of training on images in a Parquet file, against the size of the file.

    python benchmarks/streaming.py [--images 4000 32000] [--processes 1 2] [--out DIR]

Writes files of random JPEG images in bags of 8, trains one epoch on each with a window of 16 row
groups, and prints the peak of the memory of all processes of the run, minus that of a run on 512
images: what the data themselves take. With --resident the images are decoded into memory instead.
`make tables` then writes the table of docs/how-to/large-data.md.
"""

import argparse
import contextlib
import io
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import records
from PIL import Image

import llpkit
from llpkit.datasets import ParquetImages, write_images

SIDE = 64


def write(path: Path, number: int) -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, number)
    bag = np.arange(number) // 8
    count = np.bincount(bag, truth).astype(int)[bag]

    def images():
        for label in truth:
            noise = rng.integers(0, 200, (SIDE, SIDE, 3), dtype=np.uint8)
            file = io.BytesIO()
            Image.fromarray(noise + np.uint8(50 * label)).save(file, "JPEG")
            yield file.getvalue()

    columns = {"bag": bag.tolist(), "n": count.tolist()}
    write_images(path, images(), columns, bag="bag", rows=128)


def train(path: str, processes: int, resident: bool) -> None:
    known = pq.ParquetFile(path).read(columns=["bag", "n"])
    bag, count = known["bag"].to_numpy(), known["n"].to_numpy()
    bags = llpkit.Bags.from_groups(bag, dict(zip(bag.tolist(), count.tolist(), strict=True)))
    images = ParquetImages(path, "image", window=16)
    usual = {"epochs": 1, "measure": "off", "resident": resident, "workers": 1}
    llpkit.fit("mlp", bags, images, "mle", devices=processes, progress=False, **usual)


def _held(process: psutil.Process) -> int:
    """The proportional set size: a page that processes share counts once."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0


def peak_of(command: list[str], folder: Path) -> tuple[float, float]:
    """Peak of the memory that all processes of a command hold (PSS), in MiB, and its seconds."""
    log = (folder / "log").open("w")
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    peak, done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.5):
            with contextlib.suppress(psutil.Error):
                parent = psutil.Process(process.pid)
                peak = max(peak, sum(map(_held, [parent, *parent.children(recursive=True)])))

    thread = threading.Thread(target=watch)
    thread.start()
    code = process.wait()
    done.set()
    thread.join()
    if code:
        raise RuntimeError((folder / "log").read_text())
    return peak / 2**20, time.monotonic() - start


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, nargs="+", default=[4000, 32_000])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--resident", action="store_true", help="decode all images into memory")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for what is found")
    parser.add_argument("--train", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.train:
        train(options.train[0], int(options.train[1]), options.resident)
        return 0
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in options.processes:
            base = 0.0
            for images in [512, *options.images]:
                path = folder / f"{images}.parquet"
                if not path.exists():
                    write(path, images)
                more = ["--resident"] if options.resident else []
                command = [sys.executable, __file__, "--train", str(path), str(number), *more]
                peak, seconds = peak_of(command, folder)
                if images == 512:
                    base = peak
                    continue
                row = {
                    "processes": number,
                    "images": images,
                    "file, MiB": round(path.stat().st_size / 2**20),
                    "decoded, MiB": round(images * 3 * SIDE**2 / 2**20),
                    "peak above a small run, MiB": round(peak - base),
                    "seconds": round(seconds),
                    "resident": options.resident,
                }
                found.append(row | {"machine": records.machine()})
                print(row, flush=True)
    if options.out is not None:
        name = "streaming-resident" if options.resident else "streaming"
        records.write(options.out / f"{name}.parquet", found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
