"""The simple blocks of a page. Tables and walls of bags have their own modules.

Every block has a ``kind``, the name of the macro in ``templates/page.html`` that renders it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from llpkit.report.figure import Figure


class Block(Protocol):
    """Anything that a page can show."""

    @property
    def kind(self) -> str:
        """The macro that renders it."""
        ...


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of text."""

    text: str
    kind: ClassVar[str] = "paragraph"


@dataclass(frozen=True)
class Facts:
    """Names and values."""

    pairs: Mapping[str, object]
    kind: ClassVar[str] = "facts"


@dataclass(frozen=True)
class Notes:
    """A list of remarks."""

    items: Sequence[str]
    kind: ClassVar[str] = "notes"


@dataclass(frozen=True)
class Details:
    """Blocks behind a line that the reader opens with a click; needs no script."""

    summary: str
    blocks: Sequence[Block]
    kind: ClassVar[str] = "details"


@dataclass(frozen=True)
class Figures:
    """Figures side by side if there is room; ``narrow`` ones need less of it."""

    figures: Sequence[Figure]
    narrow: bool = False
    kind: ClassVar[str] = "figures"
