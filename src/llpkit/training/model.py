"""A fitted model: predictions, saving and loading without executable code."""

import json
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from llpkit.bags import Bags
from llpkit.datasets import image_files
from llpkit.errors import LLPError, UnseenValueWarning
from llpkit.evaluation import labels_of, warn_of_approximation
from llpkit.evaluation.bags import posterior_of
from llpkit.files import Checksums, add_checksums, claim, path_of, write_bytes, write_text
from llpkit.probability import per_class, probability_of
from llpkit.tables import FeatureEncoder, Table
from llpkit.tables.frames import is_frame
from llpkit.training import display
from llpkit.training.check import check_finite, check_table
from llpkit.training.checkpoint import load_weights
from llpkit.training.frames import check_ids
from llpkit.training.inputs import (
    BATCH,
    Feed,
    Inputs,
    Pipeline,
    Preprocess,
    as_inputs,
    check_shape,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WEIGHTS, DESCRIPTION, ENCODER = "weights.safetensors", "model.json", "encoder.json"


@dataclass
class Fitted:
    """A trained network with its preprocessing and training history."""

    network: nn.Module
    preprocess: Preprocess
    num_classes: int | None
    """``None`` for binary labels, else K."""
    input_shape: tuple[int, ...]
    history: list[dict[str, Any]] = field(default_factory=list)
    """One row per epoch: loss, bag log-likelihood, proportion error, seconds, …"""
    selected_epoch: int | None = None
    """The epoch that the weights come from: the last one, or the best on held-out bags."""
    network_name: str | None = None
    """The name by which :func:`llpkit.networks.make` builds this network, if it has one."""
    details: dict[str, Any] = field(default_factory=dict)
    """Anything else to save with the model: method, settings, class names, …"""
    encoder: FeatureEncoder | None = None
    """Turns data frames into inputs, if the model was trained on one."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes 0, 1 and so on; their numbers if they have no names."""
        names = self.details.get("class_names") or range(self.num_classes or 2)
        return tuple(map(str, names))

    def logits(self, inputs: Any) -> Tensor:
        """Logits ``(n,)`` or ``(n, K)``.

        ``inputs`` have the shape the model was trained on. A model that was trained on a table or
        data frame also takes data frames (pandas, polars, pyarrow, Hugging Face) with the columns
        of that table; values that did not occur in it are named in an
        :class:`~llpkit.errors.UnseenValueWarning`. Paths in an image column are relative to the
        working directory.
        """
        rows = self._inputs(inputs)
        check_shape(rows, self.input_shape)
        check_finite(rows)
        device = next(self.network.parameters()).device
        feed = Feed(rows, device, resident=False)
        batches = list(torch.arange(len(feed)).split(BATCH))
        pipeline = Pipeline(feed, self.preprocess)
        return pipeline.logits(self.network, batches, self.num_classes).cpu()

    def predict_proba(self, inputs: Any) -> Tensor:
        """Probability of every class, ``(n, 2)`` or ``(n, K)``, as in scikit-learn."""
        return per_class(probability_of(self.logits(inputs)))

    def predict(self, inputs: Any, threshold: float = 0.5) -> Tensor:
        """Labels ``(n,)``: positive at or above the threshold, or the most probable class."""
        return labels_of(probability_of(self.logits(inputs)), threshold)

    def posterior(self, inputs: Any, bags: Bags) -> Tensor:
        """Probability of every class given the bags' counts as well, ``(n, 2)`` or ``(n, K)``.

        ``inputs`` has one row per row of the bags' table. Rows in no bag keep the probability of
        the network alone. Where the exact posteriors of many classes are intractable, approximate
        ones are returned with a warning.
        """
        inputs = self._inputs(inputs, bags)
        check_table(bags, len(inputs))
        logits = self.logits(inputs)
        bags = bags.to("cpu")
        warn_of_approximation(bags)
        return per_class(posterior_of(logits, bags))

    def _inputs(self, inputs: Any, bags: Bags | None = None) -> Inputs:
        """Arrays as tensors, and data frames as the features that the model was trained on.

        The rows of a frame must be those of the bags, if there are any.
        """
        if not is_frame(inputs):
            return as_inputs(inputs)
        table = Table.of(inputs)
        if bags is not None:
            check_ids(table, bags)
        column = self.details.get("image_column")
        if self.encoder is None and column is not None:
            channels, height, width = self.input_shape
            size = (height, width)
            return image_files(table, column, size=size, channels=channels)
        if self.encoder is None:
            shape = " x ".join(map(str, self.input_shape))
            raise LLPError(
                f"inputs is a {type(inputs).__name__}, but this model was trained on arrays; pass "
                f"an array or a tensor, one row of {shape} per instance"
            )
        features = self.encoder.apply(table)
        for note in self.encoder.notes(table):
            warnings.warn(note, UnseenValueWarning, stacklevel=4)  # the caller of predict_proba
        return features

    def __repr__(self) -> str:
        settings = self.details.get("settings", {})
        kind = "binary" if self.num_classes is None else f"{self.num_classes} classes"
        name = display.name_of(self)
        shape = " x ".join(map(str, self.input_shape))
        noun = "input" if self.input_shape == (1,) else "inputs"
        lines = [f"Fitted {name} ({kind}, {shape} {noun})"]
        if "method" in settings:
            epoch = f"epoch {self.selected_epoch} of {len(self.history)}"
            lines.append(f"  method {settings['method']}, {epoch}, lr {settings['lr']:g}")
        for part, (value, base, _) in display.measured(self).items():
            beside = "" if base is None else f" (constant rate {base:.3f})"
            lines.append(f"  {part} bags: mean log-likelihood {value:.3f}{beside}")
        if "verdict" in self.details:
            lines.append(f"  {self.details['verdict']['text']}")
        return "\n".join(lines)

    def plot(self) -> "Figure":
        """The history as a matplotlib figure: likelihood, proportion error, test metrics, loss.

        Log-likelihoods are shown with that of a constant rate, which a model must beat.
        """
        return display.plot(self)

    def _repr_html_(self) -> str:
        return display.html(self)

    def save(self, directory: str | Path) -> Path:
        """Write the weights as safetensors and a description as JSON, for :func:`load`.

        The SHA-256 of both is kept in ``checksums.json`` and verified by :func:`load`. Files of the
        same names that llpkit did not write are never overwritten.
        """
        from safetensors.torch import save

        folder = path_of("directory", directory)
        names = (WEIGHTS, DESCRIPTION, *([] if self.encoder is None else [ENCODER]))
        claim(folder, names)
        tensors = {f"network.{k}": v for k, v in self.network.state_dict().items()}
        tensors |= {f"preprocess.{k}": v for k, v in self.preprocess.state_dict().items()}
        # safetensors refuses tensors that share memory.
        tensors = {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}
        write_bytes(folder / WEIGHTS, save(tensors))
        description = {
            "network": self.network_name,
            "network_class": type(self.network).__name__,
            "num_classes": self.num_classes,
            "input_shape": list(self.input_shape),
            "selected_epoch": self.selected_epoch,
            "details": self.details,
            "history": self.history,
            "encoder": self.encoder is not None,
        }
        write_text(folder / DESCRIPTION, json.dumps(description, indent=1))
        if self.encoder is not None:
            write_text(folder / ENCODER, self.encoder.to_json())
        add_checksums(folder, names)
        return folder


def read_encoder(checked: Checksums, about: dict[str, Any]) -> FeatureEncoder | None:
    """The encoder of a saved model, or ``None`` if it was not trained on a data frame."""
    if not about["encoder"]:  # the file may be left from another model
        return None
    text = checked.check(ENCODER).read_text(encoding="utf-8", errors="replace")
    return FeatureEncoder.from_json(text)


def load(directory: str | Path, network: nn.Module | None = None) -> Fitted:
    """Read a network that :meth:`Fitted.save` wrote; see :func:`llpkit.load`."""
    from safetensors.torch import load_file

    from llpkit import networks

    folder = path_of("directory", directory)
    if not (folder / DESCRIPTION).exists():
        raise LLPError(f"{folder} holds no model: {DESCRIPTION} is missing")
    checked = Checksums.need(folder)
    files = [checked.check(name) for name in (DESCRIPTION, WEIGHTS)]
    try:
        about = json.loads(files[0].read_text(encoding="utf-8"))
        tensors = load_file(files[1])
        shape, classes = tuple(about["input_shape"]), about["num_classes"]
        kind, name = about["network_class"], about["network"]
        rest = about["history"], about["selected_epoch"], name, about["details"]
        preprocess = Preprocess(tensors["preprocess.mean"], tensors["preprocess.scale"])
        encoder = read_encoder(checked, about)
    except LLPError:
        raise
    except Exception as error:
        raise LLPError(f"the model in {folder} cannot be read: {error!r}") from error
    if network is None:
        if name is None:
            raise LLPError(
                f"the model in {folder} has a custom network ({kind}); build one and pass it as "
                "network="
            )
        if name not in networks.NETWORKS:
            raise LLPError(
                f"the model in {folder} has the network {name!r}, which is not registered; load "
                "the file that registers it with --plugin (in Python: import it), or pass a "
                "network as network="
            )
        # The meta device draws no weights, so a fit in another thread keeps its random numbers.
        with torch.device("meta"):
            network = networks.make(name, input_shape=shape, num_outputs=classes or 1)
        network.to_empty(device="cpu")
    prefix = "network."
    weights = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
    load_weights(network, weights, folder)
    network.eval()
    return Fitted(network, preprocess, classes, shape, *rest, encoder)
