"""Records that may be compared: grouped by setting, named by method."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from llpkit.experiments._run import Record, Run
from llpkit.methods import METHODS


@dataclass(frozen=True)
class Group:
    """Runs that may be compared: one experiment and data set, one setting for all methods.

    ``runs`` has the records of each method by fold (and bag size), methods in their usual order. A
    method that was run with several hyper-parameters has several names.
    """

    experiment: str
    dataset: str
    setting: dict[str, Any]
    runs: dict[str, list[Record]]

    @property
    def folds(self) -> str:
        """How many folds the methods have, such as ``10`` or ``5 to 10``."""
        numbers = sorted({len({r["run"]["fold"] for r in runs}) for runs in self.runs.values()})
        return " to ".join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))

    @property
    def told(self) -> str:
        """The setting in words."""
        return describe(self.setting)


def describe(setting: dict[str, Any]) -> str:
    """A setting in words.

    >>> describe({"network": "conv-large", "augment": "paper", "batch_size": 128, "held_out": None})
    'conv-large, augmentation paper, batches of 128'
    """
    words = {
        "network": "{}",
        "size": "{} size",
        "augment": "augmentation {}",
        "batch_size": "batches of {}",
        "precision": "{}",
        "bag_size": "bags of {}",
        "held_out": "{:.0%} of the training bags held out",
        "seed": "seed {}",
        "hardware": "{}",
        "compiled": "{}",
    }
    shown = {k: v for k, v in setting.items() if v not in (None, "", "none")}
    if isinstance(shown.get("bag_size"), list):
        shown["bag_size"] = " to ".join(map(str, shown["bag_size"]))
    if shown.get("seed") == 0:
        del shown["seed"]
    return ", ".join(words[key].format(shown[key]) for key in words if key in shown)


def told_apart(groups: Sequence[Group]) -> list[str]:
    """For each group, what of its setting the others do not share; empty for a single one."""
    first = groups[0].setting if groups else {}
    varied = {key for one in groups for key in first if one.setting[key] != first[key]}
    return [describe({k: v for k, v in one.setting.items() if k in varied}) for one in groups]


def groups(records: Iterable[Record], experiment: str) -> list[Group]:
    """The groups of an experiment, those with most runs first.

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
        if METHODS[run.method].network_name is not None:
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
    made = [
        Group(experiment, found[0]["run"]["dataset"], keys[text], _by_method(found))
        for text, found in gathered.items()
    ]
    return sorted(made, key=lambda g: (g.dataset, -sum(map(len, g.runs.values())), g.told))


def _setting(record: Record) -> dict[str, Any]:
    run = record["run"]
    key = {name: run[name] for name in ("dataset", "network", "augment", "batch_size", "precision")}
    key |= {"held_out": run["held_out"], "seed": run["seed"], "folds": run["folds"]}
    key |= {"size": run["data_options"].get("size", "")}
    if run["experiment"] != "bag-size":
        key["bag_size"] = run["bag_size"]
    if run["experiment"] == "epoch-time":
        key["hardware"] = hardware_of(record)
        key["compiled"] = "compiled" if record["compiled"] else ""
    return key


def hardware_of(record: Record) -> str:
    """What did the work: the card, or the processor and its threads."""
    about = record["hardware"]
    if record["device"] == "cuda":
        return str(about.get("gpu", "cuda"))
    threads = about["threads"]
    return f"{about['processor']}, {threads} thread{'' if threads == 1 else 's'}"


def _by_method(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records by method, in the registry's order; several variants get names of their own."""
    named: dict[str, list[Record]] = {}
    order = list(METHODS)
    for method in sorted({r["run"]["method"] for r in records}, key=order.index):
        variants: dict[str, list[Record]] = {}
        for record in records:
            if record["run"]["method"] == method:
                variants.setdefault(json.dumps(_own(record), sort_keys=True), []).append(record)
        # The plain name goes to the variant with most runs, then to the one with fewest options.
        largest = max(variants, key=lambda v: (len(variants[v]), -len(v)))
        base = json.loads(largest)
        for text in sorted(variants, key=lambda v: v != largest):
            own = json.loads(text)
            differs = [
                f"{value} epochs" if name == "epochs" else f"{name.replace('_', ' ')} {value}"
                for name, value in own.items()
                if base.get(name) != value
            ]
            differs += [f"{name} by default" for name in base if name not in own]
            its = sorted(variants[text], key=lambda r: (_size(r), r["run"]["fold"]))
            named[", ".join([method, *differs])] = its
    return named


def _own(record: Record) -> dict[str, Any]:
    run = record["run"]
    return {
        **{name: run[name] for name in ("epochs", "lr", "weight_decay")},
        **run["method_options"],
    }


def _size(record: Record) -> int:
    size = record["run"]["bag_size"]
    return size if isinstance(size, int) else 0
