"""A plugin with one of each: method (a teacher with two views), network, data set, …"""

import copy

import torch
from torch import nn

from llpkit import augment, datasets, estimators, methods, networks
from llpkit.methods import as_logits
from llpkit.methods.mle import MLE


@methods.register
class EMATeacher(MLE):
    """Targets as in ``mle``, fitted on a weak and a strong view; averaged weights predict."""

    key = "ema-teacher"
    summary = "posterior targets for two views; a moving average of the weights predicts"
    views = 2
    strong_augment = "speckle"
    replayable = True

    def __init__(self, decay=0.9, weight=0.5):
        super().__init__()
        self.decay, self.weight = decay, weight

    def prepare(self, task, network):
        super().prepare(task, network)
        self.model = copy.deepcopy(network).requires_grad_(False)

    def step(self, batch, learner, num_classes):
        weak, strong = (
            as_logits(learner.network(view), num_classes) for view in (batch.inputs, batch.strong)
        )
        loss = self.loss(weak, batch) + self.weight * self.loss(strong, batch)
        learner.update(loss)
        pairs = zip(self.model.parameters(), learner.network.parameters(), strict=True)
        with torch.no_grad():
            for mine, new in pairs:
                mine.lerp_(new, 1 - self.decay)
        return loss.detach(), weak.detach()


@networks.register("flat", "one linear layer over all pixels")
def flat(input_shape, num_outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(input_shape).numel(), num_outputs))


@datasets.register("lamps", summary="small images, bright on the left or on the right")
def lamps(*, bag_size=None, seed=0, rows=120):
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (rows,), generator=draw)
    images = torch.randint(0, 100, (rows, 1, 4, 4), generator=draw)
    images[labels == 0, :, :, :2] += 100
    images[labels == 1, :, :, 2:] += 100
    return datasets.in_random_bags(
        "lamps", images.to(torch.uint8), labels, ["left", "right"], bag_size, seed
    )


@augment.register("speckle")
def speckle(images):
    """Noise in every pixel."""
    return images + 0.1 * torch.randn_like(images)


@estimators.register("no-intercept", grid={"C": [0.1, 1.0, 10.0]})
class NoIntercept(estimators.LLPLogisticRegression):
    """Logistic regression without an intercept."""

    def __init__(self, C=1.0, fit_intercept=False):
        super().__init__(C, fit_intercept=fit_intercept)
