"""What a reader should know of these records before believing a comparison."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from llpkit.experiments._groups import (
    Group,
    compared,
    compiled,
    hardware_of,
    left_out,
)
from llpkit.experiments._plan import in_order
from llpkit.experiments._run import Record, Run, Store
from llpkit.experiments._sources import source_of
from llpkit.experiments._summary import REFERENCE
from llpkit.experiments._tables import counted
from llpkit.methods import METHODS

_MIXED: dict[str, Callable[[Record], str]] = {
    "source code": lambda record: record["code"],
    "compiled and plain networks": lambda record: compiled(record) or "plain",
    "devices": lambda record: record["device"],
    "machines": hardware_of,
    "versions of torch": lambda record: record["versions"].get("torch", "unknown"),
}


def doubts(store: Store, groups: Sequence[Group]) -> list[str]:
    """Sentences on what is mixed, left out, there twice or failed."""
    told = [sentence for group in groups for sentence in _of_group(group)]
    alike = Counter(_name(group) for group in groups)  # whose settings differ in the data alone
    told += [
        f"{name} has records made from different data, as checksums tell. They are shown apart."
        for name, number in alike.items()
        if number > 1
    ]
    different = store.differing()
    if different:
        told.append(
            f"In several folders with different results: {counted(len(different), 'record')} "
            f"({', '.join(different[:3])}{', …' * (len(different) > 3)}). The first folder's are "
            "shown."
        )
    told += _of_grids(store.read("grid"))
    unknown = {r["run"]["method"] for r in store.read("grid")} - METHODS.keys()
    if unknown:
        told.append(
            f"The choice of hyper-parameters of {', '.join(sorted(unknown))} is not shown: load "
            "the method with llpkit --plugin FILE.py report …"
        )
    failed = sum(
        not (record["run"]["experiment"] == "grid" and record.get("diverged"))
        for record in store.errors()
    )
    if failed:
        told.append(f"Failed and missing here: {counted(failed, 'run')}.")
    records = {record["id"]: record for record in store.read()}
    shared = sum(record["jobs"] > 1 for record in records.values())
    if shared:
        told.append(
            f"{shared} of {len(records)} runs shared their machine with others; no time on this "
            "page comes from them, but for the cost of the choice of hyper-parameters."
        )
    return told


def _of_grids(records: Iterable[Record]) -> list[str]:
    """Which grids compare candidates of several versions of the source, devices and so on."""
    by_method: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        run = Run.of(record)
        by_method.setdefault((run.dataset, run.name), []).append(record)
    mixing: dict[tuple[str, str], list[str]] = {}
    for (dataset, method), its in by_method.items():
        for what, value in _MIXED.items():
            if len({value(record) for record in its}) > 1:
                mixing.setdefault((dataset, what), []).append(method)
    return [
        f"The grid on {dataset} mixes {what} in {', '.join(in_order(methods))}."
        for (dataset, what), methods in mixing.items()
    ]


def _name(group: Group) -> str:
    return f"{group.experiment} on {group.dataset} ({group.told})"


def _places(records: Sequence[Record]) -> str:
    """The folds of some records, and their sizes where these are numbers."""
    by_size: dict[str, list[str]] = {}
    for record in records:
        size = record["run"]["bag_size"]
        head = f"bags of {size}, " if isinstance(size, int) else ""
        by_size.setdefault(head, []).append(str(record["run"]["fold"]))
    return ", ".join(
        f"{head}fold{'s' * (len(folds) > 1)} {', '.join(folds)}" for head, folds in by_size.items()
    )


def _source(group: Group, record: Record) -> str:
    """The source of a record's hyper-parameters: its group's, if they are what that source says."""
    name = Run.of(record).name
    plain = any(record is its for its in group.runs.get(name, []))
    return group.source if plain and group.of_source(name, record) else source_of(record)


def _of_group(group: Group) -> list[str]:
    name, told = _name(group), []
    mixed = {what: [value(r) for r in group.records] for what, value in _MIXED.items()}
    mixed["sources of hyper-parameters"] = [_source(group, r) for r in group.records]
    for what, values in mixed.items():
        found = Counter(values)
        if len(found) > 1:
            parts = "; ".join(
                f"{key}: {counted(number, 'run')}" for key, number in found.most_common()
            )
            told.append(f"{name} mixes {what} ({parts}).")
    if group.of_other_data:
        told.append(f"{name} leaves out {counted(group.of_other_data, 'record')} of other data.")
    if group.experiment != "epoch-time":
        rest = left_out(group, compared(group))
        number = sum(map(len, rest.values()))
        if rest:
            total = len(group.records)
            told.append(
                f"{name} uses {total - number} of {counted(total, 'record')}. The rest are of "
                "folds (or sizes of bags) that the others lack. Left out: "
                f"{'; '.join(f'{n} {_places(its)}' for n, its in rest.items())}."
            )
    several = [method for method in group.runs if method.startswith(f"{REFERENCE}, ")]
    if several and group.named(REFERENCE) is None:
        told.append(
            f"{name}: {REFERENCE} was run with several hyper-parameters and not one alone is the "
            f"grid's or the default ({'; '.join(several)}), so that it is not compared."
        )
    return told
