"""Networks: one contract over the registry, the layers of the paper, and every refusal."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from llpkit import LLPError
from llpkit.networks import (
    NETWORKS,
    LLPGANDiscriminator,
    LLPGANFeatureDiscriminator,
    LLPGANFeatureGenerator,
    LLPGANGenerator,
    discriminator_for,
    generator_for,
    make,
)

IMAGES = [(1, 8, 8), (3, 32, 32), (3, 36, 45)]
CASES = [
    ("conv-large", (3, 20, 20)),
    ("conv-large", (1, 16, 28)),
    *(("small-cnn", shape) for shape in IMAGES),
    ("resnet-9", (3, 16, 20)),
    ("resnet-18", (1, 16, 16)),
    ("wrn-28-2", (3, 9, 8)),
    ("mlp", (30,)),
    ("mlp", (1, 8, 8)),
    ("linear", (30,)),
    ("linear", (3, 8, 8)),
    *(("llp-gan", shape) for shape in [*IMAGES, (30,)]),
]
GAN_SHAPES = [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 72, 90), (3, 36, 45), (7,)]


def built(name, shape, outputs=1, seed=0, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make(name, input_shape=shape, num_outputs=outputs, **options)


def inputs(shape, number=4, seed=1):
    return torch.randn(number, *shape, generator=torch.Generator().manual_seed(seed))


def parameters(network):
    return sum(p.numel() for p in network.parameters())


# The contract


def test_every_network_is_under_the_contract():
    assert {name for name, _ in CASES} == set(NETWORKS)
    assert all(entry.summary for entry in NETWORKS.values())


@pytest.mark.parametrize(("name", "shape"), CASES)
@pytest.mark.parametrize("outputs", [1, 2, 5])
def test_logits_have_the_shape_asked_for(name, shape, outputs):
    z = built(name, shape, outputs).eval()(inputs(shape))
    one = (4, 2) if name == "llp-gan" else (4,)
    assert z.shape == (one if outputs == 1 else (4, outputs))
    assert z.isfinite().all()


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_gradient_reaches_every_parameter(name, shape):
    network = built(name, shape, 3)
    F.cross_entropy(network(inputs(shape, 6)), torch.arange(6) % 3).backward()
    silent = [k for k, p in network.named_parameters() if p.grad is None or not p.grad.any()]
    assert silent == []


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_evaluation_is_deterministic_and_row_by_row(name, shape):
    network, x = built(name, shape).eval(), inputs(shape)
    z = network(x)
    assert torch.equal(network(x), z)
    torch.testing.assert_close(torch.cat([network(row[None]) for row in x]), z)


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_a_batch_of_one_instance_trains(name, shape):
    network = built(name, shape)
    network(inputs(shape, 1)).sum().backward()
    assert all(p.grad.isfinite().all() for p in network.parameters())


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_weights_follow_the_seed_of_the_caller(name, shape):
    first, again, other = (built(name, shape, seed=s).state_dict() for s in (0, 0, 1))
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert any(not torch.equal(first[k], other[k]) for k in first)
    before = torch.initial_seed()
    make(name, input_shape=shape, num_outputs=1)
    assert torch.initial_seed() == before


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_mixed_precision_stays_near(name, shape):
    network, x = built(name, shape, 2).eval(), inputs(shape)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = network(x)
    exact = network(x)
    assert (z.float() - exact).abs().max() < 0.05 * exact.abs().max() + 0.02


@pytest.mark.parametrize(("name", "shape"), [case for case in CASES if len(case[1]) == 3])
def test_channels_last_gives_the_same(name, shape):
    network, x = built(name, shape, 2).eval(), inputs(shape)
    z = network(x)
    network = network.to(memory_format=torch.channels_last)
    torch.testing.assert_close(network(x.contiguous(memory_format=torch.channels_last)), z)


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_forward_never_looks_at_a_value(name, shape):
    network = built(name, shape, 2).to("meta")  # has no values to look at
    assert network(inputs(shape).to("meta")).shape == (4, 2)


@pytest.mark.parametrize("name", NETWORKS)
def test_forward_compiles_as_one_graph(name):
    shape = (1, 16, 16)
    network, x = built(name, shape).eval(), inputs(shape)
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), network(x))


# ConvLarge


@pytest.mark.parametrize(("channels", "outputs"), [(1, 1), (3, 1), (3, 10)])
def test_conv_large_has_the_parameters_counted_by_hand(channels, outputs):
    first = 9 * (channels * 128 + 2 * 128 * 128)
    second = 9 * (128 * 256 + 2 * 256 * 256)
    third = 9 * 256 * 512 + 512 * 256 + 256 * 128
    norms = 2 * (3 * 128 + 3 * 256 + 512 + 256 + 128)
    head = 128 * outputs + outputs
    network = built("conv-large", (channels, 32, 32), outputs)
    assert parameters(network) == first + second + third + norms + head


@pytest.mark.parametrize(
    ("name", "millions"),
    # The published sizes for CIFAR-10: DAWNBench's (with a bias), He et al.'s, Zagoruyko et al.'s.
    [("resnet-9", 6.573130), ("resnet-18", 11.173962), ("wrn-28-2", 1.467610)],
)
def test_residual_networks_have_the_published_number_of_weights(name, millions):
    assert parameters(built(name, (3, 32, 32), 10)) == round(1e6 * millions)


@pytest.mark.parametrize(
    ("size", "grid"), [((32, 32), (6, 6)), ((72, 90), (16, 20)), ((36, 45), (7, 9))]
)
def test_conv_large_layer_by_layer(size, grid):
    network, seen = built("conv-large", (3, *size)).eval(), []
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda _m, _x, y: seen.append(tuple(y.shape[1:])))
    assert network(inputs((3, *size), 2)).shape == (2,)
    half, quarter = [tuple(s // f for s in size) for f in (2, 4)]
    assert seen == [
        *[(128, *size)] * 3,
        *[(256, *half)] * 3,
        (512, *grid),
        (256, *grid),
        (128, *grid),
    ]
    assert grid == tuple(s - 2 for s in quarter)
    assert [m.p for m in network.modules() if isinstance(m, nn.Dropout)] == [0.5, 0.5]
    assert {m.negative_slope for m in network.modules() if isinstance(m, nn.LeakyReLU)} == {0.1}


# The small CNN


@pytest.mark.parametrize("size", [(4, 4), (5, 7), (8, 8), (28, 28), (9, 60), (64, 64), (96, 96)])
def test_small_cnn_takes_any_size(size):
    network = built("small-cnn", (1, *size))
    assert network(inputs((1, *size), 2)).shape == (2,)
    assert parameters(network) < 500_000


def test_small_cnn_learns_odd_digits():
    from sklearn.datasets import load_digits

    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1
    y = torch.tensor(digits.target % 2, dtype=torch.float32)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        train, test = torch.randperm(len(x)).split([1500, len(x) - 1500])
        network = make("small-cnn", input_shape=(1, 8, 8), num_outputs=1)
        optimizer = torch.optim.Adam(network.parameters(), 2e-3)
        for rows in [rows for _ in range(12) for rows in torch.randperm(1500).split(64)]:
            chosen = train[rows]
            loss = F.binary_cross_entropy_with_logits(network(x[chosen]), y[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        accuracy = ((network.eval()(x[test]) > 0) == y[test].bool()).float().mean()
    assert accuracy > 0.97


# Dense networks


def test_mlp_has_the_hidden_layers_asked_for():
    layers = [m for m in built("mlp", (30,), 2, hidden=[16, 8]).modules() if type(m) is nn.Linear]
    assert [(m.in_features, m.out_features) for m in layers] == [(30, 16), (16, 8), (8, 2)]
    assert parameters(built("mlp", (30,), 2, hidden=())) == parameters(built("linear", (30,), 2))


def test_linear_is_linear():
    network = built("linear", (6,))
    x = inputs((6,))
    torch.testing.assert_close(network(x), x @ network.head.weight[0] + network.head.bias[0])


# The weights at the start


def he(fan_in, slope):
    return (2 / (1 + slope**2) / fan_in) ** 0.5


def test_weights_have_the_variance_of_he():
    layers = [m for m in built("conv-large", (3, 32, 32)).modules() if isinstance(m, nn.Conv2d)]
    for layer in layers[1:]:  # the smallest has 32,768 weights: a standard error of 0.4 %
        fan_in = layer.in_channels * layer.kernel_size[0] ** 2
        assert layer.weight.std().item() == pytest.approx(he(fan_in, 0.1), rel=0.03)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (30,)])
def test_the_signal_neither_dies_nor_explodes_without_normalisation(shape):
    network = discriminator_for(shape, 2).eval()
    assert 0.05 < network.features(inputs(shape, 64)).square().mean().sqrt() < 5


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32)])
def test_fakes_start_between_grey_and_saturation(shape):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        assert 0.2 < generator_for(shape).draw(32).std() < 0.8


# LLP-GAN


@pytest.mark.parametrize("shape", GAN_SHAPES)
def test_fakes_have_the_shape_and_range_of_what_they_fake(shape):
    fakes = generator_for(shape).draw(3)
    assert fakes.shape == (3, *shape)
    assert fakes.isfinite().all()
    if len(shape) == 3:
        assert fakes.abs().max() <= 1


@pytest.mark.parametrize("shape", GAN_SHAPES)
def test_features_and_logits_of_one_pass(shape):
    network, x = discriminator_for(shape, 3).eval(), inputs(shape)
    logits, features = network.forward_features(x)
    assert features.shape == (4, 64)
    assert torch.equal(logits, network(x))
    assert torch.equal(features, network.features(x))
    torch.testing.assert_close(network.head(features), logits)


@pytest.mark.parametrize("shape", GAN_SHAPES)
def test_matching_features_teaches_the_whole_generator(shape):
    generator, network = generator_for(shape), discriminator_for(shape, 2)
    network.features(generator.draw(4)).mean(0).square().sum().backward()
    assert [k for k, p in generator.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_fakes_are_drawn_from_the_generator_passed():
    fakes = generator_for((7,)).eval()
    first, again, other = (fakes.draw(5, torch.Generator().manual_seed(s)) for s in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_noise_fills_the_cube():
    seen = []
    fakes = generator_for((7,))
    fakes.register_forward_pre_hook(lambda _m, args: seen.append(args[0]))
    fakes.draw(1000, torch.Generator().manual_seed(0))
    z = seen[0]
    assert z.shape == (1000, 100)
    assert -1 <= z.min() < -0.999 < 0.999 < z.max() <= 1
    assert abs(z.mean()) < 0.015  # 6 standard errors: a false alarm once in 5e8 seeds
    torch.testing.assert_close(z.std().item(), 3**-0.5, rtol=0.02, atol=0)


@pytest.mark.parametrize("shape", [(1, 8, 8), (7,)])
def test_one_fake_can_be_drawn_in_training(shape):
    assert generator_for(shape).train().draw(1).isfinite().all()


def test_discriminator_and_generator_as_in_the_paper():
    network = LLPGANDiscriminator((3, 32, 32), 10)
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    assert [(m.out_channels, m.kernel_size[0], m.stride[0]) for m in convolutions] == [
        *[(64, 3, 1), (64, 3, 1), (64, 3, 2)],
        *[(128, 3, 1), (128, 3, 1), (128, 3, 2)],
        *[(256, 3, 1), (128, 1, 1), (64, 1, 1)],
    ]
    assert [m.p for m in network.modules() if isinstance(m, nn.Dropout)] == [0.2, 0.5, 0.5]
    assert all(m.bias is not None for m in convolutions)
    generator = LLPGANGenerator((3, 32, 32))
    assert generator.dense.out_features == 4 * 4 * 512
    ups = [m for m in generator.modules() if isinstance(m, nn.ConvTranspose2d)]
    assert [(m.out_channels, m.kernel_size, m.stride) for m in ups] == [
        (256, (5, 5), (2, 2)),
        (128, (5, 5), (2, 2)),
        (3, (5, 5), (2, 2)),
    ]


def test_images_and_features_get_their_own_kind():
    assert type(discriminator_for((1, 8, 8), 2)) is LLPGANDiscriminator
    assert type(discriminator_for((7,), 2)) is LLPGANFeatureDiscriminator
    assert type(generator_for((1, 8, 8))) is LLPGANGenerator
    assert type(generator_for((7,))) is LLPGANFeatureGenerator
    copy.deepcopy(generator_for((7,)))


# What is refused


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("conv_large", "no network 'conv_large'; did you mean 'conv-large'"),
        ("vgg", f"no network 'vgg'; available: {', '.join(NETWORKS)}"),
        (None, "no network None; available: "),
    ],
)
def test_unknown_network(name, message):
    with pytest.raises(LLPError, match=message):
        make(name, input_shape=(3, 32, 32), num_outputs=1)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mlp", {"hiden": (3,)}, r"'mlp' has no option 'hiden'; did you mean 'hidden'\?"),
        ("linear", {"hidden": (3,)}, r"'linear' has no option 'hidden'; it takes none"),
        ("mlp", {"hidden": 64}, r"hidden = 64; give the widths of the hidden layers"),
        ("mlp", {"hidden": (64, 0)}, r"hidden\[1\] = 0; give a whole number of at least 1"),
    ],
)
def test_options(name, options, message):
    with pytest.raises(LLPError, match=message):
        make(name, input_shape=(30,), num_outputs=1, **options)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("conv-large", (3, 8, 8), r"at least 16 x 16 pixels, these are 8 x 8; .* 'small-cnn'"),
        ("conv-large", (3, 40, 15), r"at least 16 x 16 pixels, these are 40 x 15"),
        ("conv-large", (30,), r"'conv-large' takes images \(C, H, W\), but input_shape = \(30,\)"),
        ("small-cnn", (1, 3, 9), r"at least 4 x 4 pixels, these are 3 x 9; .* 'mlp'"),
        ("small-cnn", (30,), r"'small-cnn' takes images .* for features use 'mlp' or 'linear'"),
        ("mlp", (5, 30), r"input_shape = \(5, 30\); give the shape of one input"),
        ("mlp", 30, r"input_shape = 30; give the shape of one input"),
        ("mlp", (0,), r"input_shape\[0\] = 0; give a whole number"),
        ("llp-gan", (3, 32, 2.5), r"input_shape\[2\] = 2.5; give a whole number"),
        ("llp-gan", (), r"input_shape = \(\); give the shape of one input"),
    ],
)
def test_shapes(name, shape, message):
    with pytest.raises(LLPError, match=message):
        make(name, input_shape=shape, num_outputs=1)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("outputs", [0, -1, 1.5, True, None])
def test_numbers_of_outputs(name, outputs):
    with pytest.raises(LLPError, match=rf"num_outputs = {outputs}; give a whole number"):
        make(name, input_shape=(1, 16, 16), num_outputs=outputs)


def test_a_discriminator_needs_two_classes():
    with pytest.raises(LLPError, match="num_classes = 1; LLP-GAN has a logit per class"):
        LLPGANDiscriminator((1, 8, 8), 1)
    with pytest.raises(LLPError, match="'llp-gan' takes images"):
        LLPGANGenerator((7,))
