"""Geometric augmentations: values against torchvision's and a numpy twin, draws, and what moves with the image."""

from __future__ import annotations

import numpy as np
import pytest
from torchvision_table import cases, decided, source_map, sources
from twin import augment_pixels as twin

import headrace as hr
from headrace import _core
from headrace.augment import AFFINE, ELASTIC, PERSPECTIVE, compile_augment
from headrace.errors import UsageError

LEVELS = [level for level in ("scalar", "portable", "avx2", "avx512") if level in _core.levels()]
FILL = (9.0, 200.0, 77.0)
NOISE = np.random.default_rng(0).integers(0, 256, (61, 83, 3), np.uint8)
SIZE = NOISE.shape[1], NOISE.shape[0]


def applied(pixels, kind, numbers):
    """What the core makes of the image, which is the same at all levels."""
    chain = [(kind, [float(number) for number in numbers])]
    found = [_core.apply_chain(pixels, chain, level=level) for level in LEVELS]
    assert all(np.array_equal(found[0], other) for other in found)
    return found[0]


def drawn(augmentation, *, size=SIZE, count=1):
    """The one operation that each of `count` samples gets."""
    native = compile_augment("augment", augmentation).native
    chains = [_core.draw_chain(native, 7, sample, 0, width=size[0], height=size[1]) for sample in range(count)]
    return [chain[0] for chain in chains if chain]


def map_of(operation):
    return np.array(operation[1][4:13]).reshape(3, 3)


def levels_apart(ours, theirs):
    return int(np.abs(ours.astype(int) - theirs).max(initial=0))


@pytest.mark.parametrize("op", ["affine", "rotate", "perspective"])
def test_pixels_are_within_one_level_of_torchvision(op):
    for case in cases()[op]:
        given = case.arguments
        at = sources(case)
        bilinear, fill = given["interpolation"] == "bilinear", given["fill"] or (0, 0, 0)
        kind = PERSPECTIVE if op == "perspective" else AFFINE
        ours = applied(case.image, kind, (bilinear, *fill, *source_map(case).ravel()))
        sure = decided(case, at)
        assert levels_apart(ours[sure], case.value[sure]) <= 1, str(case)


@pytest.mark.parametrize("bilinear", [False, True])
@pytest.mark.parametrize(
    "augmentation",
    [
        hr.RandomAffine(180, translate=(0.4, 0.4), scale=(0.4, 2.5), shear=(-40, 40, -30, 30)),
        hr.RandomAffine(0, translate=(1, 1)),
        hr.RandomAffine(0, shear=60),
        hr.RandomRotation((10, 100)),
        hr.RandomPerspective(1.0, p=1.0),
    ],
    ids=["affine", "translate", "shear", "rotate", "perspective"],
)
def test_pixels_are_those_of_the_twin(augmentation, bilinear):
    for kind, args in drawn(augmentation, count=4):
        at = twin.mapped(SIZE, map_of((kind, args)))
        sure = np.ones(at.shape[:2], bool) if bilinear else (np.abs(at - np.floor(at) - 0.5) > 1e-3).all(-1)
        assert sure.mean() > 0.8
        theirs = twin.sample(NOISE, at, bilinear=bilinear, fill=FILL)
        assert levels_apart(applied(NOISE, kind, (bilinear, *FILL, *args[4:13]))[sure], theirs[sure]) <= 1


def test_a_drawn_affine_is_torchvisions_of_its_arguments():
    """Each map lies in the ranges that were asked for: taken apart, and made again by the twin."""
    affine = hr.RandomAffine((20, 50), translate=(0.2, 0.3), scale=(0.5, 0.8))
    for operation in drawn(affine, size=(100, 60), count=20):
        forward = np.linalg.inv(map_of(operation))
        angle, scale = np.degrees(np.arctan2(forward[1, 0], forward[0, 0])), np.hypot(forward[0, 0], forward[1, 0])
        move = forward @ [50, 30, 1] - [50, 30, 1]
        assert 20 <= angle <= 50
        assert 0.5 <= scale <= 0.8
        assert np.allclose(move, np.rint(move))
        assert abs(np.rint(move[0])) <= 20
        assert abs(np.rint(move[1])) <= 18
        assert np.allclose(map_of(operation), twin.affine_map((100, 60), angle, tuple(move[:2]), scale, (0, 0)))


def test_rotation_is_counter_clockwise_and_affine_clockwise():
    corner = np.zeros((9, 9, 3), np.uint8)
    corner[0, 0] = 255
    ((kind, args),) = drawn(hr.RandomRotation((90, 90), interpolation="nearest"), size=(9, 9))
    assert applied(corner, kind, args)[8, 0, 0] == 255
    ((kind, args),) = drawn(hr.RandomAffine((90, 90), interpolation="nearest"), size=(9, 9))
    assert applied(corner, kind, args)[0, 8, 0] == 255


def test_a_perspective_moves_corners_inwards():
    width, height = 64, 40
    for kind, args in drawn(hr.RandomPerspective(0.6, p=1.0), size=(width, height), count=10):
        forward = np.linalg.inv(map_of((kind, args)))
        for x, y in ((0, 0), (width - 1, 0), (width - 1, height - 1), (0, height - 1)):
            u, v, w = forward @ [x, y, 1]
            inwards = abs(u / w - x), abs(v / w - y)
            assert inwards[0] <= 0.6 * width / 2 + 1e-6
            assert inwards[1] <= 0.6 * height / 2 + 1e-6


def elastic_fields(key, size, alpha, sigma):
    """Displacements in pixels, by numpy: noise, blurred in float64 by the whole kernel."""
    width, height = size
    count = width * height
    counters = np.zeros(((count + 1) // 2, 4), np.uint32)
    counters[:, 0] = np.arange(len(counters))
    words = _core.philox(key, counters).reshape(-1, 2)
    noise = (words[:count] >> 8).astype(float) * 2**-23 - 1
    fields = []
    for axis in (0, 1):
        field = noise[:, axis].reshape(height, width)
        for along, spread in ((1, sigma[0]), (0, sigma[1])):
            reach = int(8 * spread + 1) // 2
            weights = twin.gaussian_weights(2 * reach + 1, spread)
            rows = np.take(field, twin.reflected(field.shape[along], reach), axis=along)
            field = np.lib.stride_tricks.sliding_window_view(rows, 2 * reach + 1, axis=along) @ weights
        fields.append(field * alpha[axis] / 2)
    return np.stack(fields, -1)


@pytest.mark.parametrize("bilinear", [False, True])
def test_elastic_pixels_are_those_of_the_twin(bilinear):
    alpha, sigma = (60.0, 40.0), (3.0, 1.5)
    ((kind, args),) = drawn(hr.ElasticTransform(alpha, sigma))
    assert kind == ELASTIC
    assert tuple(args[4:8]) == (*alpha, *sigma)
    moved = elastic_fields(int(args[8]) << 32 | int(args[9]), SIZE, alpha, sigma)
    at = twin.positions(*SIZE) + moved
    sure = np.ones(at.shape[:2], bool) if bilinear else (np.abs(at - np.floor(at) - 0.5) > 1e-3).all(-1)
    assert 0.5 < moved.std() < 20
    assert sure.mean() > 0.99
    theirs = twin.sample(NOISE, at, bilinear=bilinear, fill=FILL)
    assert levels_apart(applied(NOISE, kind, (bilinear, *FILL, *args[4:10]))[sure], theirs[sure]) <= 1


@pytest.mark.parametrize("size", [(1, 1), (2, 5), (17, 1), (16, 16), (33, 3)])
def test_small_images(size):
    image = np.random.default_rng(1).integers(0, 256, (size[1], size[0], 3), np.uint8)
    for augmentation in (
        hr.RandomAffine(90, translate=(0.5, 0.5), scale=(0.3, 3), shear=20, fill=(1, 2, 3)),
        hr.RandomPerspective(p=1.0),
        hr.ElasticTransform(sigma=2.0),
    ):
        for bilinear in (0.0, 1.0):
            for kind, args in drawn(augmentation, size=size, count=3):
                applied(image, kind, [bilinear, *args[1:]])


def test_an_identity_changes_nothing():
    for bilinear in (0, 1):
        assert np.array_equal(applied(NOISE, AFFINE, (bilinear, *FILL, *np.eye(3).ravel())), NOISE)
        assert np.array_equal(applied(NOISE, PERSPECTIVE, (bilinear, *FILL, *np.eye(3).ravel())), NOISE)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hr.RandomAffine(-1), r"RandomAffine: expected degrees to be a number d of at least 0, .* got -1"),
        (lambda: hr.RandomAffine(0, translate=(2, 0)), "expected translate to be None, or two shares"),
        (lambda: hr.RandomAffine(0, scale=(0, 1)), "expected scale to be None, or"),
        (lambda: hr.RandomAffine(0, shear=90), "expected shear to be None"),
        (lambda: hr.RandomAffine(0, shear=(1, 2, 3)), "expected shear to be None"),
        (lambda: hr.RandomAffine(0, center=(1, 2)), "expected center to be None, which is the middle"),
        (lambda: hr.RandomAffine(0, interpolation="bicubic"), 'expected interpolation to be "nearest" or "bilinear"'),
        (lambda: hr.RandomAffine(0, fill=(1, 2)), "expected fill to be a number 0..255, or three"),
        (lambda: hr.RandomRotation(10, expand=True), "expected expand to be False, got True; images of a batch"),
        (lambda: hr.RandomPerspective(1.5), "expected distortion_scale to be a probability from 0 to 1"),
        (lambda: hr.ElasticTransform(sigma=101), "expected sigma to be a number from 0 to 100"),
        (lambda: hr.ElasticTransform(alpha="x"), "expected alpha to be a number"),
    ],
)
def test_bad_use(make, message):
    with pytest.raises(UsageError, match=message):
        make()
