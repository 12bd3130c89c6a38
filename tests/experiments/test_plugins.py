import json

import pytest

from llpkit.methods import METHODS

METHOD = """
import torch
from llpkit import methods

@methods.register
class Mine(methods.BagMethod):
    key = "of-my-own"
    summary = "squared difference between the expected and the known count"

    def bag_loss(self, logits, evidence, offsets):
        expected = torch.segment_reduce(logits.sigmoid(), "sum", offsets=offsets)
        return (expected - evidence.counts) ** 2
"""
REPRODUCE = ["reproduce", "convergence", "--quick", "--epochs", "1", "--folds", "2"]


@pytest.fixture
def plugin(tmp_path):
    path = tmp_path / f"of_{tmp_path.name.replace('-', '_')}.py"  # one module name a test
    path.write_text(METHOD)
    yield path
    METHODS.pop("of-my-own", None)


def run(llpkit, plugin, results, *more):
    methods = ["--methods", "of-my-own,mle"]
    return llpkit("--plugin", plugin, *REPRODUCE, *methods, "--out", results, *more)


def test_a_method_of_ones_own_is_compared_and_drawn_even_where_it_is_not_known(
    llpkit, plugin, tmp_path
):
    results = tmp_path / "results"
    assert run(llpkit, plugin, results)[0] == 0
    del METHODS["of-my-own"]
    assert llpkit("report", results)[0] == 0
    summary = (results / "report" / "summary.md").read_text()
    assert "of-my-own" in summary
    mine = [p for p in results.glob("records/*/*.json") if "of-my-own" in p.read_text()]
    code, _, errors = llpkit("reproduce", "check", mine[0])
    assert code == 2
    assert "'of-my-own', which is not known here; load it with llpkit --plugin" in errors


def test_its_source_is_part_of_the_record(llpkit, plugin, tmp_path):
    assert run(llpkit, plugin, tmp_path / "r")[0] == 0
    records = [json.loads(p.read_text()) for p in tmp_path.glob("r/records/*/*.json")]
    codes = {record["run"]["method"]: record["code"] for record in records}
    assert codes["of-my-own"] != codes["mle"]


def test_workers_load_it_too(llpkit, plugin, tmp_path):
    assert run(llpkit, plugin, tmp_path / "r", "--jobs", "2")[0] == 0
    assert len(list(tmp_path.glob("r/records/*/*.json"))) == 4


def test_what_cannot_be_loaded_is_told(llpkit, tmp_path):
    assert "there is no file" in llpkit("--plugin", tmp_path / "no.py", "methods")[2]
    bad = tmp_path / "a_bad_one.py"
    bad.write_text("x = 1\nimport not_there_at_all\n")
    code, _, errors = llpkit("--plugin", bad, "methods")
    assert code == 2
    assert "No module named 'not_there_at_all' (a_bad_one.py, line 2)" in errors


def test_fit_and_predict_take_it(llpkit, plugin, tmp_path):
    how = ["fit", "--dataset", "digits", "--epochs", "1", "--method", "of-my-own"]
    assert llpkit("--plugin", plugin, *how, "--out", tmp_path / "run")[0] == 0
    del METHODS["of-my-own"]
    predict = ["predict", tmp_path / "run", "--out", tmp_path / "p.csv"]
    code, _, errors = llpkit(*predict)
    assert code == 2
    assert "one of your own has to be registered" in errors
    assert llpkit("--plugin", plugin.rename(tmp_path / "moved.py"), *predict)[0] == 0


def test_a_plugin_may_be_called_as_a_library_and_have_neighbours(llpkit, plugin, tmp_path):
    (tmp_path / "its_neighbour.py").write_text("NUMBER = 1\n")
    plugin.write_text("from its_neighbour import NUMBER\n" + METHOD)
    code, out, errors = llpkit("--plugin", plugin.rename(tmp_path / "matplotlib.py"), "methods")
    assert code == 0, errors
    assert "of-my-own" in out
    import matplotlib.ticker  # noqa: F401
