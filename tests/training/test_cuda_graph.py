"""What a captured step would not notice is seen before the next epoch; no device is needed."""

import pytest
import torch
from torch import nn

from llpkit import methods
from llpkit.methods import Learner
from llpkit.training.cuda_graph import ReplayedSteps


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.temperature = 1.0
        self.parts = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))


def nothing(network, method):
    pass


def other_mode(network, method):  # noqa: ARG001
    network.eval()


def temperature(network, method):  # noqa: ARG001
    network.temperature = 2.0


def dropout(network, method):  # noqa: ARG001
    network.parts[2].p = 0.0


def momentum(network, method):  # noqa: ARG001
    network.parts[1].momentum = 0.01


def frozen(network, method):  # noqa: ARG001
    network.parts[0].weight.requires_grad_(False)


def another_buffer(network, method):  # noqa: ARG001
    network.parts[1].running_mean = torch.zeros(4)


def in_a_dictionary(network, method):  # noqa: ARG001
    method.settings["w"] = 2.0


def a_number_of_the_method(network, method):  # noqa: ARG001
    method.stride = 1.5


def weights_of_the_method_s_network(network, method):  # noqa: ARG001
    method.generator.weight = nn.Parameter(torch.ones(2, 2))


def the_method_s_optimiser(network, method):  # noqa: ARG001
    method.optimizer.param_groups[0]["betas"] = (0.1, 0.2)


CHANGES = [
    temperature,
    dropout,
    momentum,
    frozen,
    another_buffer,
    in_a_dictionary,
    a_number_of_the_method,
    weights_of_the_method_s_network,
    the_method_s_optimiser,
]


@pytest.mark.parametrize("change", [nothing, other_mode, *CHANGES])
def test_a_graph_is_dropped_when_what_it_read_has_changed(change):
    network, method = Network(), methods.make("mle")
    method.settings = {"w": 1.0}
    method.generator = nn.Linear(2, 2)
    method.optimizer = torch.optim.Adam(method.generator.parameters())
    learner = Learner(network, torch.optim.Adam(network.parameters()), torch.Tensor.backward)
    steps = ReplayedSteps(method, learner, 5, None, torch.device("cpu"))
    steps.graph, steps.captured = "a graph", steps._read_by_a_step()
    steps.begin_epoch()
    assert steps.graph == "a graph"
    change(network, method)
    steps.begin_epoch()
    assert (steps.graph is None) == (change in CHANGES)
