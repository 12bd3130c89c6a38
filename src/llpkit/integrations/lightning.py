"""Training under the ``Trainer`` of ``lightning``.

:class:`LLPModule` is a ``lightning.pytorch.LightningModule``. If you import ``pytorch_lightning``,
use the one in :mod:`llpkit.integrations.pytorch_lightning`: a ``Trainer`` accepts only modules of
its own package.
"""

from typing import Any

from llpkit.integrations._lightning import module_class

__all__ = ["LLPModule"]  # noqa: F822


def __getattr__(name: str) -> Any:
    if name == "LLPModule":
        return module_class("lightning.pytorch", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
