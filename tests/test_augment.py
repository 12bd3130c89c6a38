"""Augmentation: each change against its formula, every image its own draw, and the refusals."""

import math
import warnings
from dataclasses import replace

import pytest
import torch

from llpkit import LLPError, augment
from llpkit.augment import AUGMENTATIONS, Augment, make

FLIP = Augment(flip=True, blur=0, colour=0)
BLUR = Augment(flip=False, blur=0.1, colour=0)
COLOUR = Augment(flip=False, blur=0, colour=0.4)
EVERYTHING = Augment(flip=True, blur=0.05, colour=0.3, shift=0.1, rotate=20, scale=0.1, cutout=0.4)
ALL = [Augment.paper(), Augment.geometric(), Augment.strong(), FLIP, BLUR, COLOUR, EVERYTHING]
SHAPES = [(1, 8, 8), (3, 32, 32), (3, 24, 40), (1, 40, 24)]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def images(number=6, shape=(3, 24, 40), dtype=torch.float32):
    return torch.rand(number, *shape, generator=seeded(9)).to(dtype)


def middle(x):
    """Draws that change nothing but blur: every random number at the middle of its range."""
    draws = torch.full((len(x), augment._TINT + x.shape[1]), 0.5, dtype=torch.float64)
    draws[:, augment._FLIP] = 0
    return draws


def blob(height, width, radius, right=0.0, below=0.0):
    """A round spot, off the middle by so many pixels."""
    x = torch.arange(width, dtype=torch.float64) - (width - 1) / 2 - right
    y = torch.arange(height, dtype=torch.float64)[:, None] - (height - 1) / 2 - below
    return torch.exp(-(x**2 + y**2) / (2 * radius**2))[None, None]


# What holds for all


@pytest.mark.parametrize("change", ALL)
@pytest.mark.parametrize("shape", SHAPES)
def test_shape_range_and_type_are_kept(change, shape):
    x = images(12, shape)
    before = x.clone()
    y = change(x, seeded())
    assert y.shape == x.shape
    assert y.dtype == x.dtype
    assert 0 <= y.min() <= y.max() <= 1
    assert not torch.equal(y, x)
    assert torch.equal(x, before)


@pytest.mark.parametrize("change", ALL)
def test_every_image_has_its_own_draw(change):
    same = images(1).expand(40, -1, -1, -1)
    distinct = len(change(same, seeded()).unique(dim=0))
    assert distinct == (2 if change == FLIP else 40)


@pytest.mark.parametrize("change", ALL)
def test_draws_come_from_the_generator_passed(change):
    x = images(12)
    state = torch.get_rng_state()
    first, again, other = (change(x, seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_without_a_generator_draws_are_torch_s_own():
    x = images()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        first, second = EVERYTHING(x), EVERYTHING(x)
        torch.manual_seed(3)
        assert torch.equal(EVERYTHING(x), first)
    assert not torch.equal(first, second)


def test_an_image_depends_on_its_own_draws_alone():
    x = images()
    draws = EVERYTHING.draw(x, seeded())
    whole = EVERYTHING.apply(x, draws)
    parts = [EVERYTHING.apply(x[i : i + 1], draws[i : i + 1]) for i in range(len(x))]
    torch.testing.assert_close(whole, torch.cat(parts))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_round_the_same_images(dtype):
    x = images(dtype=dtype)
    y = EVERYTHING(x, seeded())
    assert y.dtype == dtype
    exact = EVERYTHING(x.float(), seeded())
    tolerance = 1e-4 if dtype == torch.float64 else 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(y.float(), exact, rtol=tolerance, atol=tolerance)


def test_mixed_precision_changes_nothing():
    x = images()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = EVERYTHING(x, seeded())
    torch.testing.assert_close(y, EVERYTHING(x, seeded()))


@pytest.mark.parametrize("change", ALL)
def test_a_batch_without_images(change):
    assert change(images(0), seeded()).shape == (0, 3, 24, 40)


@pytest.mark.parametrize("change", ALL)
def test_channels_last_gives_the_same(change):
    x = images()
    y = change(x.contiguous(memory_format=torch.channels_last), seeded())
    torch.testing.assert_close(y, change(x, seeded()))


def test_it_never_looks_at_a_value():
    x = images().to("meta")  # has no values to look at, as on a card that must not be waited for
    assert EVERYTHING(x).shape == x.shape


def test_it_compiles_as_one_graph():
    x = images()
    draws = EVERYTHING.draw(x, seeded())
    compiled = torch.compile(EVERYTHING.apply, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, draws), EVERYTHING.apply(x, draws))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_on_the_card_without_waiting_for_it(dtype):
    x = images(dtype=dtype).cuda()
    draws = EVERYTHING.draw(x, torch.Generator("cuda").manual_seed(0))
    EVERYTHING(x)  # what is set up once, libraries and their workspaces, may wait
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the mode is called a prototype
            torch.cuda.set_sync_debug_mode("error")
        y = EVERYTHING.apply(x, draws)
        EVERYTHING(x)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert y.dtype == dtype
    expected = EVERYTHING.apply(x.cpu(), draws.cpu()).float()
    torch.testing.assert_close(y.cpu().float(), expected, rtol=1e-2, atol=1e-2)


# None


@pytest.mark.parametrize("change", [Augment.none(), Augment(flip=False, blur=0, colour=0)])
def test_none_returns_what_it_got(change):
    x = images()
    assert change(x, seeded()) is x


@pytest.mark.parametrize("change", ALL)
def test_draws_at_the_middle_leave_an_image_alone(change):
    x = images(dtype=torch.float64)
    draws = middle(x)
    draws[:, augment._BLUR] = 1 - 1e-6
    # A cut-out always covers something.
    torch.testing.assert_close(replace(change, cutout=0.0).apply(x, draws), x)


# Flip


@pytest.mark.parametrize("shape", SHAPES)
def test_a_flip_gives_the_image_or_its_mirror(shape):
    x = images(20, shape)
    y, mirrored = FLIP(x, seeded()), x.flip(3)
    kept = (y == x).flatten(1).all(1)
    turned = (y == mirrored).flatten(1).all(1)
    assert (kept ^ turned).all()
    assert kept.any()
    assert turned.any()


def test_vertical_flips_are_independent_and_change_no_other_draw():
    x = torch.zeros(4000, 1, 2, 2)
    x[:, :, 0, 0] = 1
    both = replace(FLIP, vertical=True)(x, seeded())
    corners = both.sum((0, 1)).flatten().tolist()  # where the bright corner went
    assert sum(corners) == 4000
    assert all(abs(number - 1000) < 165 for number in corners)  # 6 standard deviations
    torch.testing.assert_close(both.sum(2), FLIP(x, seeded()).sum(2))


def test_about_half_are_flipped():
    x = torch.tensor([0.0, 1.0]).expand(4000, 1, 1, 2)
    flipped = FLIP(x, seeded())[:, 0, 0, 0].sum().item()
    assert abs(flipped - 2000) < 190  # 6 standard deviations: a false alarm once in 5e8 seeds


# Blur


def blurred(x, sigma, reach):
    """One image by the definition, pixel by pixel along each axis, edges repeated."""
    for axis in (1, 2):
        size = x.shape[axis]
        total, weights = 0, 0
        for k in range(-reach, reach + 1):
            weight = math.exp(-0.5 * (k / sigma) ** 2)
            rows = [min(max(i + k, 0), size - 1) for i in range(size)]
            total = total + weight * x.index_select(axis, torch.tensor(rows))
            weights += weight
        x = total / weights
    return x


@pytest.mark.parametrize("shape", SHAPES)
def test_blur_is_a_gaussian_of_each_image_s_own_width(shape):
    x = images(shape=shape, dtype=torch.float64)
    draws = BLUR.draw(x, seeded()).double()
    largest = 0.1 * min(shape[1:])
    sigmas = largest * (1 - draws[:, augment._BLUR])
    expected = [
        blurred(image, sigma.item(), max(1, round(2 * largest)))
        for image, sigma in zip(x, sigmas, strict=True)
    ]
    torch.testing.assert_close(BLUR.apply(x, draws), torch.stack(expected))


def test_blur_widens_a_spot_by_its_variance():
    x = blob(61, 61, 3.0)
    draws = middle(x)
    draws[:, augment._BLUR] = 0.5  # sigma = 61 * 0.1 / 2
    sigma = 61 * 0.1 / 2
    expected = blob(61, 61, (9 + sigma**2) ** 0.5) * 9 / (9 + sigma**2)
    torch.testing.assert_close(BLUR.apply(x, draws), expected, atol=2e-3, rtol=0)


def test_blur_leaves_a_plain_image_alone():
    x = torch.full((3, 3, 9, 12), 0.7)
    torch.testing.assert_close(BLUR(x, seeded()), x)


def test_blur_of_nearly_nothing_is_finite():
    x = images(1, dtype=torch.float32)
    draws = middle(x).float()
    for u in (0.0, 1 - 2**-24):  # the ends of what torch.rand gives
        draws[:, augment._BLUR] = u
        assert BLUR.apply(x, draws).isfinite().all()
    torch.testing.assert_close(BLUR.apply(x, draws), x)


# Rotation, scale, shift


def moved(x, draw, value, **settings):
    draws = middle(x)
    draws[:, draw] = value
    return Augment(flip=False, blur=0, colour=0, **settings).apply(x, draws)


def test_a_quarter_turn():
    x = images(2, (3, 8, 8), torch.float64)
    turned = moved(x, augment._ROTATE, 1.0, rotate=90)
    torch.testing.assert_close(turned, x.rot90(1, (2, 3)))
    back = moved(x, augment._ROTATE, 0.0, rotate=90)
    torch.testing.assert_close(back, x.rot90(-1, (2, 3)))


@pytest.mark.parametrize("size", [(40, 24), (24, 40)])
def test_rotation_keeps_round_things_round_in_any_format(size):
    x = blob(*size, 3.0)
    turned = moved(x, augment._ROTATE, 1.0, rotate=50)
    near = tuple(slice(side // 2 - 7, side // 2 + 7) for side in size)  # no mirror image there
    torch.testing.assert_close(turned[0, 0][near], x[0, 0][near], atol=0.04, rtol=0)


@pytest.mark.parametrize("sign", [-1, 1])
def test_rotation_carries_a_spot_around_the_middle(sign):
    x = blob(40, 60, 2.5, right=10)
    turned = moved(x, augment._ROTATE, (1 + sign) / 2, rotate=30)
    angle = math.radians(30) * sign
    expected = blob(40, 60, 2.5, right=10 * math.cos(angle), below=-10 * math.sin(angle))
    torch.testing.assert_close(turned, expected, atol=0.05, rtol=0)


def test_scale_magnifies_and_shrinks():
    x = blob(40, 60, 4.0)
    larger = moved(x, augment._SCALE, 1.0, scale=0.25)
    smaller = moved(x, augment._SCALE, 0.0, scale=0.25)
    torch.testing.assert_close(larger, blob(40, 60, 5.0), atol=0.02, rtol=0)
    torch.testing.assert_close(smaller, blob(40, 60, 3.0), atol=0.02, rtol=0)


def test_shifts_are_fractions_of_each_side():
    x = blob(40, 60, 2.0)
    right = moved(x, augment._RIGHT, 1.0, shift=0.1)
    down = moved(x, augment._DOWN, 1.0, shift=0.1)
    torch.testing.assert_close(right, blob(40, 60, 2.0, right=6))
    torch.testing.assert_close(down, blob(40, 60, 2.0, below=4))


def test_beyond_its_edge_an_image_goes_on_mirrored():
    x = images(2, (1, 8, 8), torch.float64)
    right = moved(x, augment._RIGHT, 1.0, shift=0.25)  # two pixels
    torch.testing.assert_close(right[..., 2:], x[..., :-2])
    torch.testing.assert_close(right[..., :2], x[..., :2].flip(3))


# Shifts alone, cut-out, colour


def test_a_shift_alone_is_by_whole_pixels():
    x = images(20, (1, 16, 16))
    moved = Augment(flip=False, blur=0, colour=0, shift=0.125)(x, seeded())
    # No pixel is a mixture of others: every value was there before.
    near = (moved.flatten(1)[:, :, None] - x.flatten(1)[:, None, :]).abs().amin(2)
    assert near.max() < 1e-5
    assert len({tuple(m[0, 8].tolist()) for m in moved}) == len(moved)


@pytest.mark.parametrize("shape", [(3, 16, 16), (1, 16, 24)])
def test_cutout_covers_one_square_with_the_mean_colour(shape):
    change = Augment(flip=False, blur=0, colour=0, cutout=0.5)
    x = images(200, shape)
    y = change(x, seeded())
    for before, after in zip(x, y, strict=True):
        gone = (before != after).any(0)
        rows, columns = gone.any(1).nonzero()[:, 0], gone.any(0).nonzero()[:, 0]
        # One rectangle, a square of 8 pixels unless the edge of the image cuts it.
        assert gone.sum() == len(rows) * len(columns)
        assert 4 <= len(rows) <= 8
        assert 4 <= len(columns) <= 8
        mean = before.mean((1, 2))[:, None].expand(-1, int(gone.sum()))
        torch.testing.assert_close(after[:, gone], mean)
    assert (x != y).any(1).float().mean() < 0.25


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 24, 40)])
def test_colour_follows_its_formula(shape):
    x = images(shape=shape, dtype=torch.float64)
    draws = COLOUR.draw(x, seeded()).double()
    for image, u, y in zip(x, 2 * draws - 1, COLOUR.apply(x, draws), strict=True):
        contrast, brightness = 1 + 0.4 * u[augment._CONTRAST], 1 + 0.4 * u[augment._BRIGHTNESS]
        for c in range(shape[0]):
            gain = brightness * (1 + 0.2 * u[augment._TINT + c] if shape[0] > 1 else 1)
            value = gain * (image.mean() + contrast * (image[c] - image.mean()))
            torch.testing.assert_close(y[c], value.clamp(0, 1))


def test_black_stays_black():
    assert not COLOUR(torch.zeros(5, 3, 8, 8), seeded()).any()


# Presets, and what is refused


def test_presets():
    assert Augment.paper() == Augment()
    paper, geometric = Augment.paper(), Augment.geometric()
    assert paper.flip
    assert paper.blur > 0
    assert paper.colour > 0
    assert paper.shift == paper.rotate == paper.scale == 0
    assert (geometric.shift, geometric.rotate, geometric.scale) == (0.05, 6, 0.05)
    assert geometric.flip
    assert geometric.colour > 0
    assert Augment.authors() == replace(paper, vertical=True)
    assert {name: make(name) for name in AUGMENTATIONS} == {
        "paper": paper,
        "authors": Augment.authors(),
        "geometric": geometric,
        "weak": Augment.weak(),
        "strong": Augment.strong(),
        "weak-no-flip": replace(Augment.weak(), flip=False),
        "strong-no-flip": replace(Augment.strong(), flip=False),
        "none": Augment.none(),
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("papper", "no augmentation 'papper'; did you mean 'paper'"),
        ("mixup", "no augmentation 'mixup'; available: paper, authors, geometric, weak"),
    ],
)
def test_unknown_preset(name, message):
    with pytest.raises(LLPError, match=message):
        make(name)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"blur": -0.1}, r"blur = -0.1; give a number from 0 to 0.25"),
        ({"blur": 1.5}, r"blur = 1.5; give a number from 0 to 0.25"),
        ({"colour": 2}, r"colour = 2; give a number from 0 to 1"),
        ({"shift": float("nan")}, r"shift = nan; give a number from 0 to 0.5"),
        ({"rotate": 200}, r"rotate = 200; give a number from 0 to 180"),
        ({"scale": "big"}, r"scale = 'big'; give a number from 0 to 0.9"),
        ({"flip": 0.5}, r"flip = 0.5; give true or false"),
    ],
)
def test_settings_out_of_range(settings, message):
    with pytest.raises(LLPError, match=message):
        Augment(**settings)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), r"torch.uint8 of shape .* divided by 255"),
        (torch.zeros(3, 8, 8), r"shape \(3, 8, 8\); give floats in \[0, 1\] of shape \(n, C, H"),
    ],
)
@pytest.mark.parametrize("change", [Augment.paper(), Augment.none()])
def test_what_is_no_batch_of_images(change, x, message):
    with pytest.raises(LLPError, match=message):
        change(x)


def test_a_generator_on_another_device():
    message = r"generator is on cpu but the images are on meta; use torch.Generator\('meta'\)"
    with pytest.raises(LLPError, match=message):
        EVERYTHING(images().to("meta"), seeded())
