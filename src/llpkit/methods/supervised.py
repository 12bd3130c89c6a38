"""Training on true labels: the upper bound that the other methods are held against."""

import torch.nn.functional as F
from torch import Tensor

from llpkit.methods._base import Batch, Method, Task


class Supervised(Method):
    """Cross-entropy on the true label of every instance."""

    key = "supervised"
    summary = "cross-entropy on true labels: the upper bound"
    needs_labels = True

    def prepare(self, task: Task) -> None:
        super().prepare(task)
        assert task.labels is not None
        self.labels = task.labels

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        labels = self.labels[batch.positions]
        if logits.dim() == 2:
            return F.cross_entropy(logits, labels)
        return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
