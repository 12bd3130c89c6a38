"""From records to the page, the figures and the tables, in the form of the paper."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from llpkit._files import Checksums, claim, sha256, write_text
from llpkit.errors import LLPError
from llpkit.experiments import _grid_section, _sections, _size_sections, _time_sections
from llpkit.experiments._doubts import doubts
from llpkit.experiments._grid import grids
from llpkit.experiments._groups import Group, compared, groups, hardware_of, told_apart
from llpkit.experiments._names import nearest_first, prefixes, slug
from llpkit.experiments._plan import names
from llpkit.experiments._run import Record, Store
from llpkit.experiments._summary import BOUND, PAPERS, REFERENCE
from llpkit.experiments._tables import Tables, commands_of, counted
from llpkit.report._results import Chapter, Results, Section, figure_files, write_results

PAGE, SUMMARY, FILES = "report.html", "summary.md", "files.json"
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
    "the network. Methods are compared over folds that all of them have.",
    "Hyper-parameters are each method's own. Where a grid has chosen them by the likelihood of "
    "held-out bags, methods are compared at that, and once more at the stated defaults if these "
    "differ; a run that is both is in both comparisons. A grid's choice is made once for all folds "
    "and not inside each: bags that it trained on and selected by are test bags of other folds. It "
    "sees their counts, and of their labels only supervised's training does.",
    f"{PAPERS} is the paper's algorithm: after every epoch a pass over the training data gives the "
    f"logits of the next targets. {REFERENCE} takes the logits that the instances had as they went "
    "by. Where they differ in other hyper-parameters, the tables tell.",
)
_NOTES_OF = {
    "group-photos": "Group photos that follow each other often show the same people, and such "
    "photos may lie in different folds: accuracy on them is a little better than on strangers.",
}


def write_report(
    store: Store, out: Path | None = None, data_dir: str | None = None, command: str = ""
) -> Path:
    """Draw all records of some folders; where the page is.

    What an earlier call wrote to the same folder and this one does not is removed from it. Files
    that no such call wrote are neither overwritten nor removed.

    Args:
        store: The records.
        out: The folder to write to; ``report`` in the first folder of the store unless given.
        data_dir: Where data sets are, for pictures of an example bag (never of faces).
        command: What the user typed, for the page.
    """
    records = list(store.read())
    if not records:
        folders = ", ".join(map(str, store.folders))
        raise LLPError(f"{folders} holds no records; make some with llpkit reproduce")
    out = out or store.home / "report"
    for folder in store.folders:
        if Path(os.path.realpath(folder / "records")) in (
            where := Path(os.path.realpath(out)),
            *where.parents,
        ):
            raise LLPError(f"{out} holds records, which are read; choose another folder with --out")
    there = [name for name in _TITLES if any(r["run"]["dataset"] == name for r in records)]
    searched = {name: grids(store, name) for name in there}
    chosen = [grid for its in searched.values() for grid in its]
    shown = ("convergence", "epoch-time", "bag-size")
    every = [group for experiment in shown for group in groups(records, experiment, chosen)]
    tables = Tables([*names(), *(method for group in every for method in group.runs)])
    _run_rows(every, tables)
    results = Results(
        title="Learning from label proportions: the experiments",
        lead=[
            "Every method on the same bags, folds and seeds. The methods know the counts of bags "
            f"and nothing else; {BOUND} knows every label.",
            *_quick(records),
        ],
        chapters=[
            chapter
            for name in there
            for chapter in _chapters(name, records, searched[name], tables, data_dir)
        ],
        notes=[*_NOTES, *(_NOTES_OF[n] for n in there if n in _NOTES_OF), *doubts(store, every)],
        environment=_environment(records),
        look=tables.look,
        commands=[command] if command else [],
    )
    figures = out / "figures"
    files = [out / PAGE, out / SUMMARY, *tables.files(out), *figure_files(results, figures)]
    with _own_files(out, {path.relative_to(out).as_posix() for path in files}):
        page = write_results(results, out / PAGE, figures_dir=figures)
        write_text(out / SUMMARY, _markdown(results))
        tables.write(out)
    return page


def _quick(records: Sequence[Record]) -> list[str]:
    number = sum(record["quick"] for record in records)
    if not number:
        return []
    which = "All runs" if number == len(records) else f"{number} of {counted(len(records), 'run')}"
    return [
        f"{which} on this page were made with --quick: few folds and few epochs, to see that it "
        "works. Their numbers say nothing of the methods."
    ]


@contextmanager
def _own_files(out: Path, names: set[str]) -> Iterator[None]:
    """While these files are written: overwrite only what a report wrote here before.

    What it wrote and this one does not is removed, unless it was changed since.
    """
    before = claim(out, names, FILES)
    yield
    for name in sorted(set(before) - names):
        old = out / name
        if old.is_file() and sha256(old) == before[name]:
            old.unlink()
    Checksums(out, {name: sha256(out / name) for name in sorted(names)}).write(FILES)


def _chapters(
    name: str,
    every: Sequence[Record],
    searched: Sequence[Record],
    tables: Tables,
    data_dir: str | None,
) -> list[Chapter]:
    """A chapter for each setting that methods were compared in, and one for the rest."""
    records = [r for r in every if r["run"]["dataset"] == name]
    timed = groups(records, "epoch-time")
    rest: list[Section] = []
    for group, apart, prefix in zip(timed, told_apart(timed), prefixes(timed), strict=True):
        rest.append(_time_sections.epoch_time(group, apart, prefix, tables))
    for part, apart, prefix in _parts(nearest_first(groups(records, "bag-size", searched))):
        rest += _size_sections.sizes(part, apart, prefix, tables)
    tried = commands_of(r for r in records if r["run"]["experiment"] == "grid")
    rest += [_grid_section.grid(each, tried, tables) for each in searched]

    instances = {"instances": f"{sum(records[0]['data']['instances']):,}"}
    chapters: list[Chapter] = []
    seen: set[str] = set()
    settings = nearest_first(groups(records, "convergence", searched))
    for group, apart, prefix in _parts(settings):
        new = [n for n, its in group.runs.items() if not seen & {r["id"] for r in its}]
        seen |= {r["id"] for r in group.records}
        sections = _sections.convergence(group, prefix, timed, tables, data_dir, new)
        facts = {**instances, "folds": group.folds, "setting": group.told}
        title = f"{_TITLES[name]}: {apart}" if apart else _TITLES[name]
        chapters.append(Chapter(title, facts, sections, commands_of(group.records)))
    if len(settings) > 1:
        title = f"{_TITLES[name]}: the settings side by side"
        overview = _sections.overview(settings, told_apart(settings), tables)
        chapters.insert(0, Chapter(title, instances, [overview]))
    if len(chapters) == 1:
        return [replace(chapters[0], sections=[*chapters[0].sections, *rest])]
    if rest:
        title = f"{_TITLES[name]}: the other experiments" if chapters else _TITLES[name]
        chapters.append(Chapter(title, instances, rest))
    return chapters


def _parts(every: Sequence[Group]) -> list[tuple[Group, str, str]]:
    """Groups cut to shared folds, with what tells each from the others, and how its figures begin.

    A part that is not its group's first has its own word in these names.
    """
    found = []
    for group, apart, prefix in zip(every, told_apart(every), prefixes(every), strict=True):
        parts = compared(group)
        for part in parts:
            how = f"{counted(part.folds, 'fold')} of {counted(len(part.runs), 'method')}"
            told = ", ".join(filter(None, (apart, how * (len(parts) > 1))))
            named = replace(part, comparison=", ".join(filter(None, (how, part.part))))
            found.append((named, told, slug(f"{prefix} {part.part}")))
    return found


def _run_rows(every: Sequence[Group], tables: Tables) -> None:
    """A row for every run, from which all that is paired can be worked out again."""
    sources: dict[str, list[str]] = {}
    for group in every:
        for record in group.records:
            sources.setdefault(record["id"], []).append(group.source)
    for group in every:
        for name, records in group.runs.items():
            for record in records:
                if record["id"] not in sources:  # in several groups, and told of already
                    continue
                its = filter(None, dict.fromkeys(sources.pop(record["id"])))
                run, final, selected = record["run"], record["final"], record["selected"] or {}
                tables.add(
                    "runs",
                    group,
                    hyper_parameters=" and ".join(its),
                    experiment=group.experiment,
                    method=name,
                    fold=run["fold"],
                    bag_size=run["bag_size"],
                    lr=run["lr"],
                    weight_decay=run["weight_decay"],
                    method_options=json.dumps(run["method_options"]),
                    chosen_by=record["chosen_by"],
                    **final,
                    selected_epoch=selected.get("epoch"),
                    selected_accuracy=selected.get("accuracy"),
                    train_instances=record["data"]["instances"][0],
                    test_instances=record["data"]["instances"][1],
                    seconds=record["seconds"]["training"],
                    jobs=record["jobs"],
                    device=record["device"],
                    compiled=record["compiled"],
                    code=record["code"],
                    command=record["command"],
                    id=record["id"],
                )


def _environment(records: Sequence[Record]) -> dict[str, object]:
    found: dict[str, object] = {"runs": len(records)}
    for key in ("llpkit", "python", "torch", "numpy"):
        versions = sorted({str(record["versions"].get(key, "")) for record in records})
        found[key] = ", ".join(filter(None, versions))
    found["hardware"] = "; ".join(sorted(set(map(hardware_of, records))))
    found["time of all runs"] = f"{sum(r['seconds']['total'] for r in records) / 3600:.2f} h"
    begun = sorted(record["started"] for record in records)
    found["first and last begun"] = " and ".join(dict.fromkeys((begun[0], begun[-1])))
    return found


def _markdown(results: Results) -> str:
    """The tables and notes once more, to be quoted elsewhere."""
    lines = [f"# {results.title}", ""]
    for chapter in results.chapters:
        lines += [f"## {chapter.title}", ""]
        lines += [f"{name}: {value}  " for name, value in chapter.facts.items()]
        lines += _code(chapter.commands)
        for section in chapter.sections:
            if section.tables:
                lines += ["", f"### {section.title}", *(["", section.about] * bool(section.about))]
                lines += _code(section.commands)
            for table in section.tables:
                lines += [*(["", table.about] * bool(table.about)), "", table.markdown()]
        lines.append("")
    lines += ["## Notes", "", *(f"- {note}" for note in results.notes), ""]
    lines += ["## How it was made", ""]
    lines += [f"- {name}: {value}" for name, value in results.environment.items()]
    lines += _code(results.commands)
    return "\n".join(lines) + "\n"


def _code(commands: Sequence[str]) -> list[str]:
    return ["", "```sh", *commands, "```"] if commands else []
