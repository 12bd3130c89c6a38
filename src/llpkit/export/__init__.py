"""Models as files for other programs: ONNX, and programs of :mod:`torch.export`.

:func:`onnx` writes any run, network or estimator, including the encoder of its table, so that the
inputs are raw columns. :func:`torch` writes networks. Both compare the file with the model.
"""

from llpkit.export.check import Compared
from llpkit.export.files import Exported
from llpkit.export.files import to_onnx as onnx
from llpkit.export.files import to_torch as torch

__all__ = ["Compared", "Exported", "onnx", "torch"]
