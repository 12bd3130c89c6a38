"""What determines the result of a training run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from llpkit.errors import LLPError


@dataclass(frozen=True)
class Recipe:
    """A stand-in until the real one arrives."""

    method: str = "mle"
    method_options: dict[str, Any] = field(default_factory=dict)
    network: str | None = None
    epochs: int = 30
    batch_size: int = 128
    optimizer: str = "adam"
    lr: float | None = None
    weight_decay: float = 0.0
    schedule: str = "tail"
    augment: str | None = None
    strong_augment: str | None = None
    held_out: float | None = None
    patience: int | None = None
    precision: str = "auto"
    seed: int = 0
    measure: str = "auto"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def replace(self, **changes: Any) -> "Recipe":
        return replace(self, **changes)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], place: str = "") -> "Recipe":
        known = {item.name for item in fields(cls)}
        for name in values:
            if name not in known:
                raise LLPError(f"{place}{name} is no setting")
        return cls(**values)


from llpkit.methods import register  # noqa: E402
from llpkit.methods.mle import MLE  # noqa: E402


@register
class MLEPass(MLE):
    """A stand-in."""

    key = "mle-pass"

    def __init__(self, step: float = 1.0) -> None:
        super().__init__("pass", step)
