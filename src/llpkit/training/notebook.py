"""A fitted model in a notebook: its table and the plot of its history."""

from typing import TYPE_CHECKING, Any

from llpkit._html import html_table
from llpkit.errors import LLPError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from llpkit.training.model import Fitted

_MEASURES = {
    "log_likelihood": "log-likelihood",
    "baseline_log_likelihood": "constant rate",
    "proportion_error": "proportion error",
}


def html(model: "Fitted") -> str:
    """What was fitted, and its measures at the epoch that was kept."""
    settings = model.details.get("settings", {})
    facts = [
        ("classes", "2" if model.num_classes is None else str(model.num_classes)),
        ("inputs", " × ".join(map(str, model.input_shape))),
    ]
    if "method" in settings:
        epochs = f"{model.chosen_epoch} of {len(model.history)}"
        facts += [("method", str(settings["method"])), ("epoch", epochs)]
        facts.append(("learning rate", f"{settings['lr']:g}"))
    kept = kept_row(model)
    rows = []
    for prefix, name in (("", "training bags"), ("held_out_", "held-out bags")):
        values = [kept.get(prefix + key) for key in _MEASURES]
        if values[0] is not None:
            rows.append([name, *("–" if v is None else f"{v:.3f}" for v in values)])
    notes = []
    if "test_accuracy" in kept:
        notes.append(f"test accuracy {kept['test_accuracy']:.1%}")
    baseline = model.details.get("baseline", {})
    notes += [baseline[key] for key in ("warning", "note") if key in baseline]
    return html_table(f"Fitted {name_of(model)}", facts, ["", *_MEASURES.values()], rows, notes)


def plot(model: "Fitted") -> "Figure":
    """The history as a figure."""
    from llpkit.report import Series, history_figure, run_panels, styles
    from llpkit.report.lines import EPOCHS, ITERATIONS

    if not model.history:
        raise LLPError(
            f"this {name_of(model)} has no history to plot; networks have one, and estimators that "
            "learn by EM"
        )
    method = model.details.get("settings", {}).get("method")
    rows = model.history
    if method is None:  # an estimator measures the constant rate once
        base = model.details.get("baseline", {}).get("log_likelihood")
        rows = [{"baseline_log_likelihood": base, **row} for row in rows]
    held_out = any("held_out_log_likelihood" in row for row in rows)
    name = method or name_of(model)
    run = Series(name, 0, rows, model.chosen_epoch if held_out else None)
    return history_figure(run_panels(run, styles([name])[name], EPOCHS if method else ITERATIONS))


def kept_row(model: "Fitted") -> dict[str, Any]:
    """The row of the epoch that was kept, with the constant rate of an estimator."""
    base = model.details.get("baseline", {})
    about = {
        f"{p}baseline_log_likelihood": base.get(f"{p}log_likelihood") for p in ("", "held_out_")
    }
    last = model.history[(model.chosen_epoch or 0) - 1] if model.history else {}
    return {**about, **last}


def name_of(model: "Fitted") -> str:
    """The name of the estimator or the network."""
    known = model.details.get("estimator") or model.network_name
    return str(known or type(model.network).__name__)
