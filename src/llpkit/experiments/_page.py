"""From records to the page, the figures and the tables, in the form of the paper."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from llpkit.errors import LLPError
from llpkit.experiments import _sections
from llpkit.experiments._grid import read_grids
from llpkit.experiments._groups import groups, hardware_of, told_apart
from llpkit.experiments._run import Record, Store
from llpkit.experiments._summary import BOUND
from llpkit.experiments._tables import Tables
from llpkit.methods import METHODS
from llpkit.report import Chapter, Results, Section, write_results

PAGE, SUMMARY = "report.html", "summary.md"
_TITLES = {
    "group-photos": "Group photos",
    "cifar10": "CIFAR-10, bird and cat",
    "digits": "Digits, odd and even",
}

_NOTES = (
    "Accuracy is that of the last epoch on the instances of the fold that was kept for testing. "
    "Where it says selected, it is that of the epoch with the best likelihood of held-out bags, "
    "which are a share of the training bags. No epoch is chosen by test labels.",
    f"{BOUND} is shown every training label. It is the bound, not a rival.",
    "Folds are over whole bags and the same for every method, as are bags, seeds and the start of "
    "the network. The training sets of two folds overlap, so that intervals over folds are "
    "somewhat too narrow.",
    "Hyper-parameters are each method's own, chosen by the likelihood of held-out bags where a "
    "grid was run, and stated defaults otherwise.",
)
_NOTES_OF = {
    "group-photos": "Group photos that follow each other often show the same people, and such "
    "photos may lie in different folds: accuracy on them is a little better than on strangers.",
}


def write_report(store: Store, out: Path | None = None, data_dir: str | None = None) -> Path:
    """Draw all records of some folders; where the page is.

    Args:
        store: The records.
        out: The folder to write to; ``report`` in the first folder of the store unless given.
        data_dir: Where data sets are, for pictures of an example bag (never of faces).
    """
    records = list(store.read())
    if not records:
        folders = ", ".join(map(str, store.folders))
        raise LLPError(f"{folders} holds no records; make some with llpkit reproduce")
    out = out or store.home / "report"
    grids = read_grids(store)
    shown = ("convergence", "epoch-time", "bag-size")
    compared = [group for experiment in shown for group in groups(records, experiment)]
    tables = Tables([*METHODS, *(method for group in compared for method in group.runs)])
    names = [name for name in _TITLES if any(r["run"]["dataset"] == name for r in records)]
    results = Results(
        title="Learning from label proportions: the experiments",
        lead=(
            "Every method on the same bags, folds and seeds. The methods know the counts of bags "
            f"and nothing else; {BOUND} knows every label.",
        ),
        chapters=[
            chapter
            for name in names
            for chapter in _chapters(name, records, grids, tables, data_dir)
        ],
        notes=[*_NOTES, *(_NOTES_OF[n] for n in names if n in _NOTES_OF), *_doubts(records)],
        environment=_environment(records),
        look=tables.look,
    )
    page = write_results(results, out / PAGE, figures_dir=out / "figures")
    tables.write(out)
    (out / SUMMARY).write_text(_markdown(results), encoding="utf-8")
    return page


def _chapters(
    name: str,
    every: Sequence[Record],
    grids: Mapping[str, Record],
    tables: Tables,
    data_dir: str | None,
) -> list[Chapter]:
    """A chapter for each setting that methods were compared in, and one for the rest."""
    records = [r for r in every if r["run"]["dataset"] == name]
    timed = groups(records, "epoch-time")
    convergence = groups(records, "convergence")
    sizes = groups(records, "bag-size")
    rest: list[Section] = []
    for group, apart in zip(timed, told_apart(timed), strict=True):
        rest.append(_sections.times(group, apart, tables))
    for group, apart in zip(sizes, told_apart(sizes), strict=True):
        rest.append(_sections.sizes(group, apart, tables))
    if name in grids:
        rest.append(_sections.grid(grids[name]))

    instances = {"instances": f"{sum(records[0]['data']['instances']):,}"}
    chapters = []
    for group, apart in zip(convergence, told_apart(convergence), strict=True):
        sections = _sections.convergence(group, apart, timed, tables, data_dir)
        facts = {**instances, "folds": group.folds, "setting": group.told}
        title = f"{_TITLES[name]}: {apart}" if apart else _TITLES[name]
        chapters.append(Chapter(title, facts, sections))
    if len(chapters) == 1:
        return [replace(chapters[0], sections=[*chapters[0].sections, *rest])]
    if rest:
        title = f"{_TITLES[name]}: the other experiments" if chapters else _TITLES[name]
        chapters.append(Chapter(title, instances, rest))
    return chapters


def _doubts(records: Sequence[Record]) -> list[str]:
    """What a reader should know of these records."""
    sums: dict[tuple[str, str], set[str]] = {}
    for record in records:
        run = record["run"]
        key = run["dataset"], str((run["bag_size"], run["seed"], run["data_options"]))
        sums.setdefault(key, set()).add(record["data"]["sha256"])
    mixed = sorted({name for (name, _), found in sums.items() if len(found) > 1})
    told = [f"Records of {name} were made from different data: checksums differ." for name in mixed]
    shared = sum(record["jobs"] > 1 for record in records)
    if shared:
        told.append(
            f"{shared} of {len(records)} runs shared their machine with others; no time on this "
            "page comes from them, but for the cost of the choice of hyper-parameters."
        )
    return told


def _environment(records: Sequence[Record]) -> dict[str, object]:
    found: dict[str, object] = {"runs": len(records)}
    for key in ("llpkit", "python", "torch", "numpy"):
        versions = sorted({str(record["versions"].get(key, "")) for record in records})
        found[key] = ", ".join(filter(None, versions))
    found["hardware"] = "; ".join(sorted(set(map(hardware_of, records))))
    found["time of all runs"] = f"{sum(r['seconds']['total'] for r in records) / 3600:.2f} h"
    begun = sorted(record["started"] for record in records)
    found["first and last begun"] = " and ".join(dict.fromkeys((begun[0], begun[-1])))
    commands = dict.fromkeys(record["command"] for record in records if record["command"])
    for i, command in enumerate(commands, 1):
        found[f"command {i}" if len(commands) > 1 else "command"] = command
    return found


def _markdown(results: Results) -> str:
    """The tables and notes once more, to be quoted elsewhere."""
    lines = [f"# {results.title}", ""]
    for chapter in results.chapters:
        lines += [f"## {chapter.title}", ""]
        lines += [f"{name}: {value}  " for name, value in chapter.facts.items()]
        for section in chapter.sections:
            for table in section.tables:
                lines += ["", f"### {section.title}", "", section.about, "", table.markdown()]
                lines += ["", table.about] if table.about else []
        lines.append("")
    lines += ["## Notes", "", *(f"- {note}" for note in results.notes), ""]
    lines += ["## How it was made", ""]
    lines += [f"- {name}: {value}" for name, value in results.environment.items()]
    return "\n".join(lines) + "\n"
