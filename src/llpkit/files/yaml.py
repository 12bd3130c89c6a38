"""Plain YAML from untrusted files: limits on size and depth, no references, every key once."""

import re
from pathlib import Path
from typing import Any

from llpkit.errors import LLPError
from llpkit.files.limits import check_limit, check_regular

_DEPTH = 20
"""Maximum nesting depth of a configuration; settings need three."""
_FLOAT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")
"""Numbers such as 1e-3, which PyYAML takes for text."""


def read_yaml(path: Path, what: str) -> Any:
    """The content of a file of plain YAML; ``what`` names the kind of file in messages."""
    import yaml  # type: ignore[import-untyped]

    try:
        check_regular(path)
        check_limit("LLPKIT_MAX_CONFIG", path.stat().st_size, f"{path} has", "bytes")
        return yaml.load(path.read_bytes(), _plain_loader(path))
    except LLPError:
        raise
    except FileNotFoundError as error:
        raise LLPError(f"{path} does not exist; check the path of the {what}") from error
    except OSError as error:
        raise LLPError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise LLPError(f"{path} is not YAML: {' '.join(str(error).split())}") from error


def _plain_loader(where: object) -> Any:
    """A loader for plain YAML: no references, few levels, every key once.

    ``where`` names the source in messages.
    """
    import yaml

    def refuse(node: Any, wrong: str) -> None:
        raise LLPError(f"{where}: line {node.start_mark.line + 1} {wrong}")

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()
            if isinstance(event, yaml.AliasEvent):  # a few lines of them can expand to billions
                refuse(
                    event,
                    f"refers to *{event.anchor}; references are not read in a configuration; "
                    "write the value itself",
                )
            self.depth += 1
            if self.depth > _DEPTH:  # the scanner's time grows with the square of the depth
                refuse(event, f"is nested more than {_DEPTH} levels deep; settings need a few")
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            content = super().construct_mapping(node, deep=deep)
            # SafeLoader silently keeps the last of repeated keys.
            if len(content) < len(node.value):
                seen = set()
                for part, _ in node.value:
                    key = self.construct_object(part, deep=True)
                    if key in seen:
                        refuse(part, f"gives {key!r} a second time; keep one of the two")
                    seen.add(key)
            return content

    return _with_floats(Loader)


def yaml_text(values: Any, **layout: Any) -> str:
    """Values as YAML that :func:`read_yaml` reads back."""
    import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        pass

    return str(yaml.dump(values, Dumper=_with_floats(Dumper), sort_keys=False, **layout))


def _with_floats(kind: Any) -> Any:
    """The loader or dumper, with all floats."""
    kind.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
    return kind
