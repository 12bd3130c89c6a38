"""A trained network as one module, from raw inputs to probabilities and labels."""

import copy
import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from llpkit._package import package
from llpkit.errors import LLPError
from llpkit.export.encoder import ColumnEncoder, empty_columns
from llpkit.export.graph import IR, OPSET, OUTPUTS
from llpkit.methods import as_logits, at_least_single
from llpkit.probability import per_class, probability_of
from llpkit.tables import FeatureEncoder
from llpkit.training import Fitted
from llpkit.training.fabric import quiet
from llpkit.training.inputs import to_float

FEATURES, IMAGES = "features", "images"


class Deployed(nn.Module):
    """The encoder, if any, preprocessing, network and probabilities, on the CPU."""

    def __init__(self, model: Fitted, encoder: FeatureEncoder | None = None) -> None:
        super().__init__()
        self.encoder = None if encoder is None else ColumnEncoder(encoder)
        self.preprocess = copy.deepcopy(model.preprocess).cpu()
        self.network = copy.deepcopy(model.network).cpu()
        self.num_classes = model.num_classes
        self.eval().requires_grad_(False)
        weights = next(self.network.parameters(), None)
        self.dtype = torch.float32 if weights is None else weights.dtype

    def forward(self, inputs: Any) -> tuple[Tensor, Tensor]:
        """Probabilities ``(n, K)``, float32, and labels ``(n,)`` of rows as in training."""
        if self.encoder is not None:
            inputs = self.encoder(inputs)
        output = self.network(self.preprocess(to_float(inputs)).to(self.dtype))
        p = probability_of(as_logits(at_least_single(output), self.num_classes))
        if p.dim() == 2:
            return p.float(), p.argmax(1)
        return per_class(p).float(), (p >= 0.5).long()


def input_of(model: Fitted, float_images: bool) -> tuple[str, torch.dtype]:
    """The name and type of the input of a model without an encoder."""
    if len(model.input_shape) != 3:
        return FEATURES, torch.float32
    return IMAGES, torch.float32 if float_images else torch.uint8


def program_of(
    model: Fitted, dtype: torch.dtype, encoder: FeatureEncoder | None = None
) -> torch.export.ExportedProgram:
    """The model as a program for batches of any size; with an encoder, of raw columns."""
    # With a single row, torch would treat the batch size as a constant.
    example: Any = torch.zeros((2, *model.input_shape), dtype=dtype)
    any_size: Any = {0: torch.export.Dim.DYNAMIC}
    if encoder is not None:
        example = empty_columns(encoder, 2)
        any_size = dict.fromkeys(example, any_size)
    try:
        with _quiet(), torch.no_grad():
            program = torch.export.export(
                Deployed(model, encoder), (example,), dynamic_shapes=(any_size,)
            )
    except Exception as error:  # a user's network may do anything
        raise LLPError(
            f"torch.export cannot trace the network {type(model.network).__name__}: {error}"
        ) from error
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # source files, with paths of this machine
    return program


def network_model(model: Fitted, name: str, dtype: torch.dtype) -> Any:
    """The ONNX model of a network."""
    package("onnxscript", "onnx")
    program = program_of(model, dtype)
    try:
        with _quiet():
            exported = torch.onnx.export(
                program,
                input_names=[name],
                output_names=list(OUTPUTS),
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        raise LLPError(
            f"the network {type(model.network).__name__} cannot be exported to ONNX: {error}"
        ) from error
    assert exported is not None
    proto = exported.model_proto
    proto.ir_version = IR
    # Torch's annotations of every node are larger than a small network.
    for part in (proto, proto.graph, *proto.graph.node, *proto.graph.value_info):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    return proto


def saved(program: torch.export.ExportedProgram, texts: dict[str, str]) -> bytes:
    """A program as a file, with further texts by name."""
    stream = io.BytesIO()
    with _quiet():
        torch.export.save(program, stream, extra_files=texts)
    return stream.getvalue()


def loaded(content: bytes) -> nn.Module:
    """The program in a file."""
    with _quiet():
        module: nn.Module = torch.export.load(io.BytesIO(content)).module()
    return module


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress warnings about torch's own code and a missing torchvision."""
    with quiet("torch.onnx", logging.ERROR), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
