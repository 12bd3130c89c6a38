"""Many classes in large bags, where the exact likelihood is intractable."""

import inspect
import pickle
import warnings

import numpy as np
import pytest
import torch

import llpkit
from llpkit import Bags, LLPError, evaluation, likelihood
from llpkit.errors import ApproximationWarning, BaselineWarning
from llpkit.estimators import LLPLogisticRegression, bag_log_likelihood
from llpkit.likelihood import Evidence
from llpkit.losses import count_loss
from llpkit.methods import METHODS

K = 10
LIKELIHOOD = [
    key for key, how in METHODS.items() if "approximation" in inspect.signature(how).parameters
]
BOUND, EXACT = {"approximation": "sinkhorn"}, {"approximation": None}


def toy(rows=600, size=60, classes=K, seed=0):
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randint(0, classes, (rows,), generator=generator)
    x = 4.0 * torch.eye(classes)[truth] + torch.randn(rows, classes, generator=generator)
    return x, truth, llpkit.random_bags(truth, size, generator=seed, num_classes=classes)


def messages(warned):
    return [str(w.message) for w in warned if w.category is ApproximationWarning]


@pytest.mark.parametrize(("size", "rows"), [(60, 600), (1000, 2000)])
@pytest.mark.parametrize("key", [key for key in METHODS if key != "amle-paper"])
def test_every_method_trains_and_says_once_what_is_approximate(key, size, rows):
    x, truth, bags = toy(rows, size)
    with pytest.warns(ApproximationWarning) as warned:
        model = llpkit.fit(
            METHODS[key].network_name or "linear",
            bags,
            x,
            key,
            epochs=2,
            held_out=0.5,
            labels=truth if METHODS[key].needs_labels else None,
            progress=False,
        )
    (text,) = messages(warned)
    assert ('approximation="saddlepoint"' in text) == (key in LIKELIHOOD)
    chosen = model.details["settings"]["chosen_approximation"]
    assert chosen == ("saddlepoint" if key in LIKELIHOOD else None)
    assert f"the exact likelihood of {len(bags)} of {len(bags)} bags" in text
    for row in model.history:
        assert np.isfinite([row["log_likelihood"], row["held_out_log_likelihood"]]).all()
    with pytest.warns(ApproximationWarning, match="posteriors are approximate"):
        phi = model.posterior(x, bags)
    torch.testing.assert_close(phi[bags[:1].rows].sum(0), bags.counts[0].float(), atol=1e-2, rtol=0)


@pytest.mark.parametrize("options", [{}, BOUND], ids=["auto", "sinkhorn"])
@pytest.mark.parametrize("key", ["mle", "direct"])
def test_approximations_learn_a_separable_toy(key, options):
    x, _, bags = toy(1800)
    unseen, truth, _ = toy(seed=1)
    with pytest.warns(ApproximationWarning):
        model = llpkit.fit(
            "linear", bags, x, key, epochs=20, lr=0.1, method_options=options, progress=False
        )
    assert evaluation.accuracy(model.predict_proba(unseen), truth) > 0.9


@pytest.mark.parametrize("key", ["mle", "direct"])
def test_the_remedy_is_named_before_training_in_the_words_of_fit(key):
    class Never(torch.nn.Linear):
        def forward(self, _):
            raise AssertionError("training has begun")

    x, _, bags = toy()
    message = r'bag 0 \(60 inst.* states .*method_options=\{"approximation": "auto"\}$'
    with pytest.raises(LLPError, match=message):
        llpkit.fit(Never(K, K), bags, x, key, method_options=EXACT, progress=False)


@pytest.mark.parametrize("key", ["mle", "direct"])
def test_what_the_option_takes(key):
    x, truth, bags = toy(120, 4, classes=3)
    with pytest.raises(LLPError, match=r"approximation = 'guess'; .* available: auto, saddlepoint"):
        llpkit.fit("linear", bags, x, key, method_options={"approximation": "guess"})
    binary = llpkit.random_bags((truth > 0).long(), 4, generator=0)
    with pytest.raises(LLPError, match="binary counts are always exact: leave it out"):
        llpkit.fit("linear", binary, x, key, method_options=BOUND)
    ranges = Bags(bags.offsets, Evidence.interval(bags.counts, bags.counts + 1), bags.rows)
    with pytest.raises(LLPError, match="takes exact counts, but these are ranges"):
        llpkit.fit("linear", ranges, x, key, method_options=BOUND)


def test_ranges_of_many_classes_have_no_likelihood_and_stop_nothing_but_what_needs_it():
    x, truth, bags = toy()
    wide = Evidence.interval((bags.counts - 1).clamp(min=0), bags.counts + 1)
    ranges = Bags(bags.offsets, wide, bags.rows)
    with pytest.raises(LLPError, match="no approximation for counts that are not exact; make bags"):
        llpkit.fit("linear", ranges, x, progress=False)
    options = {"epochs": 2, "labels": truth, "progress": False}
    with pytest.warns(ApproximationWarning, match="no log-likelihood and no posterior"):
        model = llpkit.fit("linear", ranges, x, "supervised", **options)
    assert np.isnan(model.history[-1]["log_likelihood"])
    with pytest.warns(ApproximationWarning):
        phi = model.posterior(x, ranges)
    torch.testing.assert_close(phi, model.predict_proba(x))
    with pytest.raises(LLPError, match="train without held_out"):
        llpkit.fit("linear", ranges, x, "supervised", held_out=0.5, **options)
    both = Evidence.concat([Evidence.exact(bags.counts[:5]), wide[5:]])
    some = Bags(bags.offsets, both, bags.rows)
    with pytest.warns(ApproximationWarning, match="except for 5 whose counts are not exact"):
        model = llpkit.fit("linear", some, x, "supervised", **options)
    assert np.isfinite(model.history[-1]["log_likelihood"])


def test_a_bag_is_approximated_only_where_it_must_be():
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(0, K, (68,), generator=generator)
    groups = torch.tensor([0] * 4 + [1] * 60 + [2] * 4)
    bags = Bags.from_labels(truth, groups, num_classes=K)
    z = torch.randn(68, K, generator=generator)
    parts = [bags[[0]], bags[[1]], bags[[2]]]
    starts = [z[:4], z[4:64], z[64:]]
    approximations = [None, "saddlepoint", None]
    with pytest.warns(ApproximationWarning, match="of 1 of 3 bags"):
        found = evaluation.bag_log_likelihood(z, bags)
    for value, part, own, how in zip(found, parts, starts, approximations, strict=True):
        wanted = likelihood.log_prob(own, part.counts, part.offsets, approximation=how)
        torch.testing.assert_close(value, wanted[0], rtol=0, atol=0)


def test_few_classes_stay_exact_to_the_last_digit():
    x, _, bags = toy(600, 60, classes=3)
    z = torch.randn(600, 3, generator=torch.Generator().manual_seed(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", BaselineWarning)  # one epoch learns nothing
        found = evaluation.bag_log_likelihood(z, bags)
        model = llpkit.fit("linear", bags, x, epochs=1, progress=False)
        phi = model.posterior(x, bags)
    assert torch.equal(found, likelihood.log_prob(z, bags.counts, bags.offsets))
    logits = model.logits(x)[bags.rows]
    assert torch.equal(phi[bags.rows], likelihood.posterior(logits, bags.counts, bags.offsets))


def test_a_very_sure_network_is_measured_too():
    _, truth, bags = toy()
    wrong = 1e4 * torch.eye(K)[(truth + 1) % K]
    with pytest.warns(ApproximationWarning):
        assert evaluation.bag_log_likelihood(wrong[bags.rows], bags).isfinite().all()


def test_the_loss_takes_the_approximation():
    _, _, bags = toy()
    z = torch.randn(600, K, generator=torch.Generator().manual_seed(0))
    loss = count_loss(z, bags.evidence, bags.offsets, "sinkhorn")
    assert torch.equal(
        loss, -likelihood.log_prob(z, bags.counts, bags.offsets, approximation="sinkhorn")
    )


def test_estimators_name_their_own_option_and_the_scorer_measures():
    x, _, bags = toy(240)
    rows, counts = x[bags.rows].numpy(), bags.counts.numpy()
    groups = bags.bag_index.numpy()
    with pytest.raises(LLPError, match=r'approximate it with approximation="auto"$') as error:
        LLPLogisticRegression(approximation=None).fit(rows, counts[groups], groups)
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    model = LLPLogisticRegression(max_iter=5, tol=1e3)
    with pytest.warns(ApproximationWarning, match='approximation="saddlepoint"'):
        model.fit(rows, counts[groups], groups)
    assert model.approximation_ == "saddlepoint"
    with pytest.warns(ApproximationWarning):
        value = bag_log_likelihood(model, rows, counts[groups], groups)
    assert value == pytest.approx(model.score(rows, counts[groups], groups))


@pytest.mark.filterwarnings("ignore::llpkit.errors.BaselineWarning")
@pytest.mark.parametrize("key", ["mle", "direct", "dllp", "amle"])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_network_may_mask_classes(key, classes):
    """With -1e9, as is usual: the class is never predicted, and everything stays finite."""

    class Masked(torch.nn.Linear):
        def forward(self, x):
            masked = (x[:, :1] > 0) & (torch.arange(classes) == 1)
            return super().forward(x).masked_fill(masked, -1e9)

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 3, generator=generator)
    truth = torch.randint(0, classes, (200,), generator=generator)
    truth[(x[:, 0] > 0) & (truth == 1)] = 0
    bags = llpkit.random_bags(truth, 5, generator=0, num_classes=classes)
    model = llpkit.fit(
        Masked(3, classes), bags, x, key, epochs=2, held_out=0.2, device="cpu", progress=False
    )
    assert all(p.isfinite().all() for p in model.network.parameters())
    for row in model.history:
        assert row["log_likelihood"] > -10
        assert row["held_out_log_likelihood"] > -10
    assert float(model.posterior(x, bags)[x[:, 0] > 0, 1].max()) == 0
