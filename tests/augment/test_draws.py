"""Drawn chains: equal to the twin bit for bit, and distributed as the classes' arguments say."""

from __future__ import annotations

import math
from collections import Counter
from itertools import permutations, product

import numpy as np
import pytest
from programs import AUGMIX, program
from scipy import stats
from twin import augment as twin

import headrace as hr
from headrace import _core
from headrace.augment import compile_augment

N = 3000
PASSES_IF_ABOVE = 1e-3
WIDTH, HEIGHT = 331, 224
BRIGHTNESS, CONTRAST, SATURATION, HUE, GRAYSCALE, INVERT, SOLARIZE, POSTERIZE = range(10, 18)
AUTOCONTRAST, EQUALIZE, SHARPNESS = range(18, 21)
BLUR, PERMUTE, ERASE = 21, 22, 23

Chain = list[tuple[int, list[float]]]


def check_twin(table: np.ndarray, **draw: int) -> None:
    core = _core.draw_chain(
        _core.Augmentation(table),
        draw["key"],
        draw["sample"],
        draw["number"],
        width=draw["width"],
        height=draw["height"],
        dataset=draw["dataset"],
    )
    ours, theirs = ([[kind, *numbers] for kind, numbers in chain] for chain in (core, twin.draw_chain(table, **draw)))
    assert np.array(ours).tobytes() == np.array(theirs).tobytes(), (ours, theirs)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_chains_equal_their_twin(seed: int) -> None:
    """Programs of every shape, sizes, keys, samples and passes."""
    rng = np.random.default_rng(seed)
    for number in range(2000 if seed else 150):
        table = program(10_000 * seed + number)
        check_twin(
            table,
            key=int(rng.integers(0, 2**64, dtype=np.uint64)),
            sample=int(rng.integers(2**40)),
            number=int(rng.integers(2**32)),
            dataset=int(rng.integers(2**16)),
            width=int(rng.integers(1, 400)),
            height=int(rng.integers(1, 400)),
        )


def test_sines_are_within_two_units_of_the_last_place() -> None:
    """Whole quarters are exact, where the C library's sine of a rounded pi is not."""
    for degrees in [*np.linspace(-720, 720, 2881), *np.random.default_rng(0).uniform(-180, 180, 500)]:
        both = _core.exact_sin_cos(degrees)
        assert both == twin.sin_cos(degrees)
        turn = math.radians(math.remainder(degrees, 360))
        assert np.allclose(both, (math.sin(turn), math.cos(turn)), rtol=0, atol=4e-16)
    assert [_core.exact_sin_cos(90.0 * quarter) for quarter in range(4)] == [(0, 1), (1, 0), (0, -1), (-1, 0)]


def chains(*augmentations: hr.Augmentation | str) -> list[Chain]:
    """What N samples draw."""
    program = compile_augment("augment", list(augmentations))
    assert program is not None
    native = program.native
    return [_core.draw_chain(native, 2026, sample, 0, width=WIDTH, height=HEIGHT) for sample in range(N)]


def kinds(chain: Chain) -> tuple[int, ...]:
    return tuple(kind for kind, _ in chain)


def numbers(drawn: list[Chain], kind: int, place: int = 0) -> np.ndarray:
    return np.array([found[place] for chain in drawn for what, found in chain if what == kind])


def assert_uniform(values: np.ndarray, low: float, high: float) -> None:
    assert stats.kstest(values, stats.uniform(low, high - low).cdf).pvalue > PASSES_IF_ABOVE


def assert_shares(counts: Counter, shares: dict) -> None:
    """Chi-square of what came against its expected shares; nothing else came."""
    assert set(counts) <= set(shares), counts.keys() - shares.keys()
    expected = np.array(list(shares.values()), float) / sum(shares.values()) * counts.total()
    assert stats.chisquare([counts[what] for what in shares], expected).pvalue > PASSES_IF_ABOVE


def test_color_jitter() -> None:
    drawn = chains(hr.ColorJitter(0.4, 0.3, (0.5, 2.5), 0.1))
    for kind, low, high in ((BRIGHTNESS, 0.6, 1.4), (CONTRAST, 0.7, 1.3), (SATURATION, 0.5, 2.5), (HUE, -0.1, 0.1)):
        assert_uniform(numbers(drawn, kind), low, high)
    assert_shares(Counter(map(kinds, drawn)), dict.fromkeys(permutations((BRIGHTNESS, CONTRAST, SATURATION, HUE)), 1))


def test_a_factor_does_not_fall_below_nothing() -> None:
    assert_uniform(numbers(chains(hr.ColorJitter(brightness=1.7)), BRIGHTNESS), 0.0, 2.7)


def test_draws_of_one_image_are_independent() -> None:
    drawn = chains(hr.ColorJitter(0.4, 0.4, 0.4, 0.1))
    found = [numbers([sorted(chain) for chain in drawn], kind) for kind in (BRIGHTNESS, CONTRAST, SATURATION, HUE)]
    correlations = np.corrcoef(np.array(found))[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 4 / math.sqrt(N)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda p: hr.RandomGrayscale(p), GRAYSCALE),
        (lambda p: hr.RandomInvert(p), INVERT),
        (lambda p: hr.RandomSolarize(128, p), SOLARIZE),
        (lambda p: hr.RandomPosterize(3, p), POSTERIZE),
        (lambda p: hr.RandomAutocontrast(p), AUTOCONTRAST),
        (lambda p: hr.RandomEqualize(p), EQUALIZE),
        (lambda p: hr.RandomAdjustSharpness(2, p), SHARPNESS),
        (lambda p: hr.RandomErasing(p), ERASE),
        (lambda p: hr.RandomApply([hr.GaussianBlur(5)], p), BLUR),
    ],
)
def test_operations_come_as_often_as_asked(make, kind: int) -> None:
    for p in (0.0, 0.2, 1.0):
        drawn = chains(make(p)) if p in (0.0, 0.2) else chains(make(p))[:50]
        assert {kind} == set().union(*map(kinds, drawn)) or p == 0.0
        assert stats.binomtest(sum(map(bool, drawn)), len(drawn), p).pvalue > PASSES_IF_ABOVE


def test_gaussian_blur() -> None:
    drawn = chains(hr.GaussianBlur((23, 5), (0.1, 2.0)))
    assert_uniform(numbers(drawn, BLUR), 0.1, 2.0)
    assert {tuple(chain[0][1][1:3]) for chain in drawn} == {(23, 5)}


def test_channel_permutations() -> None:
    drawn = chains(hr.RandomChannelPermutation())
    assert_shares(Counter(tuple(chain[0][1][:3]) for chain in drawn), dict.fromkeys(permutations((0, 1, 2)), 1))


def test_random_choice_and_order() -> None:
    parts = [hr.RandomInvert(1), hr.RandomEqualize(1), hr.RandomAutocontrast(1)]
    names = (INVERT, EQUALIZE, AUTOCONTRAST)
    assert_shares(Counter(map(kinds, chains(hr.RandomOrder(parts)))), dict.fromkeys(permutations(names), 1))
    weights = [0.2, 0.0, 3.0]
    chosen = Counter(kinds(chain)[0] for chain in chains(hr.RandomChoice(parts, weights)))
    assert_shares(chosen, {INVERT: 0.2, AUTOCONTRAST: 3.0})
    assert_shares(Counter(kinds(chain)[0] for chain in chains(hr.RandomChoice(parts))), dict.fromkeys(names, 1))


def test_photometric_distortion() -> None:
    """Each part by its own chance, contrast before or after saturation and hue."""
    drawn = chains(hr.RandomPhotometricDistort())
    shares: dict[tuple[int, ...], float] = {}
    for before, *present in product((True, False), *[(True, False)] * 5):
        bright, contrast, saturation, hue, permuted = present
        parts = [CONTRAST] * contrast, [SATURATION] * saturation + [HUE] * hue
        middle = parts[0] + parts[1] if before else parts[1] + parts[0]
        chain = tuple([BRIGHTNESS] * bright + middle + [PERMUTE] * permuted)
        shares[chain] = shares.get(chain, 0) + 1
    assert_shares(Counter(map(kinds, drawn)), shares)
    for kind, low, high in (
        (BRIGHTNESS, 0.875, 1.125),
        (CONTRAST, 0.5, 1.5),
        (SATURATION, 0.5, 1.5),
        (HUE, -0.05, 0.05),
    ):
        assert_uniform(numbers(drawn, kind), low, high)


def test_erasing() -> None:
    """Rectangles as torchvision documents them, drawn once more by numpy's generator."""
    scale, ratio, rng = (0.02, 0.33), (0.3, 3.3), np.random.default_rng(9)
    expected = []
    while len(expected) < N:
        area, shape = rng.uniform(*scale) * WIDTH * HEIGHT, math.exp(rng.uniform(*np.log(ratio)))
        height, width = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if height < HEIGHT and width < WIDTH:
            corner = rng.integers(WIDTH - width + 1), rng.integers(HEIGHT - height + 1)
            expected.append((*corner, width, height))
    got = np.array([chain[0][1][:4] for chain in chains(hr.RandomErasing(1.0, scale, ratio, value=(1, 2, 3)))])
    want = np.array(expected, float)
    for ours, theirs in zip(got.T, want.T, strict=True):
        assert stats.ks_2samp(ours, theirs).pvalue > PASSES_IF_ABOVE
    assert stats.ks_2samp(got[:, 2] * got[:, 3], want[:, 2] * want[:, 3]).pvalue > PASSES_IF_ABOVE
    assert stats.ks_2samp(got[:, 3] / got[:, 2], want[:, 3] / want[:, 2]).pvalue > PASSES_IF_ABOVE


def test_several_rectangles_share_the_area() -> None:
    """As timm draws them: the number evenly, and each area by the range divided by it."""
    scale = (0.1, 0.3)
    drawn = chains(hr.RandomErasing(0.5, scale, (0.5, 2), "random_color", count=(2, 4)))
    counts = np.bincount([len(chain) for chain in drawn], minlength=5)
    assert counts[1] == 0
    expected = N * np.array([1 / 2, 1 / 6, 1 / 6, 1 / 6])
    assert stats.chisquare(counts[[0, 2, 3, 4]], expected).pvalue > PASSES_IF_ABOVE
    for count in (2, 3, 4):
        boxes = np.array([box[:4] for chain in drawn if len(chain) == count for _, box in chain])
        assert_uniform(boxes[:, 2] * boxes[:, 3] / (WIDTH * HEIGHT) * count, *scale)
    colours = np.array([box[4:7] for chain in drawn for _, box in chain]).ravel()
    assert stats.kstest(colours, stats.norm.cdf).pvalue > PASSES_IF_ABOVE


def mixed(width: int, depth: int, alpha: float) -> list[Chain]:
    """Chains of AugMix around one operation, straight from a table."""
    table = np.zeros((2, _core.AUGMENT_COLUMNS))
    table[0, :4], table[0, 46:49] = (AUGMIX, 1, 1, 1), (width, depth, alpha)
    table[1, :4] = INVERT, 0, 1, 1
    native = _core.Augmentation(table)
    return [_core.draw_chain(native, 7, sample, 0, width=8, height=8) for sample in range(N)]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("alpha", [0.4, 1.0, 3.0])
def test_weights_of_augmix(alpha: float) -> None:
    """Beta(alpha, alpha) for the whole; Dirichlet(alpha, …), whose margins are Beta(alpha, (width - 1) alpha)."""
    width = 3
    drawn = mixed(width, -1, alpha)
    shares = numbers(drawn, twin.MIX_END)
    assert stats.kstest(shares, stats.beta(alpha, alpha).cdf).pvalue > PASSES_IF_ABOVE
    weights = numbers(drawn, twin.MIX_BRANCH).reshape(-1, width)
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-12)
    for branch in weights.T:
        assert stats.kstest(branch, stats.beta(alpha, (width - 1) * alpha).cdf).pvalue > PASSES_IF_ABOVE
        assert abs(np.corrcoef(branch, shares)[0, 1]) < 4 / math.sqrt(N)


def test_depths_of_augmix() -> None:
    depths = [kinds(chain).count(INVERT) for chain in mixed(1, -1, 1.0)]
    assert_shares(Counter(depths), {1: 1, 2: 1, 3: 1})
    assert {kinds(chain).count(INVERT) for chain in mixed(2, 4, 1.0)} == {8}


def test_normal_numbers() -> None:
    """Clipped to the bounds of their range, as timm clips a magnitude."""
    table = np.zeros((1, _core.AUGMENT_COLUMNS))
    table[0, :4], table[0, 4:11] = (BRIGHTNESS, 0, 1, 1), (3, 0, 10, 0.9, 0.05, 0, 0)
    native = _core.Augmentation(table)
    drawn = [_core.draw_chain(native, 11, sample, 0, width=8, height=8) for sample in range(N)]
    values = numbers(drawn, BRIGHTNESS)
    whole = stats.norm(9, 0.5)
    assert stats.binomtest(int((values == 10).sum()), N, whole.sf(10)).pvalue > PASSES_IF_ABOVE
    inside = values[values < 10]
    assert stats.kstest(inside, lambda x: whole.cdf(x) / whole.cdf(10)).pvalue > PASSES_IF_ABOVE
