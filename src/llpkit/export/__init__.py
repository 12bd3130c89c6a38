"""Models as files that other programs run: ONNX, and programs of torch.

:func:`onnx` writes any run, network or estimator, with the encoder of its table, so that raw
columns go in. :func:`torch` writes networks. Both compare the file with the model.
"""

from llpkit.export.check import Compared
from llpkit.export.files import Exported
from llpkit.export.files import to_onnx as onnx
from llpkit.export.files import to_torch as torch

__all__ = ["Compared", "Exported", "onnx", "torch"]
