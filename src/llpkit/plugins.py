"""Plugins for the command line: Python files that register parts of their own.

They can register methods, networks, augmentations, data sets and estimators.
"""

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from llpkit.errors import LLPError

_loaded: dict[Path | str, ModuleType] = {}


def load(sources: Iterable[str]) -> list[str]:
    """Import files or modules.

    Args:
        sources: Paths that end in ``.py``, or names of modules.

    Returns:
        The same with absolute paths, for workers on this machine to load as well.
    """
    return [_load(source) for source in sources]


def loaded() -> list[str]:
    """The plugins that this process has loaded."""
    return [str(source) for source in _loaded]


def _load(source: str) -> str:
    try:
        if not source.endswith(".py"):
            _make_importable(Path.cwd())
            _loaded[source] = importlib.import_module(source)
            return source
        path = Path(source).resolve()
        if not path.is_file():
            raise LLPError(
                f"there is no file {source}; give the path of a plugin, or the name of a module"
            )
        if path not in _loaded:
            _loaded[path] = _imported(path)
        return str(path)
    except LLPError:
        raise
    except Exception as error:  # a user's file may raise anything
        place = ""
        if not isinstance(error, SyntaxError):  # which names its line
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f" ({Path(frame.filename).name}, line {frame.lineno})"
        raise LLPError(
            f"plugin {source} cannot be loaded: {type(error).__name__}: {error}{place}"
        ) from error


def _make_importable(folder: Path) -> None:
    """Make modules next to a plugin importable, after all installed ones."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _imported(path: Path) -> ModuleType:
    # A module name that cannot clash with a library, whatever the file is called.
    name = f"llpkit_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    _make_importable(path.parent)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Before it runs: dataclasses and pickle look their module up there.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
