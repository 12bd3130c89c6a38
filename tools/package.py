"""Build the sdist and the wheel, install the wheel in an empty environment, and use it there.

    python tools/package.py            # or: make package
    python tools/package.py --out dist # keep what was built

pip installs the wheel with what it declares and nothing else, in the versions of constraints.txt,
so that a file missing from the wheel is noticed, and a package that is used but not declared.
"""

import argparse
import csv
import os
import random
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")

USE = """
import sys, torch, llpkit
from importlib.resources import files
assert llpkit.__file__.startswith(sys.prefix), llpkit.__file__
assert (files("llpkit.label") / "static" / "label.js").is_file()
x = torch.randn(60, 2)
bags = llpkit.random_bags((x[:, 0] > 0).long(), size=3, generator=0)
print(llpkit.fit("linear", bags, x, epochs=2, progress=False).predict(x[:5]).shape)
"""
COLUMNS = "--bag ward --count n_yes --held-out 0.2"
COMMANDS = (
    "--version",
    "demo --help",
    "label --help",
    "methods",
    "reproduce list",
    f"fit wards.csv {COLUMNS} --out automatic",
    f"fit wards.csv {COLUMNS} --network mlp --epochs 2 --out network",
    "evaluate automatic",
    "predict automatic wards.csv --out predicted.csv",
)


def build(out: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel built from it."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    [sdist], [wheel] = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


def missing_from_wheel(wheel: Path) -> set[str]:
    """Tracked files of the package that the wheel does not have."""
    command = ["git", "ls-files", "src/llpkit"]
    tracked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    return {name.removeprefix("src/") for name in tracked.stdout.splitlines()} - packed


def missing_from_sdist(sdist: Path) -> set[str]:
    """Files and folders that README.md links to and the sdist does not have."""
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    named = set(LINK.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    named |= {"pyproject.toml", "CHANGELOG.md", "CITATION.cff", "constraints.txt", "Makefile"}
    return {name for name in named if not any(f"{p}/".startswith(f"{name}/") for p in packed)}


def install(wheel: Path, place: Path) -> Path:
    """An environment with the wheel and its dependencies; returns its folder of programs."""
    venv.create(place, symlinks=True)
    programs = place / ("Scripts" if os.name == "nt" else "bin")
    command = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install"]
    pinned = ["--constraint", str(ROOT / "constraints.txt")]
    run([*command, "--quiet", *pinned, str(wheel)], place)
    run([*command[:-1], "check"], place)
    return programs


def write_table(path: Path) -> None:
    """A table with numbers, a category and gaps."""
    draw = random.Random(0)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["ward", "n_yes", "age", "town"])
        for ward in range(40):
            ages = [draw.randint(18, 90) for _ in range(5)]
            n_yes = sum(age > 54 for age in ages)
            table.writerows([ward, n_yes, age, draw.choice(["a", "b", ""])] for age in ages)


def use(programs: Path, folder: Path) -> None:
    """Train, evaluate and predict with what is installed, outside of the checkout."""
    write_table(folder / "wards.csv")
    run([str(programs / "python"), "-W", "ignore", "-c", USE], folder)
    for arguments in COMMANDS:
        run([str(programs / "llpkit"), *arguments.split()], folder)
    header, *rows = (folder / "predicted.csv").read_text(encoding="utf-8").splitlines()
    if not header.endswith("probability,label,posterior") or len(rows) != 200:
        raise SystemExit(f"llpkit predict wrote {len(rows)} rows with the columns {header}")


def run(command: Sequence[str], folder: Path) -> None:
    """Run a command in this folder, without the checkout on its path."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, look inside, install, use."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="keep the sdist and the wheel here")
    out = parser.parse_args(arguments).out
    with tempfile.TemporaryDirectory(prefix="llpkit-package-") as folder:
        sdist, wheel = build(out or Path(folder, "dist"))
        for built, missing in ((wheel, missing_from_wheel), (sdist, missing_from_sdist)):
            if names := missing(built):
                raise SystemExit(f"{built.name} lacks {', '.join(sorted(names))}")
        start = time.perf_counter()
        programs = install(wheel, Path(folder, "environment"))
        installed = time.perf_counter() - start
        use(programs, Path(folder))
        sizes = ", ".join(f"{b.name} ({b.stat().st_size / 1e6:.1f} MB)" for b in (sdist, wheel))
    print(f"built, installed in {installed:.0f} s and used: {sizes}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
