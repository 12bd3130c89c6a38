"""An ONNX graph, built node by node."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from llpkit._arrays import Array

Name = str
"""The name of a value in the graph."""

OPSET, ML_OPSET, IR = 18, 5, 10
"""Read by onnxruntime 1.21 and newer: older ones have no TreeEnsemble."""
OUTPUTS = ("probability", "label")
ROWS = "rows"
"""The name of the first axis, which may have any length."""
_OWN = "llpkit/"


class Graph:
    """The nodes, inputs and constants of a graph; methods return names of values."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.constants: list[Any] = []

    def input(self, name: str, dtype: Any, shape: Sequence[int] = ()) -> Name:
        """An input whose rows have this shape."""
        self.inputs.append(_info(name, dtype, [ROWS, *shape]))
        return name

    def constant(self, value: Any, dtype: Any = np.float64) -> Name:
        """A constant."""
        from onnx import numpy_helper

        name = f"{_OWN}constant {len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def add(self, kind: str, *inputs: Name, **attributes: Any) -> Name:
        """The output of a new node."""
        from onnx import helper

        name = f"{_OWN}{kind} {len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def cast(self, value: Name, dtype: Any) -> Name:
        """A value converted to another type."""
        return self.add("Cast", value, to=_type(dtype))

    def column(self, value: Name) -> Name:
        """``(n, 1)`` from ``(n,)``."""
        return self.add("Unsqueeze", value, self.constant([1], np.int64))

    def linear(self, x: Name, weights: Array, intercept: Any) -> Name:
        """``x @ weights + intercept``."""
        product = self.add("MatMul", x, self.constant(weights))
        return self.add("Add", product, self.constant(intercept))

    def affine(self, x: Name, slope: Any, shift: Any) -> Name:
        """``slope * x + shift``."""
        return self.add("Add", self.add("Mul", x, self.constant(slope)), self.constant(shift))

    def probabilities(self, logits: Name, classes: int) -> Name:
        """Probabilities ``(n, K)`` from logits ``(n, 1)`` of the second class, or ``(n, K)``."""
        if classes > 2:
            return self.add("Softmax", logits, axis=1)
        both = [self.add("Neg", logits), logits]
        return self.add("Concat", *(self.add("Sigmoid", z) for z in both), axis=1)

    def finish(self, probability: Name, classes: int) -> Any:
        """The model with the outputs of :data:`OUTPUTS`, from probabilities ``(n, K)``."""
        from onnx import helper

        shown = helper.make_node("Cast", [probability], [OUTPUTS[0]], to=_type(np.float32))
        if classes == 2:  # positive at exactly one half, as in training.Fitted
            second = self.add("Gather", probability, self.constant(1, np.int64), axis=1)
            positive = self.add("GreaterOrEqual", second, self.constant(0.5))
            label = helper.make_node("Cast", [positive], [OUTPUTS[1]], to=_type(np.int64))
        else:
            label = helper.make_node("ArgMax", [probability], [OUTPUTS[1]], axis=1, keepdims=0)
        self.nodes += [shown, label]
        outputs = [_info(OUTPUTS[0], np.float32, [ROWS, classes]), _info("label", np.int64, [ROWS])]
        return self.model(outputs)

    def model(self, outputs: Sequence[Any]) -> Any:
        """The model with these outputs."""
        from onnx import helper

        graph = helper.make_graph(self.nodes, "llpkit", self.inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR)


def joined(first: Graph, features: Name, width: int, body: Any) -> Any:
    """A model that passes the features ``(n, width)`` of a graph to another model."""
    from onnx import compose, helper

    # A prefix, because names inside the body could equal names of columns.
    inner = compose.add_prefix(body, "network/")
    head = first.model([_info(features, np.float32, [ROWS, width])])
    source = inner.graph.input[0].name
    model = compose.merge_models(head, inner, io_map=[(features, source)], name="llpkit")
    del model.opset_import[:]
    model.opset_import.extend(head.opset_import)  # merging lists the common one twice
    for name, output in zip(OUTPUTS, model.graph.output, strict=True):
        model.graph.node.append(helper.make_node("Identity", [output.name], [name]))
        output.name = name
    return model


def _info(name: str, dtype: Any, shape: Sequence[str | int]) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, _type(dtype), shape)


def _type(dtype: Any) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
