"""A plugin file adds methods, networks, augmentations, data sets and estimators to commands."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from llpkit import LLPError, augment, datasets, estimators, load, methods, networks, plugins

FIT = (
    *("fit", "--dataset", "lamps", "--bag-size", 4, "--data-option", "rows=80"),
    *("--method", "ema-teacher", "--method-option", "decay=0.8", "--network", "flat"),
    *("--augment", "speckle", "--strong-augment", "speckle", "--held-out", 0.2),
    *("--test-fraction", 0.2, "--epochs", 10, "--lr", 0.05, "--quiet"),
)


def test_a_plugin_trains_from_the_command_line(llpkit, own_parts):
    plugin = ("--plugin", own_parts)
    refused = llpkit(*FIT, "--out", "run")
    assert refused.code == 2
    for part in ("--dataset = 'lamps'", "--method = 'ema-teacher'", "--network = 'flat'"):
        assert part in refused.err

    done = llpkit(*plugin, *FIT, "--out", "run")
    assert done.code == 0, done.err
    config = yaml.safe_load(Path("run/config.yaml").read_text())
    assert (config["network"], config["augment"]) == ("flat", "speckle")
    assert llpkit(*plugin, "fit", "run/config.yaml", "--out", "again", "--quiet").code == 0
    a, b = (load_file(Path(run, "weights.safetensors")) for run in ("run", "again"))
    assert all(torch.equal(a[key], b[key]) for key in a)

    done = llpkit(*plugin, "evaluate", "run", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["parts"]["test"]["instances"]["accuracy"] > 0.8
    assert llpkit(*plugin, "predict", "run", "--out", "p.csv", "--quiet").code == 0
    assert len(Path("p.csv").read_text().splitlines()) == 81
    assert "ema-teacher on lamps" in Path("run/report.html").read_text()


@pytest.mark.parametrize(
    ("listed", "name", "summary"),
    [
        ("methods", "ema-teacher", "posterior targets for two views"),
        ("networks", "flat", "one linear layer"),
        ("augmentations", "speckle", "Noise in every pixel."),
        ("datasets", "lamps", "small images"),
        ("estimators", "no-intercept", "Logistic regression without an intercept."),
    ],
)
def test_the_lists_show_what_a_plugin_registers(llpkit, own_parts, listed, name, summary):
    assert f"\n{name} " not in llpkit(listed).out
    shown = llpkit("--plugin", own_parts, listed).out
    assert f"\n{name} " in shown
    assert summary in " ".join(shown.split())


REGISTRIES = (
    methods.METHODS,
    networks.NETWORKS,
    datasets.DATASETS,
    augment.AUGMENTATIONS,
    estimators.ESTIMATORS,
)


def forget(before):
    """As in a new process, no plugin is loaded."""
    plugins._loaded.clear()
    for registry, entries in zip(REGISTRIES, before, strict=True):
        registry._entries = dict(entries)


def test_a_run_of_a_plugin_opens_in_every_command(llpkit, own_parts):
    """The option goes before or after the command."""
    before = [dict(registry) for registry in REGISTRIES]
    small = ("--dataset", "digits", "--network", "flat", "--epochs", 1, "--out", "run", "--quiet")
    done = llpkit("fit", *small, "--plugin", own_parts)
    assert done.code == 0, done.err
    commands = (
        ("evaluate", "run"),
        ("predict", "run", "--out", "p.csv"),
        ("export", "run", "--out", "m.onnx"),
        ("fit", "run/config.yaml", "--out", "again"),
    )
    forget(before)
    for command in commands:
        done = llpkit(*command)
        assert (done.code, "--plugin" in done.err) == (2, True), command
    with pytest.raises(LLPError, match="has the network 'flat', which is not registered"):
        load("run")
    for command in commands:
        done = llpkit(*command, "--plugin", own_parts)
        assert done.code == 0, done.err
        forget(before)


PROTOCOL = """
title: Lamps
dataset: lamps
bag_size: 4
folds: 2
recipe: {network: flat, epochs: 4, batch_size: 32, augment: speckle, precision: 32-true}
methods: {mle: {lr: 0.05}, ema-teacher: {lr: 0.05}}
"""


def test_a_plugin_is_compared_on_the_page_of_an_experiment(llpkit, own_parts):
    Path("lamps.yaml").write_text(PROTOCOL)
    plugin = ("--plugin", own_parts)
    done = llpkit(*plugin, "reproduce", "lamps.yaml", "convergence", "--out", "results", "--quiet")
    assert done.code == 0, done.err
    done = llpkit(*plugin, "report", "results")
    assert done.code == 0, done.err
    assert "ema-teacher" in Path(done.out.strip()).read_text()
