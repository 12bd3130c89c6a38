"""Records that may be compared: grouped by setting, named by method, cut to shared folds."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from llpkit.experiments._plan import brings_network, in_order, stated
from llpkit.experiments._run import VARIANTS, Record, Run
from llpkit.experiments._sources import (
    WORDS,
    Values,
    agrees,
    by_source,
    shares_axes,
    source_of,
    values_of,
)


@dataclass(frozen=True)
class Group:
    """Runs that may be compared: one experiment and data set, one setting for all methods.

    Where hyper-parameters come from is part of the setting, but for timed runs. ``runs`` has the
    records of each method by fold (and bag size), methods in their usual order. A method that was
    run with other options has several names. ``of_other_data`` is the number of records that are
    not here for that. ``part`` tells a part of a group from the first, and ``comparison`` says how
    many folds and methods a part has. ``wanted`` has the hyper-parameters that the source of the
    setting has for each method.
    """

    experiment: str
    dataset: str
    setting: dict[str, Any]
    runs: dict[str, list[Record]]
    of_other_data: int = 0
    part: str = ""
    comparison: str = ""
    wanted: Mapping[str, Values] = field(default_factory=dict)

    @property
    def folds(self) -> str:
        """How many folds the methods have, such as ``10`` or ``5 to 10``."""
        numbers = sorted({len({r["run"]["fold"] for r in runs}) for runs in self.runs.values()})
        return " to ".join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))

    @property
    def told(self) -> str:
        """The setting in words."""
        return describe({k: v for k, v in self.setting.items() if k != "data"})

    @property
    def told_but_source(self) -> str:
        """The setting in words, without where the hyper-parameters come from."""
        return describe({k: v for k, v in self.setting.items() if k not in ("data", "chosen_by")})

    @property
    def records(self) -> list[Record]:
        """All of them."""
        return [record for records in self.runs.values() for record in records]

    @property
    def source(self) -> str:
        """Where the hyper-parameters come from, in a word; empty if that is not one source."""
        return str(self.setting.get("chosen_by", ""))

    def of_source(self, name: str, record: Record) -> bool:
        """Whether a record under this name has the hyper-parameters that the source says."""
        own = bool(self.source) and name == Run.of(record).name
        return own and shares_axes(record, self.wanted)

    def named(self, method: str) -> str | None:
        """The name here of a method or variant: its own, or that of its only options."""
        found = [name for name in self.runs if self.is_of(name, method)]
        if method in found:
            return method
        return found[0] if len(found) == 1 else None

    def is_of(self, name: str, method: str) -> bool:
        """Whether the runs of a name here are of a method or variant, whatever their options."""
        return Run.of(self.runs[name][0]).name == method


def describe(setting: dict[str, Any]) -> str:
    """A setting in words.

    >>> describe({"network": "conv-large", "augment": "paper", "batch_size": 128, "held_out": None})
    'network conv-large, augmentation paper, batches of 128'
    """
    words = {
        "network": "network {}",
        "size": "{} size",
        "epochs": "{} epochs",
        "augment": "augmentation {}",
        "batch_size": "batches of {}",
        "precision": "{}",
        "bag_size": "bags of {}",
        "held_out": "{:.0%} of the training bags held out",
        "seed": "seed {}",
        "chosen_by": "{}",
        "hardware": "{}",
        "compiled": "{}",
        "data": "data {}",
    }
    shown = {k: v for k, v in setting.items() if v not in (None, "", "none")}
    if isinstance(shown.get("bag_size"), list):
        shown["bag_size"] = " to ".join(map(str, shown["bag_size"]))
    if shown.get("seed") == 0:
        del shown["seed"]
    if "chosen_by" in shown:
        shown["chosen_by"] = WORDS[shown["chosen_by"]]
    return ", ".join(words[key].format(shown[key]) for key in words if key in shown)


def told_apart(groups: Sequence[Group]) -> list[str]:
    """For each group, what of its setting the others do not share; empty for a single one."""
    first = groups[0].setting if groups else {}
    varied = {key for one in groups for key in first if one.setting[key] != first[key]}
    return [describe({k: v for k, v in one.setting.items() if k in varied}) for one in groups]


def groups(records: Iterable[Record], experiment: str, grids: Sequence[Record] = ()) -> list[Group]:
    """The groups of an experiment, those with most runs first.

    Args:
        records: Of any experiments.
        experiment: Which of them.
        grids: What grids have chosen. Runs at that are one group, runs at the defaults another.

    >>> groups([], "convergence")
    []
    """
    gathered: dict[str, list[Record]] = {}
    keys: dict[str, dict[str, Any]] = {}
    brought: list[tuple[dict[str, Any], Record]] = []
    for record in records:
        run = Run.of(record)
        if run.experiment != experiment:
            continue
        key = _setting(record)
        if brings_network(record):
            brought.append((key, record))  # compared whatever the network of the others
            continue
        text = json.dumps(key, sort_keys=True)
        keys[text] = key
        gathered.setdefault(text, []).append(record)
    for key, record in brought:
        alike = [text for text in keys if keys[text] | {"network": ""} == key | {"network": ""}]
        if not alike:
            text = json.dumps(key, sort_keys=True)
            keys[text], alike = key, [text]
        for text in alike:
            gathered.setdefault(text, []).append(record)
    made = []
    for text, every in gathered.items():
        found = _of_one_data(every)
        name, others = found[0]["run"]["dataset"], len(every) - len(found)
        if experiment == "epoch-time":  # which hyper-parameters do not change
            made.append(Group(experiment, name, keys[text], _by_method(found, {}), others))
            continue
        for source, its, wanted in by_source(found, keys[text], grids):
            setting = keys[text] | {"chosen_by": source}
            runs = _by_method(its, wanted)
            made.append(Group(experiment, name, setting, runs, others, wanted=wanted))
    return sorted(made, key=lambda g: (g.dataset, -len(g.records), g.told))


def compared(group: Group) -> list[Group]:
    """A group cut to folds (and sizes of bags) that its methods share: no mean over other folds.

    First the methods, two or more, that share most runs; then, if these are not all, every method
    over what all share; then the best comparison of each that is still missing. A method that
    shares nothing with any other is in none. A single method is compared with nothing.
    """
    units = {name: frozenset(map(_unit, records)) for name, records in group.runs.items()}
    if len(units) == 1:
        return [group]
    shared: set[frozenset[tuple[int, int]]] = set()
    for its in units.values():
        shared |= {its} | {its & other for other in shared}
    have = {some: [n for n, its in units.items() if some <= its] for some in shared if some}

    def best(wanted: Sequence[str]) -> list[frozenset[tuple[int, int]]]:
        able = [s for s, its in have.items() if len(its) > 1 and set(wanted) <= set(its)]
        return sorted(able, key=lambda s: (-len(s) * len(have[s]), -len(have[s]), sorted(s)))[:1]

    chosen = dict.fromkeys(best([]), "")
    for some in best(list(units)):
        chosen.setdefault(some, "all methods")
    for name in units:
        if not any(name in have[some] for some in chosen):
            chosen |= dict.fromkeys(best([name]), f"with {name}")
    if not chosen:  # nothing to compare, but something to look at
        name = max(group.runs, key=lambda name: len(group.runs[name]))
        return [replace(group, runs={name: group.runs[name]})]
    return [
        replace(
            group,
            runs={n: [r for r in group.runs[n] if _unit(r) in some] for n in have[some]},
            part=part,
        )
        for some, part in chosen.items()
    ]


def left_out(group: Group, parts: Sequence[Group]) -> dict[str, list[Record]]:
    """The records of each method that are in no part."""
    used = {record["id"] for part in parts for record in part.records}
    rest = {n: [r for r in its if r["id"] not in used] for n, its in group.runs.items()}
    return {name: records for name, records in rest.items() if records}


def by_size(records: Iterable[Record]) -> dict[int | None, list[Record]]:
    """Records by the size of their bags, smallest first; ``None`` where that is not one number."""
    found: dict[int | None, list[Record]] = {}
    for record in sorted(records, key=_size):
        found.setdefault(_size(record) or None, []).append(record)
    return found


def by_number(records: Iterable[Record]) -> dict[int, list[Record]]:
    """Records by the size of their bags where that is one number, smallest first."""
    return {size: its for size, its in by_size(records).items() if size is not None}


def _unit(record: Record) -> tuple[int, int]:
    return _size(record), record["run"]["fold"]


def _of_one_data(records: Sequence[Record]) -> list[Record]:
    """Those records of each size of bags that were made from the same data, where most are."""
    sums: dict[int, Counter[str]] = {}
    for record in records:
        sums.setdefault(_size(record), Counter())[record["data"]["sha256"]] += 1
    usual = {size: count.most_common(1)[0][0] for size, count in sums.items()}
    return [r for r in records if r["data"]["sha256"] == usual[_size(r)]]


def _setting(record: Record) -> dict[str, Any]:
    run = record["run"]
    key = {name: run[name] for name in ("dataset", "network", "augment", "batch_size", "precision")}
    key |= {name: run[name] for name in ("epochs", "held_out", "seed", "folds")}
    key |= {"size": run["data_options"].get("size", "")}
    if run["experiment"] != "bag-size":  # where every size has a checksum of its own
        key |= {"bag_size": run["bag_size"], "data": record["data"]["sha256"][:8]}
    if run["experiment"] == "epoch-time":
        key["hardware"] = hardware_of(record)
        key["compiled"] = compiled(record)
    return key


def compiled(record: Record) -> str:
    """Whether the network was compiled, in a word."""
    return "compiled" if record["compiled"] else ""


def hardware_of(record: Record) -> str:
    """What did the work: the card, or the processor and its threads."""
    about = record["hardware"]
    if record["device"] == "cuda":
        return str(about.get("gpu", "cuda"))
    threads = about["threads"]
    return f"{about['processor']}, {threads} thread{'' if threads == 1 else 's'}"


def _by_method(records: Sequence[Record], wanted: Mapping[str, Values]) -> dict[str, list[Record]]:
    """Records by method, in the usual order.

    Of several sets of hyper-parameters the plain name goes to the wanted one, or else to one
    without options that a user gave: what a grid chose, or the stated defaults. The others' names
    tell the difference.
    """
    named: dict[str, list[Record]] = {}
    by_name: dict[str, list[Record]] = {}
    for record in records:
        by_name.setdefault(Run.of(record).name, []).append(record)
    for name in in_order(by_name):
        variants: dict[str, list[Record]] = {}
        for record in by_name[name]:
            variants.setdefault(json.dumps(values_of(record), sort_keys=True), []).append(record)
        every = [json.loads(text) for text in variants]
        plain = _current(name, variants, wanted.get(name, {}))
        others = every if plain is None else [json.loads(plain)]
        if plain is None and len(every) == 1:
            others = [every[0] | stated(name)]
        for text in sorted(variants, key=lambda v: (v != plain, v)):
            own = json.loads(text)
            differs = [
                f"{key.replace('_', ' ')} {value}"
                for key, value in own.items()
                if any(key not in other or other[key] != value for other in others)
            ]
            lacks = {key for other in others for key in other} - own.keys()
            differs += [f"no {key.replace('_', ' ')}" for key in sorted(lacks)]
            its = sorted(variants[text], key=_unit)
            named[", ".join([name, *differs])] = its
    return named


def _current(name: str, variants: dict[str, list[Record]], wanted: Values) -> str | None:
    """Which of several sets of hyper-parameters is the one to compare by, if any.

    One that a user gave options for is so only if it stands alone, and never for a variant whose
    own options were changed.
    """
    _, own = VARIANTS.get(name, (name, {}))
    able = {text: its for text, its in variants.items() if own.items() <= json.loads(text).items()}
    if list(able) == list(variants) and len(able) == 1:
        return next(iter(able))
    right = [text for text in able if wanted and agrees(json.loads(text), wanted)]
    if len(right) == 1:
        return right[0]
    for source in ("grid", "defaults"):
        found = [
            text
            for text, records in able.items()
            if any(source_of(record) == source for record in records)
        ]
        if len(found) > 1:  # a default has changed since: today's
            now = stated(name).items()
            found = [text for text in found if now <= json.loads(text).items()] or found
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _size(record: Record) -> int:
    size = record["run"]["bag_size"]
    return size if isinstance(size, int) else 0
