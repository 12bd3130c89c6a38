"""Every network and every estimator gives the same probabilities as an ONNX file."""

import sys

import numpy as np
import onnxruntime
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from llpkit import LLPError, export, networks
from llpkit.estimators import (
    ESTIMATORS,
    AlterSVMClassifier,
    InvCalClassifier,
    LLPClassifier,
    LLPEnsembleClassifier,
    LLPLogisticRegression,
    LLPNetworkClassifier,
)
from llpkit.estimators.registry import make
from llpkit.runs import open_run
from llpkit.training import Fitted
from llpkit.training.inputs import Preprocess
from tables import in_bags

NETWORKS = [("small-cnn", (3, 9, 8), None), ("mlp", (5,), 3), ("llp-gan", (5,), None)]
DEEP = [
    ("conv-large", (1, 16, 16), 3),
    ("resnet-9", (1, 16, 16), None),
    ("resnet-18", (1, 16, 16), 3),
    ("wrn-28-2", (1, 8, 8), None),
    ("linear", (5,), None),
    ("llp-gan", (1, 8, 8), 3),
]
"""Torch takes a second or more to trace each of them."""
SMALL = {
    "hist-gradient-boosting": {"max_iter": 3},
    "random-forest": {"n_estimators": 10},
    "lightgbm": {"n_estimators": 10},
    "xgboost": {"n_estimators": 10},
}
BINARY = ("alter-svm", "inv-cal")


def model_of(name, shape, classes, dtype=torch.float32):
    """A network with random weights and statistics, as if it were trained."""
    network = networks.make(name, input_shape=shape, num_outputs=classes or 1)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    axes = (shape[0], 1, 1) if len(shape) == 3 else shape
    preprocess = Preprocess(torch.rand(axes), 0.1 + torch.rand(axes))
    return Fitted(network.to(dtype), preprocess, classes, shape)


def table(classes, rows=120):
    random = np.random.default_rng(0)
    X = random.normal(size=(rows, 3))
    z = X[:, 0] + 0.5 * X[:, 1] ** 2
    labels = (z > 0.5).astype(int) if classes == 2 else np.digitize(z, [0.0, 0.9])
    return in_bags(X, labels, 4, num_classes=None if classes == 2 else classes)


def fitted(name, classes):
    data = table(classes)
    if name == "ensemble":
        trees = LLPClassifier(HistGradientBoostingClassifier(max_iter=5, early_stopping=False))
        network = LLPNetworkClassifier(hidden_layer_sizes=(3,))
        members = [LLPLogisticRegression(), trees, network]
        estimator = LLPEnsembleClassifier(members, random_state=0)
    else:
        estimator = make(name, SMALL.get(name, {}), seed=0, threads=1)
    return estimator.fit(data.X, data.y, data.groups)


def session_of(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def assert_same(path, inputs, wanted):
    session = session_of(path)
    name = session.get_inputs()[0].name
    probability, label = session.run(["probability", "label"], {name: inputs})
    np.testing.assert_allclose(probability, wanted, atol=1e-5, rtol=0)
    clear = np.ptp(np.sort(wanted, 1)[:, -2:], 1) > 1e-4
    assert (label == wanted.argmax(1))[clear].all()


def test_every_network_is_compared():
    assert {name for name, _, _ in NETWORKS + DEEP} == set(networks.NETWORKS)


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [*NETWORKS, *(pytest.param(*case, marks=pytest.mark.slow) for case in DEEP)],
)
def test_a_network(name, shape, classes, tmp_path):
    model = model_of(name, shape, classes)
    done = export.onnx(model, tmp_path / "model.onnx")
    images = len(shape) == 3
    assert done.inputs == ("images" if images else "features",)
    draw = torch.Generator().manual_seed(3)
    inputs = torch.randn(7, *shape, generator=draw)
    if images:
        inputs = torch.randint(256, (7, *shape), generator=draw, dtype=torch.uint8)
    assert_same(done.path, inputs.numpy(), model.predict_proba(inputs).numpy())


def test_a_network_in_double_precision_that_takes_float_images(tmp_path):
    model = model_of("linear", (1, 4, 4), None, torch.float64)
    done = export.onnx(model, tmp_path / "model.onnx", float_images=True)
    images = torch.rand(5, 1, 4, 4)
    assert_same(done.path, images.numpy(), model.predict_proba(images).numpy())


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.filterwarnings("ignore")  # some do not converge on so little
def test_an_estimator(name, classes, tmp_path):
    if classes > 2 and name in BINARY:
        pytest.skip("binary")
    model = fitted(name, classes)
    done = export.onnx(model, tmp_path / "model.onnx")
    assert done.class_names == tuple(map(str, range(classes)))
    X = 2 * np.random.default_rng(5).normal(size=(300, 3))
    assert_same(done.path, X, model.predict_proba(X))


@pytest.mark.parametrize(
    "model",
    [
        LLPClassifier(LogisticRegression()),
        LLPClassifier(SVC(kernel="linear")),
        InvCalClassifier(kernel="rbf"),
        AlterSVMClassifier(kernel="rbf", n_init=1, random_state=0),
    ],
    ids=lambda model: f"{type(model).__name__}",
)
@pytest.mark.filterwarnings("ignore")
def test_a_variant_of_an_estimator(model, tmp_path):
    data = table(2, 80)
    model.fit(data.X, data.y, data.groups)
    export.onnx(model, tmp_path / "model.onnx", rows=data.X)


def splits(model):
    """Features and thresholds of all trees, whatever the package."""
    if hasattr(model, "_predictors"):
        nodes = [tree.nodes for (tree,) in model._predictors]
        inner = [n[n["is_leaf"] == 0] for n in nodes]
        return [
            pair for n in inner for pair in zip(n["feature_idx"], n["num_threshold"], strict=False)
        ]
    if hasattr(model, "estimators_"):
        trees = [tree.tree_ for tree in model.estimators_]
        return [
            (f, t)
            for tree in trees
            for f, t in zip(tree.feature, tree.threshold, strict=False)
            if f >= 0
        ]
    if hasattr(model, "booster_"):
        frame = model.booster_.trees_to_dataframe().dropna(subset="threshold")
        return [
            (int(f.split("_")[1]), t)
            for f, t in zip(frame.split_feature, frame.threshold, strict=False)
        ]
    frame = model.get_booster().trees_to_dataframe().dropna(subset="Split")
    return [(int(f[1:]), t) for f, t in zip(frame.Feature, frame.Split, strict=False)]


@pytest.mark.parametrize("precision", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["hist-gradient-boosting", "random-forest", "lightgbm", "xgboost"])
@pytest.mark.filterwarnings("ignore")
def test_rows_next_to_a_threshold_fall_on_the_right_side(name, precision, tmp_path):
    model = fitted(name, 2)
    found = splits(model.estimator_)
    X = np.zeros((3 * len(found), 3))
    for i, (feature, threshold) in enumerate(found):
        at = precision(threshold)
        X[3 * i : 3 * i + 3, feature] = np.nextafter(at, np.array([-np.inf, at, np.inf], precision))
    if name != "random-forest":  # boosting takes missing values
        gone = X[:10].copy()
        gone[:, 1] = np.nan
        X = np.concatenate([X, gone])
    done = export.onnx(model, tmp_path / "model.onnx", rows=X)
    assert done.compared.own_rows == len(X)
    assert_same(done.path, X, model.predict_proba(X))


class Shifted(LLPLogisticRegression):
    def _logits(self, X):
        return super()._logits(X) + 1e-3


def test_a_file_that_differs_is_not_written(tmp_path):
    data = table(2)
    model = Shifted().fit(data.X, data.y, data.groups)
    with pytest.raises(LLPError, match=r"differs from the model by 0\.0002.*no file was written"):
        export.onnx(model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("classifier", [KNeighborsClassifier(), DecisionTreeClassifier()])
def test_a_classifier_that_cannot_be_exported(classifier, tmp_path):
    data = table(2)
    model = LLPClassifier(DecisionTreeClassifier()).fit(data.X, data.y, data.groups)
    model.estimator_ = classifier.fit(data.X, data.labels)
    with pytest.raises(LLPError, match=rf"{type(classifier).__name__} cannot be exported.*Forest"):
        export.onnx(model, tmp_path / "model.onnx")


def test_an_estimator_whose_parts_do_not_fit_together(tmp_path):
    model = fitted("logistic", 2)
    del model.intercept_
    with pytest.raises(LLPError, match=r"cannot be exported: .*intercept_.*; fit it again"):
        export.onnx(model, tmp_path / "model.onnx")


def test_what_is_not_a_model_is_refused(tmp_path):
    with pytest.raises(LLPError, match="model is a int; give a run directory"):
        export.onnx(3, tmp_path / "model.onnx")
    with pytest.raises(LLPError, match=r"model\.bin does not end in \.onnx"):
        export.onnx(3, tmp_path / "model.bin")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxscript"])
def test_a_missing_package_is_named(package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        LLPError, match=rf"{package} is not installed; pip install 'llpkit\[onnx\]'"
    ):
        export.onnx(model_of("linear", (2,), None), tmp_path / "model.onnx")


def test_a_torch_program(tmp_path):
    model = model_of("small-cnn", (3, 9, 8), 3)
    done = export.torch(model, tmp_path / "model.pt2")
    assert done.compared.difference <= 1e-6
    program = torch.export.load(done.path).module()
    inputs = torch.zeros(1, 3, 9, 8, dtype=torch.uint8)
    probability, label = program(inputs)
    torch.testing.assert_close(probability, model.predict_proba(inputs))
    assert label.tolist() == model.predict(inputs).tolist()


def test_an_estimator_is_no_torch_program(tmp_path):
    with pytest.raises(LLPError, match=r"is not a network.*export it to ONNX"):
        export.torch(fitted("logistic", 2), tmp_path / "model.pt2")


def test_a_model_of_a_data_frame_takes_its_columns_lists_included(tmp_path):
    import pandas as pd
    from onnxruntime import InferenceSession

    import llpkit

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"bag": np.repeat(np.arange(20), 4), "age": rng.normal(size=80)})
    frame["embedding"] = [None, *rng.normal(size=(79, 3)).astype(np.float32)]
    frame["n"] = (frame.age > 0).groupby(frame.bag).transform("sum").astype(int)
    bags = llpkit.Bags.from_frame(frame, bag="bag", count="n")
    model = llpkit.fit("linear", bags, frame, epochs=2, lr=0.1, progress=False)
    file = tmp_path / "model.onnx"
    export.onnx(model, file, rows=frame)
    lists = np.stack([np.full(3, np.nan), *frame.embedding[1:]])
    found = InferenceSession(file).run(
        ["probability"], {"age": frame.age.to_numpy(), "embedding": lists.astype(np.float64)}
    )
    assert np.abs(found[0] - model.predict_proba(frame).numpy()).max() <= 1e-5


def test_a_folder_that_save_wrote(tmp_path):
    network = networks.make("mlp", input_shape=(3,), num_outputs=1)
    same = Preprocess(torch.zeros(()), torch.ones(()))
    Fitted(network, same, None, (3,), [], network_name="mlp").save(tmp_path / "model")
    assert export.onnx(str(tmp_path / "model"), tmp_path / "m.onnx").compared.rows > 0
    with pytest.raises(LLPError, match=r"saved by model\.save, not a run.*llpkit\.load"):
        open_run(tmp_path / "model")
