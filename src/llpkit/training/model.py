"""A fitted model: predictions, saving and loading without executable code."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from llpkit._files import Checksums, add_checksums, claim, place_of, write_bytes, write_text
from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.evaluation import labels_of, warn_of_approximation
from llpkit.likelihood.budget import best_posterior
from llpkit.training.check import check_finite, check_table
from llpkit.training.checkpoint import load_weights
from llpkit.training.inputs import Feed, Preprocess, as_inputs, forward, probabilities

WEIGHTS, DESCRIPTION = "weights.safetensors", "model.json"


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
    chosen_epoch: int | None = None
    """The epoch that the weights come from."""
    network_name: str | None = None
    """The name by which :func:`llpkit.networks.make` builds this network, if it has one."""
    details: dict[str, Any] = field(default_factory=dict)
    """Anything else to save with the model: method, settings, class names, …"""

    def logits(self, inputs: Any) -> Tensor:
        """Logits ``(n,)`` or ``(n, K)`` of inputs with the shape the model was trained on."""
        rows = as_inputs(inputs)
        if isinstance(rows, Tensor) and tuple(rows.shape[1:]) != self.input_shape:
            raise LLPError(
                f"inputs has shape {tuple(rows.shape)}; this model takes "
                f"(rows, {', '.join(map(str, self.input_shape))})"
            )
        check_finite(rows)
        device = next(self.network.parameters()).device
        feed = Feed(rows, device, resident=False)
        batches = list(torch.arange(len(feed)).split(512))
        return forward(self.network, self.preprocess, feed, batches, self.num_classes).cpu()

    def predict_proba(self, inputs: Any) -> Tensor:
        """Probability of every class, ``(n, 2)`` or ``(n, K)``, as in scikit-learn."""
        return _per_class(probabilities(self.logits(inputs)))

    def predict(self, inputs: Any, threshold: float = 0.5) -> Tensor:
        """Labels ``(n,)``: positive at or above the threshold, or the most probable class."""
        return labels_of(probabilities(self.logits(inputs)), threshold)

    def posterior(self, inputs: Any, bags: Bags) -> Tensor:
        """Probability of every class given the bags' counts as well, ``(n, 2)`` or ``(n, K)``.

        ``inputs`` has one row per row of the bags' table. Rows in no bag keep the network's own
        probability. A warning is given where exact posteriors of many classes are intractable and
        approximate ones are returned.
        """
        inputs = as_inputs(inputs)
        check_table(bags, len(inputs))
        logits = self.logits(inputs)
        result = probabilities(logits)
        bags = bags.to("cpu")
        warn_of_approximation(bags)
        result[bags.rows] = best_posterior(
            logits[bags.rows], bags.evidence, bags.offsets, validate=True
        )
        return _per_class(result)

    def __repr__(self) -> str:
        settings = self.details.get("settings", {})
        kind = "binary" if self.num_classes is None else f"{self.num_classes} classes"
        name = self.network_name or type(self.network).__name__
        shape = " x ".join(map(str, self.input_shape))
        lines = [f"Fitted {name} ({kind}, inputs of {shape})"]
        if "method" in settings:
            epoch = f"epoch {self.chosen_epoch} of {len(self.history)}"
            lines.append(f"  method {settings['method']}, {epoch}, lr {settings['lr']:g}")
        last = self.history[(self.chosen_epoch or 0) - 1] if self.history else {}
        for prefix, what in (("", "training"), ("held_out_", "held-out")):
            if f"{prefix}log_likelihood" in last:
                value, base = (last[f"{prefix}{k}log_likelihood"] for k in ("", "baseline_"))
                lines.append(
                    f"  {what} bags: mean log-likelihood {value:.3f} (constant rate {base:.3f})"
                )
        return "\n".join(lines)

    def save(self, directory: str | Path) -> Path:
        """Write the weights as safetensors and a description as JSON, for :func:`load`.

        The SHA-256 of both is kept in ``checksums.json`` and verified by :func:`load`. Files of the
        same names that llpkit did not write are never overwritten.
        """
        from safetensors.torch import save

        folder = place_of("directory", directory)
        claim(folder, (WEIGHTS, DESCRIPTION))
        tensors = {f"network.{k}": v for k, v in self.network.state_dict().items()}
        tensors |= {f"preprocess.{k}": v for k, v in self.preprocess.state_dict().items()}
        # safetensors refuses tensors that share memory.
        tensors = {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}
        write_bytes(folder / WEIGHTS, save(tensors))
        description = {
            "format": 1,
            "network": self.network_name,
            "network_class": type(self.network).__name__,
            "num_classes": self.num_classes,
            "input_shape": list(self.input_shape),
            "chosen_epoch": self.chosen_epoch,
            "details": self.details,
            "history": self.history,
        }
        write_text(folder / DESCRIPTION, json.dumps(description, indent=1))
        add_checksums(folder, (WEIGHTS, DESCRIPTION))
        return folder


def _per_class(probability: Tensor) -> Tensor:
    """``(n, 2)`` from the probability of the positive class; ``(n, K)`` unchanged."""
    if probability.dim() == 2:
        return probability
    return torch.stack([1 - probability, probability], 1)


def load(directory: str | Path, network: nn.Module | None = None) -> Fitted:
    """Read a model that :meth:`Fitted.save` wrote. The files cannot run code.

    Args:
        directory: Where it was saved.
        network: A network of the trained architecture, if llpkit cannot build it by name; its
            weights are replaced.
    """
    from safetensors.torch import load_file

    from llpkit import networks

    folder = place_of("directory", directory)
    if not (folder / DESCRIPTION).exists():
        raise LLPError(f"{folder} holds no model: {DESCRIPTION} is missing")
    checked = Checksums.need(folder)
    files = [checked.check(name) for name in (DESCRIPTION, WEIGHTS)]
    try:
        about = json.loads(files[0].read_text(encoding="utf-8"))
        tensors = load_file(files[1])
        shape, classes = tuple(about["input_shape"]), about["num_classes"]
        kind, name = about["network_class"], about["network"]
        rest = about["history"], about["chosen_epoch"], name, about["details"]
        preprocess = Preprocess(tensors["preprocess.mean"], tensors["preprocess.scale"])
    except Exception as error:
        raise LLPError(f"the model in {folder} cannot be read: {error!r}") from error
    if network is None:
        if name is None:
            raise LLPError(
                f"the model in {folder} has a custom network ({kind}); build one and pass it as "
                "network="
            )
        # The meta device draws no weights, so a fit in another thread keeps its random numbers.
        with torch.device("meta"):
            network = networks.make(name, input_shape=shape, num_outputs=classes or 1)
        network.to_empty(device="cpu")
    prefix = "network."
    weights = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
    load_weights(network, weights, folder)
    network.eval()
    return Fitted(network, preprocess, classes, shape, *rest)
