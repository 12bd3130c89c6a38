"""No package uses another package's private modules or names; `lint-imports` checks the rest."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import llpkit

HOME = Path(llpkit.__file__).parent


def private_names(source: str, package: list[str]) -> Iterator[str]:
    """Private modules and names, of other packages and of scikit-learn, that a module uses."""
    for name in dict.fromkeys(_names(ast.parse(source))):
        path = name.split(".")
        # llpkit._registry and its like are for all packages.
        first = {"llpkit": 2, "sklearn": 1}.get(path[0], len(path))
        for i, part in enumerate(path[first:], first):
            private = part.startswith("_") and not part.startswith("__")
            if private and path[:i][: len(package)] != package[:i]:
                yield name
                break


def _names(tree: ast.AST) -> Iterator[str]:
    """The full names of everything imported, and of attributes of our modules and classes."""
    bound = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
                top = alias.name.split(".")[0]
                bound[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield f"{node.module}.{alias.name}"
                bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        chain = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        first, _, rest = chain.partition(".")
        if bound.get(first, "").split(".")[0] == "llpkit" and re.fullmatch(r"[\w.]+", rest):
            yield f"{bound[first]}.{rest}"


def test_nothing_private_of_another_package_is_used():
    found = {}
    for path in HOME.rglob("*.py"):
        package = list(path.relative_to(HOME.parent).parent.parts)
        wrong = list(private_names(path.read_text(encoding="utf-8"), package))
        if wrong:
            found[str(path)] = wrong
    assert not found


def test_a_private_name_would_be_found():
    source = """
from llpkit.bags import _check
from llpkit.report._page import Page
import llpkit.report._page
from sklearn.utils import _safe_indexing
from sklearn.linear_model._base import LinearModel
from llpkit._registry import Registry
import llpkit
import llpkit.files.locks as locks
from llpkit import _validation, bags
bags.groups._codes(1)
bags.Bags._check
locks._holder
llpkit.report.page._hidden
_validation.whole, bags.groups.codes, Registry.__name__
"""
    assert list(private_names(source, ["llpkit", "cli"])) == [
        "llpkit.bags._check",
        "llpkit.report._page.Page",
        "llpkit.report._page",
        "sklearn.utils._safe_indexing",
        "sklearn.linear_model._base.LinearModel",
        "llpkit.bags.Bags._check",
        "llpkit.files.locks._holder",
        "llpkit.report.page._hidden",
        "llpkit.bags.groups._codes",
    ]
    assert not list(private_names("from llpkit.report._page import _x", ["llpkit", "report"]))
