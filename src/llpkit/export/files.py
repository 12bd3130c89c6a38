"""Writing a model to a file for other programs, and checking the file against the model."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from llpkit._arrays import Array
from llpkit._package import package
from llpkit._validation import option
from llpkit.errors import LLPError
from llpkit.export.check import Compared, ComparedRows, Predict, compare
from llpkit.export.encoder import add_encoder, columns_by_input, tensors_of
from llpkit.export.estimators import add_estimator
from llpkit.export.graph import OUTPUTS, ROWS, Graph, joined
from llpkit.export.networks import FEATURES, input_of, loaded, network_model, program_of, saved
from llpkit.export.source import Source, source_of
from llpkit.files import atomic, check_apart, path_of, write_bytes
from llpkit.tables import FeatureEncoder
from llpkit.training import Fitted

ABOUT = "llpkit.json"
"""The description of the model in a torch program."""


@dataclass(frozen=True)
class Exported:
    """A file that was written."""

    path: Path
    inputs: tuple[str, ...]
    class_names: tuple[str, ...]
    compared: Compared
    """The comparison of the file with the model."""
    coded: tuple[str, ...] = ()
    """Inputs that take the numbers of levels instead of text, in a torch program."""


def to_onnx(
    model: Any,
    path: str | os.PathLike[str],
    *,
    rows: Any = None,
    float_images: bool = False,
    force: bool = False,
) -> Exported:
    """Write a model as an ONNX file.

    The inputs are the raw columns of the run's table, one tensor ``(n,)`` each: numbers are
    float64, NaN if missing; categories are text, empty if missing. Without a table there is one
    input, ``features`` ``(n, D)`` or ``images`` ``(n, C, H, W)``. The outputs are ``probability``
    ``(n, K)`` and ``label`` ``(n,)``, the number of a class.

    The file is run with onnxruntime and compared with the model, on rows of the run's data, if it
    can still be read, and on random rows. If a probability differs by more than 1e-5, no file is
    written.

    Args:
        model: A run directory, what :func:`llpkit.fit` returned, or a fitted estimator.
        path: The file; its name must end in ``.onnx``.
        rows: Further rows to compare on: an array or, for a run with a table, a CSV or Parquet
            file.
        float_images: Whether images are floats, as in training, instead of 0 to 255.
        force: Replace an existing file.

    >>> import tempfile
    >>> from llpkit.estimators import LLPLogisticRegression
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]])
    >>> model = LLPLogisticRegression().fit(X, [0, 0, 0, 2, 2, 2], [0, 0, 0, 1, 1, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = to_onnx(model, f"{folder}/model.onnx", rows=X)
    >>> done.inputs, done.compared.difference < 1e-6
    (('features',), True)
    """
    file = _target(path, ".onnx", force)
    for name in ("onnx", "onnxruntime"):
        package(name, "onnx")
    source = source_of(model)
    check_apart(file, source.files)
    content, name, dtype = _onnx(source, float_images)
    with atomic(file) as temporary:
        temporary.write_bytes(content)
        compared = compare(source, _onnx_predict(temporary), name, dtype, rows)
    inputs = [name] if source.encoder is None else columns_by_input(source.encoder)
    return Exported(file, tuple(inputs), source.class_names, compared)


def to_torch(
    model: Any,
    path: str | os.PathLike[str],
    *,
    rows: Any = None,
    float_images: bool = False,
    force: bool = False,
) -> Exported:
    """Write a network as a program of :mod:`torch.export`, checked as in :func:`to_onnx`.

    ``torch.export.load(path).module()(inputs)`` returns probabilities ``(n, K)`` and labels
    ``(n,)``. For tables, ``inputs`` is a dictionary of raw columns as in :func:`to_onnx`, except
    that a program takes no text: a category is the number of its level, int64 ``(n,)``, where -1
    means missing and the number of levels any other value. ``llpkit.json`` in the file lists the
    levels.

    Args:
        model: A run directory of a network, or what :func:`llpkit.fit` returned.
        path: The file; its name must end in ``.pt2``.
        rows: Further rows to compare on, as for :func:`to_onnx`.
        float_images: Whether images are floats, as in training, instead of 0 to 255.
        force: Replace an existing file.
    """
    file = _target(path, ".pt2", force)
    source = source_of(model)
    if not source.is_network:
        raise LLPError(
            f"{type(source.estimator).__name__} is not a network, so it cannot be a torch program; "
            "export it to ONNX"
        )
    assert isinstance(source.model, Fitted)
    check_apart(file, source.files)
    name, dtype = input_of(source.model, float_images)
    about = source.about(levels=True)
    content = saved(program_of(source.model, dtype, source.encoder), {ABOUT: _text(about)})
    predict = _torch_predict(loaded(content), name, source.encoder)
    compared = compare(source, predict, name, _numpy(dtype), rows)
    write_bytes(file, content)
    columns = about.get("columns", [{"input": name}])
    coded = tuple(column["input"] for column in columns if "levels" in column)
    inputs = tuple(column["input"] for column in columns)
    return Exported(file, inputs, source.class_names, compared, coded)


def _target(path: Any, ending: str, force: bool) -> Path:
    file = path_of("path", path).expanduser()
    if file.suffix.lower() != ending:
        raise LLPError(f"{file} does not end in {ending}; choose a name that does")
    if not file.parent.is_dir():
        raise LLPError(f"{file} cannot be written: there is no folder {file.parent}; create it")
    if os.path.lexists(file) and not (force and file.is_file()):
        raise LLPError(
            f"{file} exists; choose another name, or replace it with {option('force', True)}"
        )
    return file


def _onnx(source: Source, float_images: bool) -> tuple[bytes, str, Any]:
    """The file, and the name and type of the input if there is no table."""
    import onnx

    name, dtype = FEATURES, np.dtype(np.float64)
    if isinstance(source.model, Fitted):
        name, kind = input_of(source.model, float_images)
        dtype = _numpy(kind)
    graph = Graph()
    if source.is_network:
        assert isinstance(source.model, Fitted)
        made = network_model(source.model, name, input_of(source.model, float_images)[1])
        if source.encoder is not None:
            width = len(source.encoder.feature_names)
            made = joined(graph, add_encoder(graph, source.encoder), width, made)
    else:
        estimator = source.estimator
        if source.encoder is not None:
            x = add_encoder(graph, source.encoder)
        else:
            x = graph.input(name, dtype, (estimator.n_features_in_,))
        of_run = isinstance(source.model, Fitted)
        try:
            p = add_estimator(graph, estimator, graph.cast(x, np.float64), of_run=of_run)
        except LLPError:
            raise
        except Exception as error:  # a loaded file may contain parts that do not fit together
            raise LLPError(f"the estimator cannot be exported: {error!r}; fit it again") from error
        made = graph.finish(p, len(estimator.classes_))
    for value in (*made.graph.input, *made.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = ROWS
    about = source.about()
    made.producer_name, made.producer_version = "llpkit", about["llpkit_version"]
    onnx.helper.set_model_props(made, {key: _text(value) for key, value in about.items()})
    onnx.checker.check_model(made)
    return made.SerializeToString(), name, dtype


def _onnx_predict(path: Path) -> Predict:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def predict(rows: ComparedRows) -> tuple[Array, Array]:
        probability, label = session.run(list(OUTPUTS), rows.feeds)
        return probability, label

    return predict


def _torch_predict(program: torch.nn.Module, name: str, encoder: FeatureEncoder | None) -> Predict:
    def predict(rows: ComparedRows) -> tuple[Array, Array]:
        inputs: Any = rows.feeds
        inputs = torch.as_tensor(inputs[name]) if encoder is None else tensors_of(encoder, inputs)
        with torch.no_grad():
            probability, label = program(inputs)
        return probability.numpy(), label.numpy()

    return predict


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _numpy(dtype: torch.dtype) -> Any:
    return np.dtype(np.uint8 if dtype == torch.uint8 else np.float32)
