"""Write the tables of README.md and docs/ from the records in results/.

    python tools/tables.py            # or: make tables
    python tools/tables.py --check    # change nothing; exit with 1 if a table is not current

A table stands between `<!-- table: NAME -->` and `<!-- end -->`, where NAME is a function in one of
the `*_tables.py` beside this file.
"""

import argparse
import importlib
import re
from collections.abc import Sequence
from pathlib import Path

from table_kit import ROOT, TABLES, markdown

for _path in sorted(Path(__file__).parent.glob("*_tables.py")):
    importlib.import_module(_path.stem)  # its tables register themselves

MARKER = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(?=<!-- end -->)", re.S)
PAGES = ("README.md", *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").glob("*/*.md"))))


def current(text: str) -> str:
    """A page with its tables as the records have them."""

    def write(found: re.Match[str]) -> str:
        return found[1] + markdown(TABLES[found[2]]())

    return MARKER.sub(write, text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args(arguments)
    old = []
    for name in PAGES:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        if (new := current(text)) != text:
            old.append(name)
            if not options.check:
                path.write_text(new, encoding="utf-8")
    print("changed:" if old else "all tables are current", *old)
    return int(options.check and bool(old))


if __name__ == "__main__":
    raise SystemExit(main())
