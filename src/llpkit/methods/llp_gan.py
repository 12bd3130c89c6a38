r"""LLP-GAN: a discriminator that classifies, trained on proportions and a generator's fakes.

The discriminator has one logit per class; the logit of the class "fake" is fixed at zero. With
:math:`l(x) = \operatorname{lse}(\text{logits})` its loss is

.. math::

    -E[l_{real}] + E[\operatorname{softplus}(l_{real})] + E[\operatorname{softplus}(l_{fake})]
    + \lambda\, \mathrm{CE}(\text{proportions}, \text{mean softmax}),

and the generator matches the mean features of real and fake instances.

Liu, Wang, Qi, Tian & Shi, *Learning from label proportions with generative adversarial networks*,
NeurIPS 2019.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from llpkit._validation import number
from llpkit.errors import LLPError
from llpkit.methods.base import (
    Batch,
    Learner,
    Method,
    Task,
    as_logits,
    instance_weights,
    weighted_mean,
)
from llpkit.methods.dllp import mean_proportion_loss
from llpkit.networks import generator_for


class LLPGAN(Method):
    """Adversarial learning from proportions; needs a network that returns its features.

    Args:
        weight: Weight of the proportion loss, the paper's lambda.
    """

    key = "llp-gan"
    summary = "LLP-GAN: a discriminator trained on proportions and a generator's fakes"
    reference = (
        "J. Liu, B. Wang, Z. Qi, Y. Tian and Y. Shi, Learning from Label Proportions with "
        "Generative Adversarial Networks, NeurIPS 2019"
    )
    batches = "bags"
    replayable = True
    needs_exact_counts = True
    symmetric_inputs = True
    lr = 3e-4
    betas = (0.5, 0.999)
    network_name = "llp-gan"

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = number("weight", weight, above=0)

    def prepare(self, task: Task, network: nn.Module) -> None:
        super().prepare(task, network)
        self.generator = generator_for(task.input_shape).to(task.device)
        self.optimizer = torch.optim.Adam(
            self.generator.parameters(),
            lr=task.lr,
            betas=self.betas,
            fused=True,
            capturable=task.device.type == "cuda",
        )

    def step(
        self, batch: Batch, learner: Learner, num_classes: int | None
    ) -> tuple[Tensor, Tensor]:
        network: Any = learner.network
        if not hasattr(network, "forward_features"):
            raise LLPError(
                f'method "{self.key}" needs a network with forward_features(x) -> (logits, '
                f'features); use network="{self.network_name}"'
            )
        if hasattr(network, "mark_forward_method"):  # Fabric wraps marked methods only
            network.mark_forward_method("forward_features")
        x, weights = batch.inputs, instance_weights(batch)

        # Discriminator step; no gradient reaches the generator.
        real, _ = network.forward_features(x)
        with torch.no_grad():
            fakes = self.generator.draw(len(x))
        fake, _ = network.forward_features(fakes)
        l_real, l_fake = real.float().logsumexp(1), fake.float().logsumexp(1)  # (n,) each
        logits = as_logits(real, num_classes)
        adversarial = weighted_mean(F.softplus(l_real) - l_real, weights)
        adversarial = adversarial + F.softplus(l_fake).mean()
        loss = adversarial + self.weight * mean_proportion_loss(logits, batch)
        learner.update(loss)

        with torch.no_grad():
            _, wanted = network.forward_features(x)
        # Generator step: match the mean features of real instances with new fakes.
        _, features = network.forward_features(self.generator.draw(len(x)))
        # The generator follows the network's learning rate, which may be scheduled.
        for group in self.optimizer.param_groups:
            group["lr"] = learner.optimizer.param_groups[0]["lr"]
        mean = wanted.float().mean(0) if weights is None else weights @ wanted.float()
        matching = (features.float().mean(0) - mean).square().sum()
        self.optimizer.zero_grad(set_to_none=True)
        learner.backward(matching, inputs=list(self.generator.parameters()))
        self.optimizer.step()
        return loss.detach(), logits.detach()

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.load_state_dict(state["generator"])
        self.optimizer.load_state_dict(state["optimizer"])
