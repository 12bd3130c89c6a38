"""Where the hyper-parameters of runs come from, and which runs that makes comparable.

Methods are compared at what a grid chose for each, and at the defaults stated for each: a
comparison of tuned with untuned methods would not be fair. A run whose hyper-parameters are both
belongs to both.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from llpkit.experiments._grid import stages, unlikeness
from llpkit.experiments._plan import brings_network, default_lr, stated
from llpkit.experiments._run import VARIANTS, Record, Run
from llpkit.methods import METHODS

GRID, DEFAULTS = "grid", "defaults"
WORDS = {GRID: "hyper-parameters chosen by the grid", DEFAULTS: "stated defaults"}
"""The source of a comparison's hyper-parameters, for a reader."""

Values = dict[str, Any]
_AXES = {"lr", "weight_decay"}


def source_of(record: Record) -> str:
    """Where the hyper-parameters of a record come from, in a word or two.

    >>> source_of({"chosen_by": "grid of augmentation paper, 40 epochs, options"})
    'grid and options'
    """
    text = record["chosen_by"]
    if not text.startswith(GRID):
        return str(text)
    return "grid and options" if text.endswith(", options") else GRID


def values_of(record: Record) -> Values:
    """The hyper-parameters of a record."""
    run = record["run"]
    return {"lr": run["lr"], "weight_decay": run["weight_decay"], **run["method_options"]}


def agrees(own: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether hyper-parameters are these, as far as both tell.

    >>> agrees({"lr": 0.001, "step": 1.0}, {"lr": 0.001}), agrees({"lr": 0.001}, {"lr": 0.003})
    (True, False)
    """
    return all(own[key] == value for key, value in wanted.items() if key in own)


def by_source(
    records: Sequence[Record], setting: Mapping[str, Any], grids: Sequence[Record]
) -> list[tuple[str, list[Record], dict[str, Values]]]:
    """Records of one setting by the source of their hyper-parameters.

    For each source its name, its records and the hyper-parameters that each method has by it. The
    grid's comes first, the defaults follow if they differ for a method. Other options of a method
    stand beside the source that they share the grid's axes with, or else beside the defaults. Where
    there is one source and a method was run at other hyper-parameters alone, the name is empty.

    Args:
        records: Of one setting.
        setting: What they have in common.
        grids: What grids have chosen, as :func:`llpkit.experiments._grid.grids` tells.
    """
    by_name: dict[str, list[Record]] = {}
    for record in records:
        by_name.setdefault(Run.of(record).name, []).append(record)
    usual = {name: _defaults(name) for name in by_name}
    chosen = {name: _choice(name, its, setting, grids) for name, its in by_name.items()}
    wanted = {name: usual[name] | choice for name, choice in chosen.items() if choice is not None}
    tuned = [r for r in records if _is_tuned(r, wanted, usual)]
    untuned = [r for r in records if shares_axes(r, usual)]
    ids, others = ({r["id"] for r in some} for some in (tuned, untuned))
    if not tuned and not untuned:
        return [("", list(records), {})]
    if others <= ids or ids <= others:
        source, its, values = (GRID, ids, wanted) if others <= ids else (DEFAULTS, others, usual)
        has = {Run.of(r).name for r in records if r["id"] in its or source_of(r) == source}
        return [(source if has == by_name.keys() else "", list(records), values)]
    rest = [r for r in records if r["id"] in others or r["id"] not in ids]
    return [(GRID, tuned, wanted), (DEFAULTS, rest, usual)]


def _is_tuned(record: Record, wanted: Mapping[str, Values], usual: Mapping[str, Values]) -> bool:
    """Whether a record has what the grid chose, or what a grid chose that is not known here."""
    source = source_of(record)
    run = Run.of(record)
    given = source != GRID and not _axes(run.name).isdisjoint(run.method_options)
    by_grid = source.startswith(GRID) and not given and not shares_axes(record, usual)
    return by_grid or shares_axes(record, wanted)


def shares_axes(record: Record, wanted: Mapping[str, Values]) -> bool:
    """Whether a record agrees with its method's values in what a grid would choose."""
    name, own = Run.of(record).name, values_of(record)
    if name not in wanted:
        return False
    if not wanted[name]:  # a method that is not known here
        return source_of(record) == DEFAULTS
    axes = _axes(name)
    return agrees({key: value for key, value in own.items() if key in axes}, wanted[name])


def _axes(name: str) -> set[str]:
    """The hyper-parameters that a grid chooses for a method, by name."""
    method, _ = VARIANTS.get(name, (name, {}))
    return _AXES | {axis for stage in stages(method) for axis in stage}


def _defaults(name: str) -> Values:
    """The hyper-parameters of a method, by name, where nothing was said; empty if not known."""
    method, _ = VARIANTS.get(name, (name, {}))
    if method not in METHODS:
        return {}
    return {"lr": default_lr(name), "weight_decay": 0.0, **stated(name)}


def _choice(
    name: str, records: Sequence[Record], setting: Mapping[str, Any], grids: Sequence[Record]
) -> Values | None:
    """What the most similar grid chose for a method, or else what its records say a grid did."""
    own_network = brings_network(records[0])
    found = []
    for grid in grids:
        about, entry = grid["settings"], grid["methods"].get(name)
        same = grid["dataset"] == setting["dataset"]
        same &= about["data_options"].get("size", "") == setting["size"]
        same &= own_network or about["network"] == setting["network"]
        if same and entry is not None and entry["chosen"] is not None:
            found.append((unlikeness(about, setting), entry["chosen"]))
    if found:
        return dict(min(found, key=lambda one: one[0])[1])
    axes = _axes(name)
    told = [
        {key: value for key, value in values_of(record).items() if key in axes}
        for record in records
        if source_of(record) == GRID
    ]
    return told[0] if told and all(one == told[0] for one in told) else None
