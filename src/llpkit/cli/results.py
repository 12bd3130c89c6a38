"""What ``fit`` and ``evaluate`` print about a model."""

from collections.abc import Mapping, Sequence
from typing import Any

from llpkit.cli.printing import echo, note

_MOST = 10  # candidates of a search


def measure_table(parts: Mapping[str, Mapping[str, Any]]) -> Any:
    """A table of metrics, one column per part."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    for name in parts:
        table.add_column(name, justify="right")
    keys = dict.fromkeys(
        (group, key) for part in parts.values() for group, values in part.items() for key in values
    )
    for group, key in keys:
        label = group if key == "number" else f"  {key.replace('_', ' ').replace('auc', 'AUC')}"
        values = [part.get(group, {}).get(key) for part in parts.values()]
        table.add_row(label, *(_figure(key, value) for value in values))
    return table


def _figure(key: str, value: Any) -> str:
    if value is None:
        return "–"
    if key in ("number", "without_counts", "approximated"):
        return f"{value:,}"
    return f"{value:.2%}" if key == "accuracy" else f"{value:.4f}"


def search_table(tried: Sequence[Mapping[str, Any]]) -> Any:
    """The best candidates of a search."""
    from rich.table import Table

    more = f" (the best {_MOST} of {len(tried)})" if len(tried) > _MOST else ""
    title = f"log-likelihood per held-out training bag, ± standard error over folds{more}"
    table = Table(box=None, padding=(0, 2, 0, 0), title=title, title_justify="left")
    names = list(tried[0]["settings"])
    for name in [*names, "log likelihood", "behind the best"]:
        table.add_column(name, justify="right")
    for i, candidate in enumerate(tried[:_MOST]):
        mean = _spread(candidate["mean"], candidate["standard_error"])
        behind = _spread(candidate["behind"], candidate["behind_error"]) if i else "selected"
        table.add_row(*(str(candidate["settings"][name]) for name in names), mean, behind)
    return table


def _spread(value: float | None, error: float | None) -> str:
    return "–" if value is None else f"{value:.4f} ± {error or 0:.4f}"


def print_verdict(verdict: Mapping[str, Any] | None) -> None:
    """Print the verdict on a model, as a warning unless all is well."""
    if verdict is not None:
        (echo if verdict["ok"] else note)(verdict["text"])
