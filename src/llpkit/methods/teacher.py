r"""Teacher EM (prototype)."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from llpkit.likelihood import log_prob, log_prob_and_posterior
from llpkit.methods.base import Batch, Learner, Method, Task, as_logits, weighted_mean


class Teacher(Method):
    key = "teacher"
    summary = "EM with an averaged teacher: posterior targets for a weak and a strong view"
    views = 2
    strong_augment = "strong"
    replayable = True

    def __init__(
        self,
        temperature=0.5,
        weight=1.0,
        decay=0.999,
        warm_up=0.1,
        ramp=0.1,
        renewals=1,
        sharpen="counts",
        scale="none",
        approximation=None,
        weakT=1.0,
        conf=0,
    ) -> None:
        self.temperature, self.weight, self.decay = temperature, weight, decay
        self.warm_up, self.ramp_share, self.renewals = warm_up, ramp, renewals
        self.sharpen, self.scale_by = sharpen, scale
        self.approximation = approximation
        self.conf = conf

    def prepare(self, task: Task, network: nn.Module) -> None:
        super().prepare(task, network)
        self.bags, self.epochs = task.bags, task.epochs
        self.model = copy.deepcopy(network).requires_grad_(False)
        shape = (task.bags.num_instances,) + (
            () if task.num_classes is None else (task.num_classes,)
        )
        nothing = torch.zeros(shape, device=task.device)
        self.scale = torch.ones((), device=task.device)
        self.ramp = torch.zeros((), device=task.device)
        self.steps = torch.zeros((), device=task.device)
        self.targets, self.sharp = nothing.clone(), nothing.clone()
        self.warming = True
        self._renew(nothing)

    def begin_epoch(self, epoch):
        done = (epoch - 1) / max(1, self.epochs)
        self.warming = done < self.warm_up
        self.ramp.fill_(
            self.weight * min(1.0, done / self.ramp_share) if self.ramp_share else self.weight
        )

    def _post(self, z):
        return log_prob_and_posterior(
            z,
            self.bags.evidence,
            self.bags.offsets,
            approximation=self.approximation,
            validate=False,
        )

    def _renew(self, logits):
        z = logits
        if self.scale_by == "likelihood":
            factors = [0.8, 1.0, 1.25, 1.6]
            tried = torch.stack([self.scale * f for f in factors])
            values = torch.stack(
                [
                    log_prob(
                        logits * s,
                        self.bags.evidence,
                        self.bags.offsets,
                        approximation=self.approximation,
                        validate=False,
                    ).mean()
                    for s in tried
                ]
            )
            self.scale.copy_(tried[values.argmax()].clamp(1.0, 64.0))
            z = logits * self.scale
        log_p, phi = self._post(z)
        self.targets.copy_(phi)
        if self.temperature == 1:
            self.sharp.copy_(phi)
        elif self.sharpen == "counts":
            self.sharp.copy_(self._post(z / self.temperature)[1])
        elif phi.dim() == 2:
            power = phi ** (1 / self.temperature)
            self.sharp.copy_(power / power.sum(1, keepdim=True))
        else:
            a, b = phi ** (1 / self.temperature), (1 - phi) ** (1 / self.temperature)
            self.sharp.copy_(a / (a + b))
        return log_p

    def loss(self, logits, batch):
        return self._ce(logits, self.targets, batch)

    def _ce(self, logits, targets, batch):
        t = targets[batch.positions].to(logits.dtype)
        if logits.dim() == 2:
            losses = F.cross_entropy(logits, t, reduction="none")
        else:
            losses = F.binary_cross_entropy_with_logits(logits, t, reduction="none")
        return weighted_mean(losses, batch.weights)

    def step(self, batch: Batch, learner: Learner, num_classes: int | None):
        strong = batch.inputs if batch.strong is None else batch.strong
        both = as_logits(learner.network(torch.cat([batch.inputs, strong])), num_classes)
        weak, strong = both.chunk(2)
        loss = self._ce(weak, self.targets, batch) + self.ramp * self._ce(strong, self.sharp, batch)
        learner.update(loss)
        with torch.no_grad():
            self._follow(learner.network)
            if self.warming:
                seen = weak.detach()
            else:
                with learner.autocast():
                    seen = as_logits(self.model(batch.inputs), num_classes)
        return loss.detach(), seen

    def _follow(self, network):
        share = torch.clamp(9 / (10 + self.steps), min=1 - self.decay)
        self.steps.add_(1)
        mine, new = [], []
        for a, b in zip(
            [*self.model.parameters(), *self.model.buffers()],
            [*network.parameters(), *network.buffers()],
            strict=True,
        ):
            if a.is_floating_point():
                mine.append(a.data)
                new.append(b.data)
            else:
                a.copy_(b)
        gap = torch._foreach_sub(new, mine)
        torch._foreach_mul_(gap, share)
        torch._foreach_add_(mine, gap)

    def renew(self, logits):
        self._renew(logits)

    def end_epoch(self, logits):
        log_p = self._renew(logits)
        return log_p if self.approximation is None and self.scale_by == "none" else None

    def state_dict(self):
        return {
            "targets": self.targets,
            "sharp": self.sharp,
            "scale": self.scale,
            "steps": self.steps,
        }

    def load_state_dict(self, state):
        for name, value in state.items():
            getattr(self, name).copy_(value)
