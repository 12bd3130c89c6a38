"""No package imports another package's private modules or names; `lint-imports` checks the rest."""

import ast
from collections.abc import Iterator
from pathlib import Path

import llpkit

HOME = Path(llpkit.__file__).parent


def private_imports(source: str, package: list[str]) -> Iterator[str]:
    """Private modules and names of other packages that a module in ``package`` imports."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("llpkit."):
            continue
        path = node.module.split(".")
        for i, part in enumerate(path[2:], 2):  # llpkit._registry and its like are for all
            if part.startswith("_") and path[:i] != package[:i]:
                yield node.module
        if path[: len(package)] != package:
            yield from (f"{node.module}.{a.name}" for a in node.names if a.name.startswith("_"))


def test_nothing_private_is_imported_from_another_package():
    found = {}
    for path in HOME.rglob("*.py"):
        package = list(path.relative_to(HOME.parent).parent.parts)
        wrong = list(private_imports(path.read_text(encoding="utf-8"), package))
        if wrong:
            found[str(path)] = wrong
    assert not found


def test_a_private_import_would_be_found():
    source = "from llpkit.bags import _check\nfrom llpkit.report._page import Page\n"
    assert list(private_imports(source, ["llpkit", "cli"])) == [
        "llpkit.bags._check",
        "llpkit.report._page",
    ]
    assert not list(private_imports("from llpkit.report._page import _x", ["llpkit", "report"]))
