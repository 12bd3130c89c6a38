"""How a fitted model is shown, in a terminal and in a notebook: its metrics, a table and a plot."""

from typing import TYPE_CHECKING, Any

from llpkit._text import html_table
from llpkit.errors import LLPError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from llpkit.training.model import Fitted

_MEASURES = ("log-likelihood", "constant rate", "proportion error")


def html(model: "Fitted") -> str:
    """The model as an HTML table: its settings, and its metrics at the selected epoch."""
    settings = model.details.get("settings", {})
    facts = [
        ("classes", "2" if model.num_classes is None else str(model.num_classes)),
        ("inputs", " × ".join(map(str, model.input_shape))),
    ]
    if "method" in settings:
        epochs = f"{model.selected_epoch} of {len(model.history)}"
        facts += [("method", str(settings["method"])), ("epoch", epochs)]
        facts.append(("learning rate", f"{settings['lr']:g}"))
    rows = [
        [f"{part} bags", *("–" if v is None else f"{v:.3f}" for v in values)]
        for part, values in measured(model).items()
    ]
    notes = []
    if "test_accuracy" in _selected_row(model):
        notes.append(f"test accuracy {_selected_row(model)['test_accuracy']:.1%}")
    if "verdict" in model.details:
        notes.append(model.details["verdict"]["text"])
    return html_table(f"Fitted {name_of(model)}", facts, ["", *_MEASURES], rows, notes)


def plot(model: "Fitted") -> "Figure":
    """The history as a figure."""
    from llpkit.report import history_figure, run_panels, styles
    from llpkit.report.lines import EPOCHS, ITERATIONS

    if not model.history:
        raise LLPError(
            f"this {name_of(model)} has no history to plot; networks have one, and estimators that "
            "learn by EM"
        )
    method = model.details.get("settings", {}).get("method")
    rows = model.history
    if method is None:  # an estimator measures the constant rate once
        base = model.details.get("baseline", {}).get("training", {}).get("baseline")
        rows = [{"baseline_log_likelihood": base, **row} for row in rows]
    held_out = any("held_out_log_likelihood" in row for row in rows)
    name = method or name_of(model)
    selected = model.selected_epoch if held_out else None
    x = EPOCHS if method else ITERATIONS
    return history_figure(run_panels(name, rows, styles([name])[name], selected, x))


def measured(model: "Fitted") -> dict[str, list[float | None]]:
    """Log-likelihood, constant rate and proportion error of the model, by the part of the bags."""
    selected, parts = _selected_row(model), {}
    for prefix, part in (("", "training"), ("held_out_", "held-out")):
        keys = ("log_likelihood", "baseline_log_likelihood", "proportion_error")
        if f"{prefix}log_likelihood" in selected:
            parts[part] = [selected.get(prefix + key) for key in keys]
    # The history has metrics of a network that was still learning, or of EM's folds; these are of
    # the fitted model.
    for part, values in model.details.get("baseline", {}).items():
        if part != "rate":
            error = parts[part][2] if part == "held-out" and part in parts else None
            parts[part] = [values["log_likelihood"], values["baseline"], error]
    return parts


def _selected_row(model: "Fitted") -> dict[str, Any]:
    """The history's row of the selected epoch; estimators have none."""
    if "estimator" in model.details or not model.history:
        return {}
    return model.history[(model.selected_epoch or 0) - 1]


def name_of(model: "Fitted") -> str:
    """The name of the estimator or the network."""
    known = model.details.get("estimator") or model.network_name
    return str(known or type(model.network).__name__)
