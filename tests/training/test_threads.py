"""Fits in threads: one seed gives one set of weights, whatever runs beside it."""

import copy
import os
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import llpkit
from llpkit.networks import NETWORKS
from llpkit.training import Callback
from llpkit.training import fitting as fit_module


def toy():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 3, generator=generator)
    return x, llpkit.random_bags((x[:, 0] > 0).long(), (1, 6), generator=0)


def dropping():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 1))


def trained(network, **options):
    x, bags = toy()
    options = {"epochs": 3, "batch_size": 16, "progress": False, "device": "cpu", **options}
    model = llpkit.fit(network, bags, x, **options)
    return torch.cat([p.detach().flatten() for p in model.network.parameters()])


@pytest.mark.parametrize("network", ["mlp", dropping()], ids=["named", "dropout"])
def test_four_threads_give_the_weights_of_a_lone_fit(network):
    def one(_=None):
        return trained(copy.deepcopy(network), seed=3)

    alone = one()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns as often as they can
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(one, range(4)))
    finally:
        sys.setswitchinterval(before)
    for weights in found:
        assert torch.equal(weights, alone)


@pytest.mark.parametrize("method", ["mle", "direct"])
def test_others_that_draw_do_not_change_the_order_of_instances(method):
    class Disturbed(nn.Linear):
        """Draws where a thread might: after the seeding and before the shuffling."""

        draws = 0

        def train(self, mode=True):
            torch.rand(self.draws)
            return super().train(mode)

    found = []
    for draws in (0, 7):
        network = Disturbed(3, 1)
        nn.init.constant_(network.weight, 0.1)
        nn.init.zeros_(network.bias)
        network.draws = draws
        found.append(trained(network, method=method))
    assert torch.equal(*found)


def test_a_callback_may_fit_as_well():
    class Nested(Callback):
        def on_end(self, _):
            self.weights = trained("mlp")

    nested = Nested()
    done = threading.Thread(target=trained, args=("mlp",), kwargs={"callbacks": [nested]})
    done.start()
    done.join(60)
    assert torch.equal(nested.weights, trained("mlp"))


@pytest.mark.parametrize("name", NETWORKS)
def test_reading_a_model_leaves_the_random_numbers_alone(name, tmp_path):
    shape = (3,) if name in ("mlp", "linear", "llp-gan") else (1, 16, 16)
    x = torch.rand(16, *shape, generator=torch.Generator().manual_seed(0))
    bags = llpkit.Bags(offsets=[0, 8, 16], counts=[2, 5])
    model = llpkit.fit(name, bags, x, epochs=1, device="cpu", progress=False)
    model.save(tmp_path)
    before = torch.get_rng_state()
    loaded = llpkit.load(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(loaded.predict_proba(x), model.predict_proba(x))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_was_forked_while_a_thread_trained_can_train():
    begun, over = threading.Event(), threading.Event()

    class Wait(Callback):
        def on_epoch(self, *_):
            begun.set()
            over.wait()

    thread = threading.Thread(target=trained, args=("mlp",), kwargs={"callbacks": [Wait()]})
    thread.start()
    begun.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that forking beside threads may go wrong
        child = os.fork()
    if child == 0:
        free = fit_module._training.acquire(blocking=False)
        os._exit(0 if free else 1)
    status = os.waitpid(child, 0)[1]
    over.set()
    thread.join()
    assert status == 0
