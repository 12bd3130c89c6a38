"""Tables of how-to/large-data.md and several-machines.md, from the records of three benchmarks."""

from large_tables import split
from records import Row
from table_kit import Rows, recorded, table


def large(kind: str) -> list[Row]:
    """The records of one kind, by size."""
    found = recorded("large-tables/large_tables.parquet", kind=kind)
    return sorted(found, key=lambda row: row["rows"])


def fits() -> list[tuple[Row, Row]]:
    """Boosting and logistic regression at every size."""
    return list(zip(large("boosting"), large("logistic"), strict=True))


@table
def large_em() -> Rows:
    """What EM with boosting costs by rows."""
    rows = [["rows"], ["bags"], ["Parquet files, GB"], ["peak memory of a worker, GB"]]
    rows += [["iterations of EM"], ["groups of partitions"], ["CPU s, once: start on a sample"]]
    rows += [["CPU s, once: check, read, bin"], ["CPU s: M-steps (trees)"]]
    rows += [["CPU s: E-steps and all else"], ["E-steps and all else, relative to the M-steps"]]
    rows += [["CPU s per million rows, without the start"], ["elapsed, s"], ["AUC on new rows"]]
    for fit, _ in fits():
        parts = split(fit)
        marks = {e["step"]: e["total_cpu"] for e in fit["events"]}
        start = marks["start"] - marks["check"]
        cells = [
            f"{fit['rows']:,}",
            f"{fit['bags']:,}",
            f"{fit['bytes'] / 1e9:.2f}",
            f"{fit['peak'][0] / 1e9:.2f}",
            str(fit["iterations"]),
            str(next(e["groups"] for e in fit["events"] if e["step"] == "M")),
            f"{start:.0f}",
            f"{parts['once'] - start:.1f}",
            f"{parts['learning']:.1f}",
            f"{parts['rest']:.1f}",
            f"{100 * parts['rest'] / parts['learning']:.1f} %",
            f"{(fit['cpu'] - start) / (fit['rows'] / 1e6):.1f}",
            f"{fit['elapsed']:,.0f}",
            f"{fit['quality']['auc']:.4f}",
        ]
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell)
    return rows


@table
def large_logistic() -> Rows:
    """What logistic regression costs by rows."""
    rows = [["rows"], ["peak memory of a worker, GB"], ["passes"], ["rows kept in memory (1: yes)"]]
    rows += [["CPU s, once: check, start, read"], ["CPU s: reading in every pass"]]
    rows += [["CPU s: likelihoods and gradients"], ["CPU s: all else"]]
    rows += [["CPU s per million rows"], ["elapsed, s"], ["AUC on new rows"]]
    for _, fit in fits():
        parts = split(fit)
        event = next(e for e in fit["events"] if e["step"] == "logistic")
        cells = [
            f"{fit['rows']:,}",
            f"{fit['peak'][0] / 1e9:.2f}",
            str(event["passes"]),
            str(int(event["persisted"])),
            f"{parts['once']:.1f}",
            f"{parts['reading']:.1f}",
            f"{parts['learning']:.1f}",
            f"{parts['rest']:.1f}",
            f"{fit['cpu'] / (fit['rows'] / 1e6):.1f}",
            f"{fit['elapsed']:,.0f}",
            f"{fit['quality']['auc']:.4f}",
        ]
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell)
    return rows


@table
def large_quality() -> Rows:
    """Distributed fits beside those in memory and the truth, on new rows."""
    [known] = large("memory")
    rows = [["", "rows", "AUC: EM", "logistic", "cross-entropy: EM", "logistic"]]
    found = [("in memory, a sample", known["rows"], known["boosting"], known["logistic"])]
    found += [("two workers", boosted["rows"], boosted, linear) for boosted, linear in fits()]
    for name, number, *both in found:
        measures = [f["quality"][m] for m in ("auc", "cross_entropy") for f in both]
        rows.append([name, f"{number:,}", *(f"{value:.4f}" for value in measures)])
    best = [known["best"][m] for m in ("auc", "cross_entropy") for _ in range(2)]
    return [*rows, ["the truth itself", "", *(f"{value:.4f}" for value in best)]]


@table
def large_kill() -> Rows:
    """A fit with and without the loss of a worker."""
    rows = [["rows", "same model, byte for byte", "M-steps restarted", "elapsed, s", "killed"]]
    for found in large("kill"):
        whole, killed = found["seconds"]
        same = "yes" if found["same_bytes"] and found["same_scale"] and found["killed"] else "no"
        again = str(found["m_steps_begun_again"])
        rows.append([f"{found['rows']:,}", same, again, f"{whole:.0f}", f"{killed:.0f}"])
    return rows


@table
def large_predict() -> Rows:
    """What `llpkit predict` costs by rows."""
    rows = [["rows"], ["peak memory, GB"], ["rows per second of one core"]]
    rows += [["rows per second elapsed, on a busy machine"]]
    for found in large("predict"):
        cells = [f"{found['rows']:,}", f"{found['peak'][0] / 1e9:.2f}"]
        cells += [f"{found[k]:,.0f}" for k in ("rows_per_cpu_second", "rows_per_second")]
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell)
    return rows


@table
def process_weights() -> Rows:
    """How far the weights of several processes are from those of one."""
    rows = [
        ["largest relative difference of a weight tensor, float64", "2 processes", "4 processes"]
    ]
    for network, name in (("linear", "linear model"), ("mlp", "MLP")):
        some = recorded("processes/processes.parquet", part="weights", network=network)
        spans = [[r["difference"] for r in some if r["processes"] == number] for number in (2, 4)]
        least_to_largest = [f"{min(values):.1e} to {max(values):.1e}" for values in spans]
        rows.append([f"{name}, {len(spans[0])} methods: least to largest", *least_to_largest])
    return rows


@table
def process_bytes() -> Rows:
    """What a process sends."""
    names = ("bytes per step", "bytes per epoch", "bytes per epoch, counted")
    rows = [["processes", *names[:2], "counted by the system", "seconds per epoch"]]
    rows[0].append("largest part of a step")
    for each in recorded("processes/processes.parquet", part="communication"):
        cells = [f"{each[name]:,}" for name in names]
        if each["processes"] == 1:
            cells[-1] = "–"
        cells += [f"{each['seconds per epoch']:.1f}", f"{each['largest part of a step']:.2f}"]
        rows.append([str(each["processes"]), *cells])
    return rows


@table
def streamed_images() -> Rows:
    """Memory to train on images that are read as they are needed."""
    kept = ("processes", "images", "file, MiB", "decoded, MiB", "peak above a small run, MiB")
    rows = [["training processes", *kept[1:4], "peak memory, MiB"]]
    found = recorded("processes/streaming.parquet")
    return [*rows, *([f"{row[name]:,}" for name in kept] for row in found)]
