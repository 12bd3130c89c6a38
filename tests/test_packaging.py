"""What others install and cite: the recipe of conda, the citation, the version."""

import datetime
import re
import runpy
import tarfile
import tomllib
import zipfile
from pathlib import Path

import yaml
from packaging.requirements import Requirement

import llpkit

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONDA = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
"""Packages that have another name on conda-forge."""


def test_the_conda_recipe_has_the_dependencies_of_the_package():
    text = (ROOT / "conda-recipe" / "meta.yaml").read_text(encoding="utf-8")
    assert re.search(r'set version = "(.*?)"', text)[1] == llpkit.__version__
    plain = re.sub(r"{%.*?%}\n", "", re.sub(r"{{.*?}}", "x", text))
    recipe = yaml.safe_load(plain)
    run = {Requirement(line).name: Requirement(line) for line in recipe["requirements"]["run"]}
    assert str(run.pop("python").specifier) == PROJECT["requires-python"]
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["label"]]
    needed = {(CONDA.get(r.name, r.name.lower())): r for r in map(Requirement, wanted)}
    assert run.keys() == needed.keys()
    assert all(run[name].specifier == needed[name].specifier for name in run)


def test_the_citation_is_complete():
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cff["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= cff.keys()  # what the format demands
    assert cff["version"] == llpkit.__version__
    assert cff["license"] == PROJECT["license"]
    assert isinstance(cff["date-released"], datetime.date)
    paper = cff["preferred-citation"]
    assert [each["family-names"] for each in paper["authors"]] == ["Baručić", "Kybic"]


def test_the_changelog_begins_with_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[?(\d[\w.]*)\]?(?: - (\d{4}-\d\d-\d\d))?", text, re.M)
    assert released[0][0] == llpkit.__version__
    assert released[0][1]


def test_a_package_without_its_files_is_noticed(tmp_path):
    package = runpy.run_path(str(ROOT / "tools" / "package.py"))
    wheel, sdist = tmp_path / "empty.whl", tmp_path / "empty.tar.gz"
    zipfile.ZipFile(wheel, "w").close()
    tarfile.open(sdist, "w:gz").close()
    assert "LICENSE" in package["missing_from_sdist"](sdist)
    if (ROOT / ".git").exists():
        assert "llpkit/label/static/label.js" in package["missing_from_wheel"](wheel)
