r"""Teacher EM: an averaged teacher gives posterior targets for a weak and a strong view.

A student is trained; the teacher is the moving average of its weights and predicts. Every instance
has a weak view (flip, shift) and a strong view (affine map, colour, cut-out). Targets are
posteriors given the counts, from a bank of logits :math:`z` that every epoch renews with the
teacher's logits on the weak view:

.. math::

    \varphi_i = P(h_i \mid y;\, z), \qquad \varphi^T_i = P(h_i \mid y;\, z / T), \qquad
    \text{loss}_i = \operatorname{CE}(s(x^{weak}_i), \varphi_i)
        + \lambda(t) \operatorname{CE}(s(x^{strong}_i), \varphi^T_i).

Dividing by the temperature *before* the counts are taken into account sharpens the targets of
single instances, while those of a bag still sum to its counts. With :math:`\lambda = 0` it is EM.

In large bags the posterior given flat logits is nearly uninformative, so the first bank comes from
a linear model of the network's features; see :mod:`llpkit.methods.linear_start`.
"""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from llpkit._validation import number
from llpkit.likelihood.checks import Approximation
from llpkit.methods.base import Batch, Learner, Task, as_logits, mean_cross_entropy
from llpkit.methods.linear_start import LastFeatures, linear_logits
from llpkit.methods.tractability import WithApproximation
from llpkit.ragged import segment_sum

_YOUNG = 10
"""The teacher averages over about the last tenth of all steps until that is its full memory."""


class Teacher(WithApproximation):
    r"""EM with a student and its moving average, the teacher, which predicts.

    Args:
        temperature: :math:`T` of the targets of the strong view; 1 means no sharpening.
        weight: The final weight :math:`\lambda` of the strong view.
        ramp: Share of the epochs in which :math:`\lambda` rises from zero.
        decay: Decay of the moving average per step; smaller at first, so that the teacher keeps
            up in short runs.
        start: Share of the epochs in which a linear model of the teacher's features may give the
            logits: before the first epoch, and after each for as long as it explains the counts
            better than the teacher. Zero starts from flat logits.
        approximation: For many classes, as for ``mle``.
    """

    key = "teacher"
    summary = "EM with an averaged teacher: posterior targets for a weak and a strong view"
    reference = (
        "D. Baručić and J. Kybic, Fast Learning from Label Proportions with Small Bags, ICIP 2022 "
        "(EM); A. Tarvainen and H. Valpola, Mean Teachers Are Better Role Models, NeurIPS 2017 "
        "(averaged teacher); K. Sohn et al., FixMatch, NeurIPS 2020 (two views). Their combination "
        "is llpkit's own."
    )
    views = 2
    strong_augment = "strong"
    replayable = True

    def __init__(
        self,
        temperature: float = 0.5,
        weight: float = 1.0,
        ramp: float = 0.1,
        decay: float = 0.999,
        start: float = 0.5,
        approximation: Approximation = "auto",
    ) -> None:
        super().__init__(approximation)
        self.temperature = number("temperature", temperature, most=1, above=0)
        self.weight = number("weight", weight, least=0)
        self.ramp, self.start = (number(n, v, 0, 1) for n, v in (("ramp", ramp), ("start", start)))
        self.decay = number("decay", decay, 0, 1)

    def prepare(self, task: Task, network: nn.Module) -> None:
        super().prepare(task, network)
        self.bags, self.epochs = task.bags, task.epochs
        self.model = copy.deepcopy(network).requires_grad_(False)
        self.features = LastFeatures(self.model)
        self.starting = False
        # Features of all instances while they are needed, and a last row for those of padding.
        self.bank: Tensor | None = None
        last = () if task.num_classes is None else (task.num_classes,)
        flat = torch.zeros((task.bags.num_instances, *last), device=task.device)
        self.targets, self.sharp = flat.clone(), flat.clone()
        self._renew(flat, self._e_step(flat)[1])
        # What is known about the counts of each bag, as expectations: ranges have no counts.
        self.expected = segment_sum(self.targets, task.bags.offsets)
        self.strength = torch.zeros((), device=task.device)
        self.steps = torch.zeros((), device=task.device)

    def begin_epoch(self, epoch: int) -> None:
        done = (epoch - 1) / self.epochs
        # A tensor: a captured step reads its current value.
        self.strength.fill_(self.weight * (min(1.0, done / self.ramp) if self.ramp else 1.0))
        self.starting = done < self.start
        if self.starting and self.bank is None:
            # Only once: from now on, the steps of every epoch renew it.
            assert self.outputs is not None
            self.bank = F.pad(self.outputs(self.features), (0, 0, 0, 1))
            if epoch == 1:
                linear = self._linear()
                self._renew(linear, self._e_step(linear)[1])
        elif not self.starting:
            self.bank = None

    def step(
        self, batch: Batch, learner: Learner, num_classes: int | None
    ) -> tuple[Tensor, Tensor]:
        strong = batch.inputs if batch.strong is None else batch.strong
        # One pass for both views is faster than two.
        both = as_logits(learner.network(torch.cat([batch.inputs, strong])), num_classes)
        weak, strong = both.chunk(2)
        loss = self.loss(weak, batch) + self.strength * self._error(strong, self.sharp, batch)
        self._check_shape("loss", loss, (), "a scalar, the mean over the batch")
        learner.update(loss)
        with torch.no_grad(), learner.autocast():
            self._follow(learner.network)
            output, features = self.features.both(batch.inputs)
            if self.bank is not None:
                self.bank.index_copy_(0, self._bank_rows(batch), features.to(self.bank.dtype))
        return loss.detach(), as_logits(output, num_classes).float()

    def _bank_rows(self, batch: Batch) -> Tensor:
        """The row of every instance in the bank; padding goes to the last."""
        if batch.weights is None:
            return batch.positions
        return torch.where(batch.weights > 0, batch.positions, self.bags.num_instances)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return self._error(logits, self.targets, batch)

    def _error(self, logits: Tensor, targets: Tensor, batch: Batch) -> Tensor:
        return mean_cross_entropy(logits, targets[batch.positions], batch.weights)

    def _follow(self, network: nn.Module) -> None:
        """Move the teacher towards the student: its weights and the statistics of batch norm."""
        assert self.model is not None
        new = torch.clamp((_YOUNG - 1) / (_YOUNG + self.steps), min=1 - self.decay)
        self.steps.add_(1)
        pairs = [
            *zip(self.model.parameters(), network.parameters(), strict=True),
            *zip(self.model.buffers(), network.buffers(), strict=True),
        ]
        real = [(old.data, now.data) for old, now in pairs if old.is_floating_point()]
        teacher, student = [old for old, _ in real], [now for _, now in real]
        # All tensors at once, in three kernels, which have no public name; the public average of
        # torch.optim.swa_utils takes a plain number, which a CUDA graph would freeze.
        gaps = torch._foreach_sub(student, teacher)
        torch._foreach_mul_(gaps, new)
        torch._foreach_add_(teacher, gaps)
        for old, now in pairs:
            if not old.is_floating_point():  # the number of batches
                old.copy_(now)

    def end_epoch(self, logits: Tensor) -> Tensor | None:
        log_p, phi = self._e_step(logits)
        if self.starting:
            # The linear model goes on for as long as it explains the counts better.
            linear = self._linear()
            log_p_linear, phi_linear = self._e_step(linear)
            better = log_p_linear.mean() > log_p.mean()  # not read: that would wait for the device
            logits = torch.where(better, linear, logits)
            phi = torch.where(better, phi_linear, phi)
        self._renew(logits, phi)
        return None if self.chosen_approximation else log_p

    def _linear(self) -> Tensor:
        assert self.bank is not None
        return linear_logits(self.bank[:-1], self.expected, self.bags.offsets)

    def _renew(self, logits: Tensor, phi: Tensor) -> None:
        """Set both kinds of targets, in place, from logits and their posteriors."""
        self.targets.copy_(phi)
        if self.temperature < 1:
            phi = self._e_step(logits / self.temperature)[1]
        self.sharp.copy_(phi)

    def state_dict(self) -> dict[str, Any]:
        return {"targets": self.targets, "sharp": self.sharp, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            getattr(self, name).copy_(value)
