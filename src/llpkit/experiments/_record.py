"""The form of a record: which values it has and of what kind, checked in one place.

Records come from other machines and other hands. Whoever draws them may rely on this form.
"""

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from llpkit import _bounds

Count = Annotated[int, Field(ge=0, le=2**53)]
Positive = Annotated[int, Field(ge=1, le=2**53)]
Number = Annotated[float, Field(ge=-1e100, le=1e100)]  # which NaN is not, nor infinity
Seconds = Annotated[float, Field(ge=0, le=1e100)]
Share = Annotated[float, Field(ge=0, le=1)]
Inner = Annotated[float, Field(gt=0, lt=1)]
Scalar = str | bool | int | Number | None
Option = Scalar | list[Scalar]
Measures = dict[str, Number | None]


class _Part(BaseModel):
    """Numbers are numbers here and texts texts; what is not known is left to later versions."""

    model_config = ConfigDict(strict=True, extra="allow", protected_namespaces=())


class _Run(_Part):
    experiment: Literal["grid", "epoch-time", "convergence", "bag-size"]
    dataset: str
    method: str
    fold: Count
    folds: Annotated[int, Field(ge=2, le=2**53)]
    seed: Annotated[int, Field(ge=0, le=_bounds.SEED)]
    bag_size: Positive | Annotated[list[Positive], Field(min_length=2, max_length=2)] | None
    data_options: dict[str, Option]
    flat: bool
    network: str
    epochs: Annotated[int, Field(ge=1, le=_bounds.EPOCHS)]
    batch_size: Positive
    lr: Annotated[float, Field(gt=0, le=1e100)]
    weight_decay: Seconds
    schedule: str
    augment: str
    precision: str
    held_out: Inner | None
    method_options: dict[str, Option]
    compiled: bool = False

    @model_validator(mode="after")
    def _agrees(self) -> "_Run":
        _need(isinstance(self.data_options.get("size", ""), str), "data_options.size is no text")
        single = self.experiment != "bag-size" or isinstance(self.bag_size, int)
        _need(single, "bag_size is no number")
        return self


class _Data(_Part):
    sha256: str
    class_names: Annotated[list[str], Field(min_length=2, max_length=2)]
    bags: tuple[Positive, Positive] = Field(strict=False)
    instances: tuple[Positive, Positive] = Field(strict=False)


class _Calibration(_Part):
    mean_predicted: list[Share]
    fraction_positive: list[Share]
    number: list[Positive]

    @model_validator(mode="after")
    def _agrees(self) -> "_Calibration":
        lengths = {len(self.mean_predicted), len(self.fraction_positive), len(self.number)}
        _need(len(lengths) == 1, "its columns differ in length")
        return self


class _Example(_Part):
    bag: str
    count: Count
    size: Positive
    rows: list[Count]
    probability: list[Share]
    truth: list[Annotated[int, Field(ge=0, le=1)]]

    @model_validator(mode="after")
    def _agrees(self) -> "_Example":
        lengths = {len(self.rows), len(self.probability), len(self.truth)}
        _need(len(lengths) == 1 and len(self.rows) <= self.size, "its columns differ in length")
        return self


class _Times(_Part):
    total: Seconds
    training: Seconds


class _Hardware(_Part):
    processor: str
    threads: Annotated[int, Field(ge=1, le=_bounds.THREADS)]
    gpu: str = ""


class _Begun(_Part):
    """What the record of a run has however the run ended."""

    id: str
    run: _Run
    started: str
    command: str
    jobs: Positive
    quick: bool
    compiled: bool
    code: str
    chosen_by: str


class _Failed(_Begun):
    error: str
    diverged: bool = False
    traceback: str = ""


class _Done(_Begun):
    data: _Data
    own_network: bool = False
    device: str
    final: Measures
    selected: Measures | None
    calibration: _Calibration | None = None
    example: _Example | None = None
    history: dict[str, list[Number | None]]
    seconds: _Times
    versions: dict[str, str]
    hardware: _Hardware

    @model_validator(mode="after")
    def _agrees(self) -> "_Done":
        blind = self.run.experiment == "grid"
        _need(self.run.fold < self.run.folds, "run.fold is not one of the folds")
        _need(blind or bool(self.calibration and self.example), "it has no calibration or example")
        self._check_ends(blind)
        self._check_history(blind)
        bags, share = self.data.bags[0], self.run.held_out or 0.0
        _need(round((1 - share) * bags) > 0, "held_out leaves no bags to train on")
        return self

    def _check_ends(self, blind: bool) -> None:
        for name, row in (("final", self.final), ("selected", self.selected)):
            if row is None:
                continue
            _need(_whole(row.get("epoch")), f"{name}.epoch is no number from 1")
            if blind:
                _need(
                    "held_out_log_likelihood" in row, f"{name}.held_out_log_likelihood is missing"
                )
            else:
                accuracy = row.get("accuracy")
                right = accuracy is not None and 0 <= accuracy <= 1
                _need(right, f"{name}.accuracy is no number from 0 to 1")

    def _check_history(self, blind: bool) -> None:
        table = self.history
        tested = ("test_accuracy", "test_log_likelihood", "test_proportion_error")
        for name in ("epoch", "seconds", "log_likelihood", *(() if blind else tested)):
            _need(name in table, f"history.{name} is missing")
        _need(all(map(_whole, table["epoch"])), "history.epoch has what is no number from 1")
        times = all(value is not None and value >= 0 for value in table["seconds"])
        _need(times, "history.seconds has what is no number from 0")
        known = [value for value in table.get("test_accuracy", []) if value is not None]
        _need(all(0 <= value <= 1 for value in known), "history.test_accuracy is not from 0 to 1")
        _need(len(table["epoch"]) == self.run.epochs, "history has not as many rows as epochs")


def wrong_with(record: dict[str, Any]) -> str:
    """The first value of a record that is missing or not of its kind; empty if there is none."""
    try:
        (_Failed if "error" in record else _Done).model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        told = first["msg"].removeprefix("Value error, ")
        return f"{place}: {told}" if place else told
    return ""


def _need(holds: bool, told: str) -> None:
    if not holds:
        raise ValueError(told)


def _whole(value: float | None) -> bool:
    return value is not None and value >= 1 and math.floor(value) == value
