"""All data sets by name, and the function that loads them."""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from llpkit._registry import Registry, check_options
from llpkit.datasets.base import BagSize, DataSet
from llpkit.datasets.files import first_of
from llpkit.errors import LLPError
from llpkit.tables import CountColumns

_COMMON = ("data_dir", "bag_size", "seed")
_COUNT_OPTIONS = {field.name: field.default for field in fields(CountColumns)}
_Loader = TypeVar("_Loader", bound=Callable[..., DataSet])


@dataclass(frozen=True)
class Entry:
    """A data set that :func:`load` knows.

    Args:
        loader: Returns the :class:`DataSet`; its keyword arguments are the options.
        summary: One line on what it is.
        source: Where to get it; empty if there is nothing to get.
        save_as: What to put into the data folder; empty if nothing.
        files: The data set is present if the data folder has one of these.
        shows_people: Whether its images must not be copied to pages, for privacy.
    """

    loader: Callable[..., DataSet]
    summary: str
    source: str = ""
    save_as: str = ""
    files: tuple[str, ...] = ()
    shows_people: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """The options and their defaults; ``inspect.Parameter.empty`` if required."""
        parameters = inspect.signature(self.loader).parameters
        collected = (*_COMMON, "count_columns")
        own = {name: p.default for name, p in parameters.items() if name not in collected}
        return own | _COUNT_OPTIONS if "count_columns" in parameters else own

    @property
    def random_bags(self) -> bool:
        """Whether ``bag_size`` and ``seed`` make the bags; otherwise it comes with bags."""
        return "bag_size" in inspect.signature(self.loader).parameters

    def found(self, folder: Path) -> bool:
        """Whether the data set can be loaded, given this data folder."""
        return not self.files or first_of(folder, self.files) is not None


DATASETS: Registry[Entry] = Registry("data set")


def register(
    name: str,
    summary: str,
    *,
    source: str = "",
    save_as: str = "",
    files: tuple[str, ...] = (),
    shows_people: bool = False,
) -> Callable[[_Loader], _Loader]:
    """A decorator that adds a data set; it takes the arguments of :class:`Entry`.

    The loader takes keyword arguments. ``bag_size``, ``seed`` and ``data_dir`` are passed to it if
    it has them; ``count_columns`` gets the options of a table's counts, as
    :class:`~llpkit.tables.CountColumns`::

        @register("coins", summary="a coin, tossed")
        def coins(*, bag_size=None, seed=0, tosses=1000):
            labels = torch.randint(2, (tosses,))
            x = labels[:, None] + torch.randn(tosses, 1)
            return in_random_bags("coins", x, labels, ["tails", "heads"], bag_size, seed)
    """

    def add(loader: _Loader) -> _Loader:
        DATASETS.add(name, Entry(loader, summary, source, save_as, files, shows_people))
        return loader

    return add


def load(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    bag_size: BagSize | None = None,
    seed: int = 0,
    **options: Any,
) -> DataSet:
    """Load a data set by name.

    Args:
        name: A key of :data:`DATASETS`.
        data_dir: The folder with the data; by default the environment variable ``LLPKIT_DATA`` or
            the user's cache folder.
        bag_size: Instances per random bag: a number, or the ends of a range; 1 to 12 by default.
            Not for data sets that come with bags.
        seed: Seed for the random bags.
        options: The data set's own options; see :attr:`Entry.options`.

    >>> load("digits", bag_size=8, positive=[8]).bags[0].size
    8
    """
    entry = DATASETS[name]
    known = entry.options
    check_options(name, options, known)
    needed = [o for o, default in known.items() if default is inspect.Parameter.empty]
    if missing := [option for option in needed if option not in options]:
        raise LLPError(f"{name} needs the option {missing[0]!r}; it must have {', '.join(needed)}")
    if bag_size is not None and not entry.random_bags:
        raise LLPError(f"bag_size = {bag_size!r} but {name} comes with bags; leave it out")
    common: dict[str, Any] = {"data_dir": data_dir, "bag_size": bag_size, "seed": seed}
    parameters = inspect.signature(entry.loader).parameters
    if "count_columns" in parameters:
        given = {key: options.pop(key) for key in _COUNT_OPTIONS if key in options}
        common["count_columns"] = CountColumns(**given)
    return entry.loader(**{k: v for k, v in common.items() if k in parameters}, **options)
