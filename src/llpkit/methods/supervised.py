"""Training on true labels: the upper bound for all other methods."""

from torch import Tensor, nn

from llpkit.methods.base import Batch, Method, Task, mean_cross_entropy


class Supervised(Method):
    """Cross-entropy on the true label of every instance."""

    key = "supervised"
    summary = "cross-entropy on true labels: the upper bound"
    reference = (
        "D. R. Cox, The Regression Analysis of Binary Sequences, Journal of the Royal "
        "Statistical Society B, 1958"
    )
    needs_labels = True
    replayable = True
    shardable = True

    def prepare(self, task: Task, network: nn.Module) -> None:
        super().prepare(task, network)
        assert task.labels is not None
        self.labels = task.labels

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return mean_cross_entropy(logits, self.labels[batch.positions], batch.weights)
