"""skorch: a NeuralNet that learns digits from whole bags, with the exact count loss as criterion.

Needs ``pip install 'llpkit[skorch]'``. Tested with skorch 1.4.0.
"""

import torch
from skorch import NeuralNet
from torch import nn

from llpkit.datasets import load
from llpkit.integrations.skorch import CountLoss, inputs_and_numbers
from llpkit.training import BagDataset


def main(epochs: int = 30) -> float:
    """Train on the bags and return the accuracy on test digits."""
    data = load("digits")  # odd against even, bags of 1 to 12
    train, test = data.bags.split(0.8, 0)
    x = data.inputs.flatten(1) / 255  # (N, 64)

    torch.manual_seed(0)
    net = NeuralNet(
        nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1)),
        CountLoss,
        criterion__bags=train,
        optimizer=torch.optim.AdamW,
        lr=2e-3,
        max_epochs=epochs,
        batch_size=16,  # bags
        train_split=None,
        iterator_train__shuffle=True,
        iterator_train__collate_fn=inputs_and_numbers,
        predict_nonlinearity=torch.sigmoid,
        verbose=0,
    )
    net.fit(BagDataset(train, x), y=None)

    probability = torch.from_numpy(net.predict_proba(x[test.rows])).squeeze(1)
    truth = data.truth[test.rows]
    return ((probability >= 0.5) == truth).float().mean().item()


if __name__ == "__main__":
    print(f"test digits classified correctly: {main():.1%}")
