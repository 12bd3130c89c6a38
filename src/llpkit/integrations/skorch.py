"""The exact count loss over whole bags as a criterion, for skorch or any loop over data loaders.

>>> import llpkit
>>> from llpkit.training import BagDataset
>>> import torch
>>> x = torch.tensor([[-1.0], [2.0], [1.0]])
>>> bags = llpkit.Bags([0, 2, 3], [1, 1])
>>> data = BagDataset(bags, x)
>>> rows, numbers = inputs_and_numbers([data[1], data[0]])
>>> rows.tolist(), numbers.tolist()
([[1.0], [-1.0], [2.0]], [1, 0])
>>> CountLoss(bags)(rows, numbers).item() == CountLoss(bags)(x, torch.tensor([0, 1])).item()
True
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from llpkit.bags import Bags
from llpkit.errors import LLPError
from llpkit.likelihood.checks import Approximation, check_approximation
from llpkit.likelihood.choice import resolve
from llpkit.losses import count_loss
from llpkit.methods import as_logits, at_least_single
from llpkit.ragged import to_offsets
from llpkit.training import BagItem, collate_bags

_REMEDY = "train on BagDataset(bags, inputs), with inputs_and_numbers as collate_fn"


def inputs_and_numbers(items: Sequence[BagItem]) -> tuple[Tensor, Tensor]:
    """A batch for :class:`CountLoss`: the inputs of all instances and the numbers of the bags."""
    batch = collate_bags(items)
    return batch.inputs, batch.numbers


class CountLoss(nn.Module):
    r"""The mean of :math:`-\log P(y_b)` over the bags of a batch: the loss of ``direct``.

    Args:
        bags: All bags that batches are drawn from; counts may be ranges.
        approximation: For many classes, as in :class:`llpkit.methods.direct.Direct`.
    """

    def __init__(self, bags: Bags, approximation: Approximation = "auto") -> None:
        super().__init__()
        check_approximation(approximation)
        self.bags = bags.to("cpu")
        self.approximation = resolve(approximation, bags.evidence, bags.sizes)

    def forward(self, logits: Tensor, numbers: Tensor) -> Tensor:
        """The loss of a batch.

        Args:
            logits: One row per instance, bag after bag.
            numbers: The numbers of these bags, from :func:`inputs_and_numbers`.
        """
        z = at_least_single(as_logits(logits, self.bags.num_classes))
        numbers = self._check(numbers)
        sizes = self.bags.sizes[numbers]
        if len(z) != int(sizes.sum()):
            raise LLPError(
                f"there are {len(z)} logits for {len(numbers)} bags of {int(sizes.sum())} "
                f"instances; {_REMEDY}"
            )
        evidence = self.bags.evidence[numbers].to(z.device)
        offsets = to_offsets(sizes).to(z.device)
        return count_loss(z, evidence, offsets, self.approximation).mean()

    def _check(self, numbers: Any) -> Tensor:
        is_vector = isinstance(numbers, Tensor) and numbers.dim() == 1
        if not is_vector or numbers.dtype not in (torch.int32, torch.int64):
            kind = f"a {type(numbers).__name__}"
            if isinstance(numbers, Tensor):
                kind = f"{str(numbers.dtype).removeprefix('torch.')} {tuple(numbers.shape)}"
            raise LLPError(f"numbers is {kind}, not the numbers of bags (B,); {_REMEDY}")
        on_cpu: Tensor = numbers.cpu()
        wrong = ((on_cpu < 0) | (on_cpu >= len(self.bags))).nonzero()
        if len(wrong):
            i = int(wrong[0])
            raise LLPError(
                f"numbers[{i}] = {int(on_cpu[i])}, but there are {len(self.bags)} bags; {_REMEDY}"
            )
        return on_cpu
