"""Train a network from counts: one call.

Digits come in bags of 1 to 12, and only the number of odd digits per bag is known. ``llpkit.fit``
takes a network, the bags and the images. True labels appear once, at the end, to measure accuracy.
"""

import torch
from torch import nn

import llpkit
from llpkit import datasets


def main(epochs: int = 15) -> float:
    """Accuracy on the digits of test bags."""
    digits = datasets.load("digits", bag_size=(1, 12), seed=0)
    train, test = digits.bags.split(0.7, generator=0)
    print(train)
    print(f"The first bag: {train[0].count} of {train[0].size} are odd")

    # Any module that returns one logit per instance works.
    network = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 1),
    )
    model = llpkit.fit(
        network, train, digits.inputs, method="mle", epochs=epochs, batch_size=32, progress=False
    )
    for row in model.history[:: max(1, epochs // 3)]:
        print(f"epoch {row['epoch']:2}: bag log-likelihood {row['log_likelihood']:.3f}")

    predicted = model.predict(digits.inputs[test.rows])
    truth = digits.truth[test.rows]
    accuracy = (predicted == truth).to(torch.float64).mean().item()
    print(f"accuracy on {len(truth)} digits of test bags: {100 * accuracy:.1f} %")
    return accuracy


if __name__ == "__main__":
    torch.manual_seed(0)  # for the weights of the network above
    main()
