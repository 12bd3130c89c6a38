"""Lightning: EM on the counts of bags under a Trainer, selected by held-out bags.

Needs ``pip install 'llpkit[lightning]'``. Tested with pytorch-lightning 2.6.6.
"""

import tempfile

import torch
from torch import nn

try:
    import lightning.pytorch as pl

    from llpkit.integrations.lightning import LLPModule
except ModuleNotFoundError:
    import pytorch_lightning as pl

    from llpkit.integrations.pytorch_lightning import LLPModule

from llpkit.datasets import load


class Network(pl.LightningModule):
    """Your own module: a network, and how to optimise it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # noqa: D102
        return self.layers(x)

    def configure_optimizers(self) -> torch.optim.Optimizer:  # noqa: D102
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


def main(epochs: int = 30, method: str = "mle") -> float:
    """Train on the bags and return the accuracy on test digits."""
    data = load("digits")  # odd against even, bags of 1 to 12
    train, test = data.bags.split(0.8, 0)
    pl.seed_everything(0)
    module = LLPModule(Network(), train, data.inputs, method, held_out=0.1)
    with tempfile.TemporaryDirectory() as folder:
        best = pl.callbacks.ModelCheckpoint(folder, monitor="held_out_log_likelihood", mode="max")
        trainer = pl.Trainer(
            max_epochs=epochs, callbacks=[best], logger=False, accelerator="cpu", devices=1
        )
        trainer.fit(module)
        module.load_checkpoint(best.best_model_path)
    model = module.fitted()
    return (model.predict(data.inputs[test.rows]) == data.truth[test.rows]).float().mean().item()


if __name__ == "__main__":
    print(f"test digits classified correctly: {main():.1%}")
