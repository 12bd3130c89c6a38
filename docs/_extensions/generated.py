"""Directives `commands` and `settings`: what the program takes, read from the program itself."""

import re
from collections import defaultdict
from collections.abc import Iterator
from textwrap import dedent
from typing import Any

import typer
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from llpkit.cli import app as program
from llpkit.cli.options import OPTIONS


def prose(text: str) -> str:
    """Help with its options as code; otherwise two dashes become one."""
    return re.sub(r"(?<![\w-])--[a-z-]+", r"`\g<0>`", text)


def cell(text: str) -> str:
    """Text that neither ends a cell of a Markdown table nor begins markup."""
    return prose(re.sub(r"([|<*_`])", r"\\\1", " ".join(text.split())))


def code(text: str) -> str:
    """Code in a cell of a Markdown table."""
    return f"`{text}`".replace("|", "\\|")


def markdown(help_text: str) -> Iterator[str]:
    """A command's help: its indented lines are examples."""
    text = re.sub(r"\[/?bold\]", "**", help_text).replace("\b", "")
    for block in re.split(r"\n(?: *\n)+", text):
        example = all(line.startswith("  ") for line in block.splitlines())
        yield f"```none\n{dedent(block)}\n```" if example else prose(block)
        yield ""


def parameters(command: Any) -> Iterator[str]:
    """The arguments and options of a command, one table per panel of its help."""
    panels = defaultdict(list)
    for each in command.params:
        if each.param_type_name == "argument":
            panel, name = "Arguments", code((each.metavar or each.name).strip("[]"))
        else:
            panel = each.rich_help_panel or "Options"
            name = ", ".join(code(option) for option in (*each.opts, *each.secondary_opts))
            name += f" {code(each.metavar)}" if each.metavar else ""
        shown = each.show_default and not isinstance(each.default, bool | None)
        default = f" Default: `{each.default}`." if shown else ""
        panels[panel].append(f"| {name} | {cell(each.help or '')}{default} |")
    for panel, rows in panels.items():
        yield from (f"| {panel} | |", "|---|---|", *rows, "")


def commands() -> Iterator[str]:
    """All commands, a section each."""
    root = typer.main.get_command(program)
    yield from parameters(root)
    for name, command in root.commands.items():
        yield from (f"## `llpkit {name}`", "")
        yield from markdown(command.help)
        yield from parameters(command)


def settings() -> Iterator[str]:
    """All keys of a configuration, one table per panel of the options."""
    panels = defaultdict(list)
    for option in OPTIONS:
        help_text = cell(option.setting.help)
        panels[option.panel].append(f"| {code(option.path)} | {code(option.name)} | {help_text} |")
    for panel, rows in panels.items():
        yield from (f"### {panel}", "", "| key | option | |", "|---|---|---|", *rows, "")


def directive(write: Any) -> type[SphinxDirective]:
    """A directive that is replaced by the Markdown that `write` yields."""

    class Generated(SphinxDirective):
        def run(self) -> list[nodes.Node]:
            self.env.note_reread()  # the program may have changed
            holder = nodes.section()
            lines = StringList("\n".join(write()).split("\n"), source="the program")
            self.state.nested_parse(lines, 0, holder, match_titles=True)
            return holder.children

    return Generated


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("commands", directive(commands))
    app.add_directive("settings", directive(settings))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
