"""Build the sdist and the wheel, install the wheel in an environment of its own, and use it there.

    python tools/package.py            # or: make package
    python tools/package.py --out dist # keep what was built

The environment has the dependencies of this one but not this checkout, so that a file missing from
the wheel is noticed. Nothing is downloaded.
"""

import argparse
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
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
COMMANDS = (
    ["--version"],
    ["demo", "--help"],
    ["label", "--help"],
    ["methods"],
    ["reproduce", "list"],
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
    """An environment with the wheel; returns its folder of programs."""
    venv.create(place, symlinks=True)
    programs = place / ("Scripts" if os.name == "nt" else "bin")
    command = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install"]
    subprocess.run([*command, "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    # A .pth file adds the folder to the path, but not the checkout that a .pth file in there names.
    own = sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)})
    Path(own, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return programs


def use(programs: Path, folder: Path) -> None:
    """Run the installed program and a short training outside of the checkout."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    calls = [[str(programs / "llpkit"), *given] for given in COMMANDS]
    for command in [*calls, [str(programs / "python"), "-W", "ignore", "-c", USE]]:
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
        use(install(wheel, Path(folder, "environment")), Path(folder))
        sizes = ", ".join(f"{b.name} ({b.stat().st_size / 1e6:.1f} MB)" for b in (sdist, wheel))
    print(f"built, installed and used: {sizes}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
