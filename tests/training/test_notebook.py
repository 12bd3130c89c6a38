"""What a notebook shows: tables, plots and a progress bar."""

import re

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import llpkit
from llpkit import Bags, Evidence, LLPError
from llpkit.runs.estimator import FittedEstimator
from llpkit.training import TestMetrics


@pytest.fixture(scope="module")
def fitted():
    x = torch.randn(120, 2, generator=torch.Generator().manual_seed(0))
    truth = (x[:, 0] > 0).long()
    bags = llpkit.random_bags(truth, size=4, generator=0)
    test = TestMetrics(x[:20], truth[:20])
    return llpkit.fit(
        "linear", bags, x, "mle", epochs=3, held_out=0.3, callbacks=test, progress=False
    )


def cells(text):
    """The rows of an HTML table, as text."""
    rows = re.findall(r"<tr>(.*?)</tr>", text)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def test_bags_show_the_first_of_them():
    bags = Bags.from_groups(np.repeat(list("abcdefg"), 2), dict.fromkeys("abcdefg", 1))
    found = bags._repr_html_()
    assert cells(found)[:2] == [["bag", "size", "positives"], ["a", "2", "1"]]
    assert len(cells(found)) == 6
    assert "… and 2 more" in found


def test_ids_are_escaped():
    found = Bags.from_groups(["<script>"], {"<script>": 1})._repr_html_()
    assert "<script>" not in found
    assert "&lt;script&gt;" in found


def test_evidence_shows_what_is_known():
    evidence = Evidence.concat(
        [
            Evidence.exact([2]),
            Evidence.interval([1], [3]),
            Evidence.at_least([1]),
            Evidence.unknown(1),
            Evidence.weights([0.0, -1.0, -2.0], [0, 3]),
        ]
    )
    found = [row[1] for row in cells(evidence._repr_html_())[1:]]
    assert found == ["2", "1 to 3", "at least 1", "unknown", "0 to 2, weighted"]


@pytest.mark.parametrize(("classes", "columns"), [(3, 4), (40, 14)])
def test_many_classes_are_cut_short(classes, columns):
    found = cells(Evidence.exact(torch.ones(2, classes, dtype=torch.int64))._repr_html_())
    assert {len(row) for row in found} == {columns}


def test_a_model_shows_its_measures_at_the_selected_epoch(fitted):
    found = cells(fitted._repr_html_())
    selected = fitted.history[fitted.selected_epoch - 1]
    assert [row[0] for row in found] == ["", "training bags", "held-out bags"]
    assert found[2][1] == f"{selected['held_out_log_likelihood']:.3f}"
    assert "Fitted linear" in fitted._repr_html_()


def test_the_plot_has_the_history_and_the_constant_rate(fitted):
    figure = fitted.plot()
    assert isinstance(figure, Figure)
    assert figure._repr_png_().startswith(b"\x89PNG")
    titles = {text.get_text() for axes in figure.axes for text in axes.texts}
    assert {"Accuracy on test instances", "Log-likelihood, mean of bags"} <= titles
    assert {"training", "held out", "constant rate", "selected"} <= titles
    drawn = [list(line.get_ydata()) for axes in figure.axes for line in axes.lines]
    assert [row["held_out_log_likelihood"] for row in fitted.history] in drawn


def test_an_estimator_has_a_plot_if_it_learned_by_em():
    history = [{"epoch": i, "out_of_fold_log_likelihood": -1 / i} for i in (1, 2, 3)]
    training = {"log_likelihood": -0.2, "baseline": -1.5}
    about = {"estimator": "naive-bayes", "baseline": {"rate": 0.5, "training": training}}
    model = FittedEstimator(None, None, 2, history, about)
    figure = model.plot()
    assert len(figure.axes) == 1
    assert figure.axes[0].get_xlabel() == "iteration"
    assert {text.get_text() for text in figure.axes[0].texts} >= {"out of fold", "constant rate"}
    assert cells(model._repr_html_())[1][:3] == ["training bags", "-0.200", "-1.500"]
    assert "training bags: mean log-likelihood -0.200 (constant rate -1.500)" in repr(model)
    with pytest.raises(LLPError, match="logistic has no history to plot"):
        FittedEstimator(None, None, 2, [], {"estimator": "logistic"}).plot()


def test_a_bar_in_a_notebook_stays_there_in_its_last_state():
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    from nbformat.v4 import new_code_cell, new_notebook

    cell = new_code_cell(
        "import sys\n"
        "sys.modules['ipywidgets'] = None  # it is not needed\n"
        "from llpkit.progress import progress, task\n"
        "with progress(title='<fit>'), task('EM', 3) as steps:\n"
        "    for _ in range(3):\n"
        "        steps.step('log-likelihood -1')\n"
    )
    notebook = new_notebook(cells=[cell])
    nbclient.NotebookClient(notebook, kernel_name="python3").execute()
    (shown,) = notebook.cells[0].outputs
    assert "&lt;fit&gt;" in shown.data["text/html"]
    assert "width:100.0%" in shown.data["text/html"]
    assert "EM 3/3 log-likelihood -1" in shown.data["text/plain"]
