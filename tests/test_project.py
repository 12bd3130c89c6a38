"""The project as a whole: a light import, an API page without gaps, declared dependencies."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def packages_loaded(statements: str) -> set[str]:
    """Top-level packages that `statements` load beyond the standard library, torch and NumPy."""
    code = f"""
import sys, torch, numpy.random
before = set(sys.modules)
{statements}
new = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(*sorted(new - sys.stdlib_module_names - {{"torch", "numpy"}}))
"""
    return set(run(code).split())


def test_import_loads_torch_and_numpy_only():
    assert packages_loaded("import llpkit, llpkit.likelihood, llpkit.datasets") == {"llpkit"}


def test_the_import_check_can_fail():
    loaded = packages_loaded("import llpkit, matplotlib, numba")
    assert loaded >= {"llpkit", "matplotlib", "numba"}


def test_import_adds_little_to_that_of_torch():
    code = """
import time
start = time.process_time()
import torch, numpy
middle = time.process_time()
import llpkit, llpkit.likelihood
print((time.process_time() - middle) / (middle - start))
"""
    # A busy machine may spoil one measurement.
    assert any(float(run(code)) < 0.3 for _ in range(3))


PACKAGES = (
    "datasets distributed estimators experiments export likelihood methods networks statistics "
    "training"
)


@pytest.mark.parametrize("package", ["llpkit", *(f"llpkit.{name}" for name in PACKAGES.split())])
def test_api_page_names_every_public_name(package: str):
    page = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    public = importlib.import_module(package).__all__
    missing = {name for name in public if not re.search(rf"\b{re.escape(name)}\b", page)}
    assert missing <= {"__version__"}


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OTHERWISE_CALLED = {"PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml"}
OPTIONAL = {
    "IPython",
    "dask",
    "distributed",
    "lightgbm",
    "onnx",
    "onnxruntime",
    "openpyxl",
    "pandas",
    "ray",
    "starlette",
    "triton",
    "uvicorn",
} | {"xgboost"}


def plain_name(requirement: str) -> str:
    return re.split(r"[\s<>=!~;\[]", requirement)[0].lower().replace("_", "-")


def test_what_is_imported_is_declared():
    imported = set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.partition(".")[0])
    imported -= {*sys.stdlib_module_names, "llpkit", *OPTIONAL}
    names = {OTHERWISE_CALLED.get(name, name.replace("_", "-")).lower() for name in imported}
    assert names == {plain_name(each) for each in PROJECT["project"]["dependencies"]}


def test_every_dependency_has_a_lower_bound_that_is_tested_with():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.lower().replace("_", "-").split("==") for line in lines if "==" in line)
    for each in PROJECT["project"]["dependencies"]:
        bound = re.search(r">=([\d.]+)", each)
        assert bound, each
        low, used = ([int(p) for p in v.split(".")] for v in (bound[1], pins[plain_name(each)]))
        assert low <= used, each


def test_the_source_distribution_holds_what_the_readme_names():
    sdist = PROJECT["tool"]["hatch"]["build"]["targets"].get("sdist", {})
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named = {"Makefile", "constraints.txt"}  # by `make test`
    named |= {path.name for path in ROOT.iterdir() if re.search(rf"\b{path.name}\b", readme)}
    assert "exclude" not in sdist
    assert named <= {*sdist.get("include", named)}  # without a list, all files that git knows
