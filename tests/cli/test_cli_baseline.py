"""The constant rate beside every log-likelihood that the commands print, and the note."""

import json

import numpy as np
import pytest

COLUMNS = ("--bag", "bag", "--count", "count")
MODELS = {
    "network": ("--network", "linear", "--lr", 0.03, "--epochs", 20),
    "logistic": ("--estimator", "logistic"),
    "boosting": (
        *("--estimator", "hist-gradient-boosting", "--estimator-option", "max_iter=2"),
        *("--estimator-option", "estimator__max_iter=20"),
    ),
}


def table(path, scrambled):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1200, 3))
    bag = np.arange(1200) // 6
    count = np.bincount(bag, x[:, 0] > 0).astype(int)
    if scrambled:
        count = rng.permutation(count)
    lines = [
        f"b{b},{count[b]},{','.join(f'{v:.3f}' for v in row)}"
        for b, row in zip(bag, x, strict=True)
    ]
    path.write_text("\n".join(["bag,count,u,v,w", *lines]) + "\n")
    return path


@pytest.mark.parametrize("held_out", [(), ("--held-out", 0.2)], ids=["", "held-out"])
@pytest.mark.parametrize("model", MODELS)
def test_a_note_if_the_model_learned_nothing(llpkit, tmp_path, model, held_out):
    """Without held-out bags nobody can tell."""
    for scrambled in (True, False):
        data = table(tmp_path / "t.csv", scrambled)
        done = llpkit("fit", data, *COLUMNS, *MODELS[model], *held_out, "--out", "run", "--force")
        assert done.code == 0, done.err
        assert "baseline log likelihood" in done.out
        page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
        assert "Constant rate" in page
        told = scrambled and bool(held_out)
        for text in (done.err, page):
            assert ("if every instance has the same probability" in text) == told
            assert ("cannot be known" in text) == (not held_out and not told)

    done = llpkit("evaluate", "run", "--json")
    for part in json.loads(done.out)["parts"].values():
        bags = part["bags"]
        assert bags["log_likelihood"] > bags["baseline_log_likelihood"]
    # Other data are held against the rate of the training bags.
    done = llpkit("evaluate", "run", data, "--json")
    assert json.loads(done.out)["parts"]["all"]["bags"]["baseline_log_likelihood"] < -1


def test_measure_is_an_option_and_a_setting(llpkit, tmp_path):
    data = table(tmp_path / "t.csv", False)
    (tmp_path / "c.yaml").write_text("measure: off\nepochs: 1\nnetwork: linear\n")
    for out, options in (("a", ("--measure", "off")), ("b", ())):
        config = () if options else ("c.yaml", "--table")
        extra = (*options, "--network", "linear", "--epochs", 1) if options else ()
        done = llpkit("fit", *config, data, *COLUMNS, *extra, "--out", out)
        assert done.code == 0, done.err
        head = (tmp_path / out / "metrics.csv").read_text().splitlines()[0].split(",")
        assert "log_likelihood" not in head
        assert {"seconds", "measure_seconds"} <= set(head)
    done = llpkit("fit", data, *COLUMNS, "--measure", "some")
    assert (done.code, "--measure = 'some'; give auto, all or off" in done.err) == (2, True)
