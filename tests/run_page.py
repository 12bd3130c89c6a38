"""Run the code blocks of a Markdown page, in order, in the current folder.

    mkdir /tmp/empty && cd /tmp/empty && python …/tests/run_page.py …/docs/how-to/tables.md

- `python` blocks share one namespace; `sh` blocks run in bash and stop at the first error.
- A block whose first line is a file name in a comment, `# mine.py`, is written to that file.
- A `text` block right after another block is what that block prints; `...` matches anything.
- A block right after `<!-- not run: REASON -->` is left alone.
"""

import contextlib
import doctest
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

FENCE = re.compile(r"^```(?P<language>\S*)[^\n]*\n(?P<code>.*?)^```$", re.M | re.S)
NOT_RUN = re.compile(r"<!-- not run: \S.* -->\n\Z")
FILE = re.compile(r"# ([\w-]+\.(?:py|yaml))\n")
SPHINX = "{"  # directives such as {toctree}
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    """A code block, the line of the page it starts at, and what it prints if the page says so."""

    language: str
    code: str
    line: int
    output: str | None = None


def blocks(page: str) -> Iterator[Block]:
    """The blocks of a page that are to be run."""
    fences = list(FENCE.finditer(page))
    for fence, after in zip_longest(fences, fences[1:]):
        language, before = fence["language"], page[: fence.start()]
        if language == "text" or language.startswith(SPHINX) or NOT_RUN.search(before):
            continue
        output = None
        if after and after["language"] == "text" and not page[fence.end() : after.start()].strip():
            output = after["code"]
        yield Block(language, fence["code"], before.count("\n") + 2, output)


def run(block: Block, names: dict[str, Any], title: str) -> str:
    """What a block prints."""
    file = FILE.match(block.code)
    if file:
        Path(file[1]).write_text(block.code, encoding="utf-8")
        return ""
    if block.language == "sh":
        command = ["bash", "-euo", "pipefail", "-c", block.code]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"exit status {done.returncode}; printed:\n{done.stdout}")
        return done.stdout
    if block.language == "python":
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            # Empty lines in front, so that a traceback has the line numbers of the page.
            exec(compile("\n" * (block.line - 1) + block.code, title, "exec"), names)
        return printed.getvalue()
    raise ValueError(f"do not know how to run a block of {block.language or 'no language'}")


def main(path: str) -> None:
    """Run all blocks of a page; an exception names the first that fails."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(Path(path).read_text(encoding="utf-8")):
        try:
            printed = run(block, names, path)
        except Exception as error:
            raise SystemExit(f"{path}, line {block.line}: {error!r}") from error
        if block.output is None:
            continue
        if not doctest.OutputChecker().check_output(block.output, printed, LOOSELY):
            raise SystemExit(
                f"{path}, line {block.line} prints\n{printed}\nbut the page has\n{block.output}"
            )


if __name__ == "__main__":
    sys.path[0] = str(Path.cwd())  # as in a session that was started here
    main(sys.argv[1])
