"""Times of runs that shared a GPU, by call and by run, from the records of `reproduce`.

    python benchmarks/side_by_side.py results/bird-cat-equal-rates [--out results/speed-gpu]

A call is one `llpkit reproduce convergence`. Its time is from the start of its first run to the end
of its last, so it includes compilation and evaluation but not the start of Python. Whether NVIDIA's
multi-process service was running is not recorded.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import median

from estep import Report, seconds

from llpkit.experiments import Record, Results


def calls(folders: Sequence[Path]) -> list[tuple[str, list[Record]]]:
    """The records of every call, in the order in which they began; each once."""
    found: dict[str, dict[tuple[str, str], Record]] = defaultdict(dict)
    for folder in folders:
        for record in Results.read(folder).records["convergence"]:
            about = record.environment
            found[about["command"]][about["started"], record.id] = record
    lists = {command: list(records.values()) for command, records in found.items()}
    return sorted(lists.items(), key=lambda item: min(map(began, item[1])))


def began(record: Record) -> float:
    return datetime.fromisoformat(record.environment["started"]).timestamp()


def tell(report: Report, all_calls: list[tuple[str, list[Record]]]) -> None:
    rows, runs = [], []
    for number, (command, records) in enumerate(all_calls, start=1):
        report.say(f"{number}. `{command}`")
        wall = max(began(r) + r.seconds for r in records) - min(map(began, records))
        epochs = [median(r.history["seconds"]) for r in records]
        jobs = str(records[0].environment["jobs"])
        rows.append([str(number), jobs, str(len(records)), f"{wall:.0f}"])
        rows[-1] += [f"{wall / len(records):.1f}", seconds(median(epochs))]
        pairs = zip(records, epochs, strict=True)
        for r, epoch in sorted(pairs, key=lambda pair: (pair[0].method, pair[0].fold)):
            runs.append([str(number), r.method, str(r.fold), seconds(epoch)])
            runs[-1] += [f"{r.seconds:.1f}", f"{100 * r.final['accuracy']:.2f}"]
    report.say("")
    report.table(["call", "at once", "runs", "call, s", "s a run", "epoch, median"], rows)
    report.table(["call", "method", "fold", "epoch, median", "run, s", "accuracy, %"], runs)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, nargs="+", help="folders of `llpkit reproduce`")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for side_by_side.md")
    options = parser.parse_args(arguments)
    report = Report()
    found = calls(options.results)
    hardware = [r.environment["hardware"] for _, records in found for r in records]
    cards = {about.get("gpu") or about["processor"] for about in hardware}
    report.say(f"# Runs side by side on {', '.join(sorted(cards))}\n")
    tell(report, found)
    if options.out:
        (options.out / "side_by_side.md").write_text(report.text)


if __name__ == "__main__":
    main()
