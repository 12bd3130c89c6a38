"""Training under the ``Trainer`` of ``pytorch_lightning``; see :mod:`~.lightning`."""

from typing import Any

from llpkit.integrations._lightning import module_class

__all__ = ["LLPModule"]  # noqa: F822


def __getattr__(name: str) -> Any:
    if name == "LLPModule":
        return module_class("pytorch_lightning", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
