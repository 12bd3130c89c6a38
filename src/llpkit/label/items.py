"""What is counted: images in a folder, rows of a table, or images in memory."""

import contextlib
import functools
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from llpkit.bags import Bags
from llpkit.bags.groups import group
from llpkit.datasets.images import BadImage, read_image
from llpkit.errors import LLPError
from llpkit.evidence import Evidence
from llpkit.progress import task
from llpkit.tables import FeatureEncoder, Table
from llpkit.tables.selection import choose_features

ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
LEARNED_SIDE = 32
"""Images are reduced to squares of this side for the model that learns as people count."""
_SHOWN_SIDE = 480
_CRISP = 64  # smaller images are shown enlarged, with square pixels, and are sent losslessly
_CACHED = 1024


class Encoded:
    """An image as it is sent to the browser: PNG if small, else JPEG."""

    def __init__(self, pixels: NDArray[np.uint8]) -> None:
        from PIL import Image

        image = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
        kind = "PNG" if max(image.size) <= _CRISP else "JPEG"
        image.thumbnail((_SHOWN_SIDE, _SHOWN_SIDE))
        stream = io.BytesIO()
        image.save(stream, kind, quality=85)
        self.media_type = f"image/{kind.lower()}"
        self.content = stream.getvalue()


class Items(ABC):
    """A collection of items to count, by number."""

    names: list[str]
    """The unique name of every item, the same in every session."""
    groups: list[str] | None = None
    """The folder, or the value of the bag column, of every item."""
    has_bags = False
    """Whether the groups are the user's own bags."""
    times: list[float] | None = None
    """When every item was made, in seconds."""
    notes: Sequence[str] = ()
    """Remarks for the user, such as items that were left out."""
    has_pictures = True
    path: Path | None = None
    """The user's table, if the items are its rows."""
    columns: Collection[str] = ()
    """The columns of the user's table except bag ids; no exported column takes their names."""

    def __len__(self) -> int:
        return len(self.names)

    def arrange(self, order: Sequence[int]) -> None:
        """Renumber the items: ``order[0]`` becomes the first."""
        self.names = [self.names[i] for i in order]
        if self.groups is not None:
            self.groups = [self.groups[i] for i in order]
        if self.times is not None:
            self.times = [self.times[i] for i in order]

    @abstractmethod
    def picture(self, item: int) -> Encoded | None:
        """The item as an image; ``None`` for rows of a table."""

    def caption(self, item: int) -> str:
        """The item in words: its name, or a row's values, one per line."""
        return self.names[item]

    @abstractmethod
    def inputs(self) -> Tensor:
        """What the model learns from: uint8 ``(R, C, H, W)`` or features ``(R, D)``."""

    @abstractmethod
    def export(self, path: Path, chosen: Sequence[int], columns: dict[str, list[object]]) -> None:
        """Write a table of some items with further columns."""

    def fit_options(self) -> list[str]:
        """The options with which ``llpkit fit`` reads the exported table."""
        return []


class ImageItems(Items):
    """The images in a folder and its subfolders, without links that lead out of it.

    Requests name files by number, so none can leave the folder. Unreadable images are listed in
    ``notes``.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(os.path.realpath(folder))
        names = sorted(_images(self.folder))
        if not names:
            raise LLPError(
                f"{folder} holds no images ({', '.join(ENDINGS)}); give a folder of photos"
            )
        small, bad = _reduced([self.folder / name for name in names])
        self.notes = [f"{names[i]} is left out: {reason}" for i, reason in sorted(bad.items())]
        kept = [i for i in range(len(names)) if i not in bad]
        if not kept:
            raise LLPError(f"no image in {folder} can be read; the first one: {bad[0]}")
        self._small = torch.from_numpy(small[kept])
        self.names = [names[i] for i in kept]
        self.groups = [os.path.dirname(name) or "." for name in self.names]
        self.times = [_taken(self.folder / name) for name in self.names]
        # Not a decorator on the method, whose cache would keep the object alive.
        self._read = functools.lru_cache(_CACHED)(self._encoded)

    def arrange(self, order: Sequence[int]) -> None:
        """Renumber the items and their images."""
        super().arrange(order)
        self._small = self._small[list(order)]
        self._read.cache_clear()

    def _encoded(self, item: int) -> Encoded:
        return Encoded(read_image(self.folder / self.names[item], self.names[item]))

    def picture(self, item: int) -> Encoded:
        """The image, read again from its file."""
        return self._read(item)

    def inputs(self) -> Tensor:
        """Small squares, uint8 ``(R, 3, 32, 32)``."""
        return self._small

    def export(self, path: Path, chosen: Sequence[int], columns: dict[str, list[object]]) -> None:
        """A table with a column of paths below the folder."""
        _write(path, {**columns, "image": [self.names[item] for item in chosen]})

    def fit_options(self) -> list[str]:
        """The column of paths, the folder they start from, and the size of the images."""
        size = f"{LEARNED_SIDE}x{LEARNED_SIDE}"
        return ["--image", "image", "--image-root", str(self.folder), "--image-size", size]


class ArrayItems(Items):
    """Images in memory, for demonstrations; their pixels are exported as features."""

    def __init__(self, images: Tensor) -> None:
        self._images = images
        self.names = [f"image {i + 1}" for i in range(len(images))]

    def arrange(self, order: Sequence[int]) -> None:
        """Renumber the items and their images."""
        super().arrange(order)
        self._images = self._images[list(order)]

    def picture(self, item: int) -> Encoded:
        """The image."""
        return Encoded(self._images[item].numpy())

    def inputs(self) -> Tensor:
        """The images."""
        return self._images

    def export(self, path: Path, chosen: Sequence[int], columns: dict[str, list[object]]) -> None:
        """A table with one column per pixel."""
        pixels = self._images[list(chosen)].flatten(1)
        _write(path, {**columns, **{f"pixel{j}": p.tolist() for j, p in enumerate(pixels.T)}})


class RowItems(Items):
    """The rows of a table, shown as names and values.

    Rows are identified by their number, so new ones may only be added at the end.

    Args:
        path: The table.
        bag: A column of bag ids, if there is one; it is not a feature.
        drop: Columns that are neither shown nor learned from nor exported.
    """

    has_pictures = False

    def __init__(self, path: Path | str, bag: str | None = None, drop: Sequence[str] = ()) -> None:
        self.table = Table.read(path)
        self.path = Path(path)
        self.names = [f"row {row + 1}" for row in range(len(self.table))]
        taken, bags = dict[str, str](), None
        if bag is not None:
            of_row, ids = self.table.groups(bag)
            self.groups = [ids[b] for b in of_row]
            self.has_bags = True
            taken[bag] = "the bag ids"
            grouped = group(self.groups)
            bags = Bags.of_groups(grouped, Evidence.unknown(len(grouped.sizes)))
        chosen, self.notes = choose_features(self.table, drop=drop, taken=taken, bags=bags)
        if not chosen:
            raise LLPError(f"{path} has no column to learn from")
        self._features = FeatureEncoder.fit(self.table, chosen).apply(self.table)
        self.columns = [name for name in self.table.names if name != bag]
        shown = (name for name in self.columns if name not in drop)
        self._text = {name: self.table.text(name).to_pylist() for name in shown}

    def picture(self, item: int) -> None:
        """None: rows have no picture."""

    def caption(self, item: int) -> str:
        """The row's values, one per line."""
        return "\n".join(f"{name}: {text[item] or '–'}" for name, text in self._text.items())

    def inputs(self) -> Tensor:
        """Encoded features ``(R, D)``."""
        return self._features

    def export(self, path: Path, chosen: Sequence[int], columns: dict[str, list[object]]) -> None:
        """The counted rows with the new columns."""
        _write(path, {**columns, **{n: [t[i] for i in chosen] for n, t in self._text.items()}})


def _images(folder: Path) -> Iterator[str]:
    """Names of the images below a folder; hidden files and links that leave it are skipped."""
    for home, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            path = Path(home, name)
            inside = Path(os.path.realpath(path)).is_relative_to(folder)
            if name.lower().endswith(ENDINGS) and not name.startswith(".") and inside:
                yield path.relative_to(folder).as_posix()


def _taken(path: Path) -> float:
    """When a photo was taken, according to its camera or else the time of the file."""
    from PIL import ExifTags, Image

    with contextlib.suppress(OSError, ValueError, SyntaxError), Image.open(path) as image:
        fields = image.getexif()
        text = fields.get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.DateTimeOriginal)
        text = text or fields.get(ExifTags.Base.DateTime)
        if text:
            return datetime.strptime(str(text).strip("\0 "), "%Y:%m:%d %H:%M:%S").timestamp()
    return path.stat().st_mtime


def _reduced(paths: Sequence[Path]) -> tuple[NDArray[np.uint8], dict[int, str]]:
    """Small copies of images, uint8 ``(R, 3, S, S)``, and why the others cannot be read."""
    small = np.zeros((len(paths), 3, LEARNED_SIDE, LEARNED_SIDE), np.uint8)
    bad: dict[int, str] = {}

    def load(i: int) -> None:
        try:
            small[i] = read_image(paths[i], str(paths[i]), size=(LEARNED_SIDE, LEARNED_SIDE))
        except (BadImage, LLPError) as error:
            bad[i] = str(error)

    with ThreadPoolExecutor(os.cpu_count()) as pool, task("images", len(paths)) as reading:
        for _ in pool.map(load, range(len(paths))):
            reading.step()
    return small, bad


def _write(path: Path, columns: dict[str, list[object]]) -> None:
    import pyarrow as pa

    from llpkit.files import atomic
    from llpkit.tables.csv import write_csv

    with atomic(path) as temporary:
        write_csv(pa.table({name: pa.array(values) for name, values in columns.items()}), temporary)
