"""What runs that shared a card took, call by call and run by run, from the records of `reproduce`.

    python benchmarks/side_by_side.py results/paper [--out results/speed-gpu]

A call is one `llpkit reproduce convergence`. Its time is from the start of its first run to the end
of its last, so that compilation and evaluation are in it and the start of Python is not. Whether
NVIDIA's multi-process service ran beside it is not on record.
"""

import argparse
import json
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from estep import Report, seconds

Record = dict[str, Any]


def calls(folder: Path) -> list[tuple[str, list[Record]]]:
    """The records of every call, in the order in which they began."""
    found = defaultdict(list)
    for file in (folder / "records" / "convergence").glob("*.json"):
        if file.name.count(".") == 1:
            record = json.loads(file.read_text())
            found[record["command"]].append(record)
    return sorted(found.items(), key=lambda item: min(map(began, item[1])))


def began(record: Record) -> float:
    return datetime.fromisoformat(record["started"]).timestamp()


def method(record: Record) -> str:
    by_pass = record["run"]["method_options"].get("refresh") == "pass"
    return "mle-pass" if by_pass else str(record["run"]["method"])


def tell(report: Report, all_calls: list[tuple[str, list[Record]]]) -> None:
    rows, runs = [], []
    for number, (command, records) in enumerate(all_calls, start=1):
        report.say(f"{number}. `{command}`")
        end = max(began(r) + r["seconds"]["total"] for r in records)
        wall = end - min(map(began, records))
        epochs = [median(r["history"]["seconds"]) for r in records]
        versions = sorted({r["code"] for r in records})
        rows.append([str(number), str(records[0]["jobs"]), str(len(records)), f"{wall:.0f}"])
        rows[-1] += [f"{wall / len(records):.1f}", seconds(median(epochs)), ", ".join(versions)]
        for r, epoch in sorted(zip(records, epochs, strict=True), key=lambda x: name(x[0])):
            runs.append([str(number), method(r), str(r["run"]["fold"]), seconds(epoch)])
            runs[-1] += [f"{r['seconds']['total']:.1f}", f"{100 * r['final']['accuracy']:.2f}"]
    header = ["call", "at once", "runs", "call, s", "s a run", "epoch, median", "source"]
    report.say("")
    report.table(header, rows)
    report.table(["call", "method", "fold", "epoch, median", "run, s", "accuracy, %"], runs)


def name(record: Record) -> tuple[str, int]:
    return method(record), record["run"]["fold"]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, help="folder that `llpkit reproduce` wrote to")
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for side_by_side.md")
    options = parser.parse_args(arguments)
    report = Report()
    found = [
        (command, [r for r in records if r["run"]["dataset"] == options.dataset])
        for command, records in calls(options.results)
    ]
    found = [(command, records) for command, records in found if records]
    cards = {r["hardware"].get("gpu") or r["hardware"]["processor"] for _, rs in found for r in rs}
    report.say(f"# Runs side by side on {', '.join(sorted(cards))}\n")
    tell(report, found)
    if options.out:
        (options.out / "side_by_side.md").write_text(report.text)


if __name__ == "__main__":
    main()
