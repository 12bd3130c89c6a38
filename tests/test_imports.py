"""No package imports another package's private modules or names; `lint-imports` checks the rest."""

import ast
from collections.abc import Iterator
from pathlib import Path

import llpkit

HOME = Path(llpkit.__file__).parent


def private_imports(source: str, package: list[str]) -> Iterator[str]:
    """Private modules and names, of other packages and of scikit-learn, that a module imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            path = name.split(".")
            # llpkit._registry and its like are for all packages.
            first = {"llpkit": 2, "sklearn": 1}.get(path[0], len(path))
            for i, part in enumerate(path[first:], first):
                private = part.startswith("_") and not part.startswith("__")
                if private and path[:i][: len(package)] != package[:i]:
                    yield name
                    break


def test_nothing_private_is_imported_from_another_package():
    found = {}
    for path in HOME.rglob("*.py"):
        package = list(path.relative_to(HOME.parent).parent.parts)
        wrong = list(private_imports(path.read_text(encoding="utf-8"), package))
        if wrong:
            found[str(path)] = wrong
    assert not found


def test_a_private_import_would_be_found():
    source = """
from llpkit.bags import _check
from llpkit.report._page import Page
import llpkit.report._page
from sklearn.utils import _safe_indexing
from sklearn.linear_model._base import LinearModel
from llpkit._registry import Registry
"""
    assert list(private_imports(source, ["llpkit", "cli"])) == [
        "llpkit.bags._check",
        "llpkit.report._page.Page",
        "llpkit.report._page",
        "sklearn.utils._safe_indexing",
        "sklearn.linear_model._base.LinearModel",
    ]
    assert not list(private_imports("from llpkit.report._page import _x", ["llpkit", "report"]))
