"""Policies: operations, magnitudes, signs and frequencies against tables read from torchvision and timm."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import headrace as hr
from headrace import _core
from headrace.augment import Augmentation, Node, compile_augment
from headrace.errors import UsageError

TABLES = json.loads(Path(__file__).with_name("policy_tables.json").read_text())
VISION, TIMM = TABLES["torchvision"], TABLES["timm"]
TEXTS = [text for text in TIMM if text not in ("version", "levels")]
WIDTH, HEIGHT = 224, 112
PASSES_IF_ABOVE = 1e-3
KINDS = {"Brightness": 10, "Contrast": 11, "Color": 12, "Invert": 15, "Solarize": 16, "Posterize": 17}
KINDS |= {"AutoContrast": 18, "Equalize": 19, "Sharpness": 20, "GaussianBlur": 21, "SolarizeAdd": 24, "Desaturate": 12}
KINDS |= dict.fromkeys(["ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"], 40)
FACTORS = ("Brightness", "Contrast", "Color", "Sharpness")
ROUNDINGS = {0: round, 1: math.floor, 2: math.ceil}

Op = tuple[int, list[float]]


def chains(nodes: Iterable[Node], count: int, key: int = 7) -> list[list[Op]]:
    table = np.stack([row for node in nodes for row in node.rows()])
    program = _core.Augmentation(table)
    return [_core.draw_chain(program, key, sample, 0, width=WIDTH, height=HEIGHT) for sample in range(count)]


def stem(name: str) -> str:
    return name.removesuffix("Rel").removesuffix("Increasing").removesuffix("Original").removesuffix("Rand")


def value(name: str, op: Op) -> float:
    """The magnitude of an operation as torchvision's and timm's functions take it."""
    kind, numbers = op
    name = stem(name)
    assert kind == KINDS[name]
    if kind == 40:
        x, y, right, down, z, below = numbers[4:10]
        if name == "Rotate":
            assert math.hypot(x, y) == pytest.approx(1)
            assert (x, y) == pytest.approx((z, -down))
            return math.degrees(math.atan2(y, x))
        moved = {"ShearX": y, "ShearY": down, "TranslateX": right, "TranslateY": below}
        assert [x, z, *(other for key, other in moved.items() if key != name)] == pytest.approx([1, 1, 0, 0, 0])
        return moved[name]
    if name == "Posterize":
        return ROUNDINGS[int(numbers[1])](numbers[0])
    if name == "Solarize":
        return math.ceil(numbers[0])  # of which pixels are inverted
    return math.floor(numbers[0]) if name == "SolarizeAdd" else numbers[0]


def values(node: Node, name: str, count: int = 700) -> set[float]:
    drawn = [value(name, op) for chain in chains([node], count) for op in chain]
    return {round(each, 5) + 0.0 for each in drawn}


def expected(name: str, signed: bool, magnitudes: list[float]) -> set[float]:
    if name.startswith("Translate"):
        magnitudes = [int(round(each, 5)) for each in magnitudes]  # torch has 15.999999 in one of 31 bins
    if name == "Solarize":
        # torch's float32 puts 3 of 31 thresholds a rounding error above a whole number.
        magnitudes = [math.ceil(round(255 * each, 4)) for each in magnitudes]
    both = {sign * each for each in magnitudes for sign in ((-1, 1) if signed else (1,))}
    return {round(each + (name in FACTORS), 5) + 0.0 for each in both}


def ops_of(augmentation: Augmentation) -> tuple[Node, ...]:
    (node,) = augmentation.nodes()
    return node.children[0].children if node.kind == 4 else node.children


@pytest.mark.parametrize("magnitude", [0, 9, 30])
def test_rand_augment_has_torchvisions_magnitudes(magnitude: int) -> None:
    children = ops_of(hr.RandAugment(magnitude=magnitude))
    for (name, (signed, magnitudes)), node in zip(VISION["RandAugment"].items(), children, strict=True):
        if name == "Identity":
            assert not node.children
        elif magnitudes is None:
            assert node.kind == KINDS[name]
        else:
            assert values(node, name, 40) == expected(name, signed, magnitudes[magnitude : magnitude + 1])


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("policy", "augmentation", "bins"),
    [
        ("TrivialAugmentWide", hr.TrivialAugmentWide(), 31),
        ("AugMix", hr.AugMix(severity=10), 10),
        ("AugMix", hr.AugMix(), 3),
    ],
)
def test_drawn_bins_are_torchvisions(policy: str, augmentation: Augmentation, bins: int) -> None:
    children, order = ops_of(augmentation), list(VISION["RandAugment"])
    space = sorted(VISION[policy].items(), key=lambda item: order.index(item[0]))
    for (name, (signed, magnitudes)), node in zip(space, children, strict=True):
        if magnitudes is not None:
            assert values(node, name) == expected(name, signed, magnitudes[:bins]), name
        elif name != "Identity":
            assert node.kind == KINDS[name]


@pytest.mark.parametrize("policy", ["imagenet", "cifar10", "svhn"])
def test_auto_augment_has_torchvisions_pairs(policy: str) -> None:
    pairs = ops_of(hr.AutoAugment(policy))
    assert {pair.weight for pair in pairs} == {1.0}
    for pair, steps in zip(pairs, VISION["pairs"][policy], strict=True):
        for node, (name, probability, level) in zip(pair.children, steps, strict=True):
            assert (node.kind, node.probability) == (KINDS[name], probability)
            signed, magnitudes = VISION["AutoAugment"][name]
            if magnitudes is not None and probability:
                assert values(node, name, 60) == expected(name, signed, [magnitudes[level]])


def test_augmix_without_all_ops_leaves_colours_out() -> None:
    assert len(ops_of(hr.AugMix(all_ops=False))) == len(VISION["AugMix"]) - 4
    (node,) = hr.AugMix(mixture_width=5, chain_depth=2, alpha=0.5).nodes()
    assert node.constants == (5, 2, 0.5)
    marks = Counter(op[0] for op in chains([node], 1)[0])
    assert (marks[90], marks[91], marks[92]) == (1, 5, 1)


def frequencies(counts: Counter[object], shares: dict[object, float]) -> float:
    total = sum(counts.values())
    assert set(counts) <= set(shares)
    return stats.chisquare([counts[key] for key in shares], [total * share for share in shares.values()]).pvalue


def test_operations_signs_and_bins_come_equally_often() -> None:
    kinds = Counter(op[0] for chain in chains(hr.RandAugment(num_ops=1).nodes(), 4000) for op in chain)
    shares = dict.fromkeys((10, 11, 12, 16, 17, 18, 19, 20), 1 / 13) | {40: 5 / 13}
    assert frequencies(kinds, shares) > PASSES_IF_ABOVE
    identities = sum(not chain for chain in chains(hr.RandAugment(num_ops=1).nodes(), 4000))
    assert stats.binomtest(identities, 4000, 1 / 14).pvalue > PASSES_IF_ABOVE
    rotate = ops_of(hr.TrivialAugmentWide())[5]
    bins = Counter(round(value("Rotate", op) / 4.5) for chain in chains([rotate], 6000) for op in chain)
    shares = {number: (1 if number == 0 else 0.5) / 31 for number in range(-30, 31)}
    assert frequencies(bins, shares) > PASSES_IF_ABOVE


@pytest.mark.parametrize("text", TEXTS)
def test_strings_mean_what_timm_makes_of_them(text: str) -> None:
    (node,) = hr.TimmPolicy(text, translate=0.45).nodes()
    made = TIMM[text]
    if "lines" in made:
        assert node.constants == (1,)
        lines = [line.children or (line,) for line in node.children]
        assert [[child.probability for child in line] for line in lines] == [
            [op[1] for op in line] for line in made["lines"]
        ]
        pairs = [pair for line, ops in zip(lines, made["lines"], strict=True) for pair in zip(line, ops, strict=True)]
    else:
        if "mix" in made:
            assert list(node.constants) == made["mix"]
            node = node.children[0]
        else:
            assert node.constants == (made["count"], made["weights"] is not None)
            weights = np.array([child.weight for child in node.children])
            assert weights / weights.sum() == pytest.approx(made["weights"] or [1 / len(weights)] * len(weights))
        assert {child.probability for child in node.children} == {made["ops"][0][1]}
        pairs = list(zip(node.children, made["ops"], strict=True))
    for child, (name, probability, magnitude, deviation, most) in pairs:
        if name in ("AutoContrast", "Equalize", "Invert"):
            assert child.kind == KINDS[name]
        elif name != "GaussianBlurRand" and deviation == 0 and probability:
            arguments = TIMM["levels"][name][f"{min(magnitude, most):g}"]
            assert values(child, name, 60) == {round(at_pixels(name, each), 5) + 0.0 for each in arguments}


def at_pixels(name: str, argument: float) -> float:
    """timm's argument as `value` has it: a share in pixels, a desaturation as a factor."""
    size = {"TranslateXRel": WIDTH, "TranslateYRel": HEIGHT}.get(name, 1)
    return 1 - argument if name == "Desaturate" else size * argument


LEVELS = {
    "fixed": ("rand-m{}-p1-{}", 10.0, lambda rng, m, n: np.full(n, m)),
    "normal": ("rand-m{}-mstd1.5-p1-{}", 10.0, lambda rng, m, n: rng.normal(m, 1.5, n)),
    "uniform": ("rand-m{}-mstd101-p1-{}", 10.0, lambda rng, m, n: rng.uniform(0, m, n)),
    "uniform beyond": ("rand-m{}-mstd101-p1-mmax4-{}", 4.0, lambda rng, m, n: rng.uniform(0, m, n)),
    "raised": ("rand-m{}-mstd4-p1-mmax20-{}", 20.0, lambda rng, m, n: rng.normal(m, 4, n)),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("noise", LEVELS)
@pytest.mark.parametrize("increasing", [True, False])
def test_noise_of_levels_is_timms(noise: str, increasing: bool) -> None:
    """Two-sample Kolmogorov-Smirnov against levels drawn by numpy and put through timm's formulas."""
    form, most, levels = LEVELS[noise]
    magnitude = 9
    children = ops_of(hr.TimmPolicy(form.format(magnitude, f"inc{int(increasing)}")))
    rng = np.random.default_rng(5)
    names = [op[0] for op in TIMM["rand-m9-mstd0.5-inc1" if increasing else "rand-m7-n3-p0.8"]["ops"]]
    for name, node in zip(names, children, strict=True):
        if name in ("AutoContrast", "Equalize", "Invert") or name.startswith(("ShearY", "TranslateY")):
            continue
        drawn = [value(name, op) for chain in chains([node], 700) for op in chain]
        assert len(drawn) == 700
        level = np.clip(levels(rng, magnitude, 2000), 0, most) / 10
        theirs = timm_values(name, level, rng.choice([-1, 1], 2000))
        assert stats.ks_2samp(np.round(drawn, 6), np.round(theirs, 6)).pvalue > PASSES_IF_ABOVE, name


def timm_values(name: str, share: np.ndarray, sign: np.ndarray) -> np.ndarray:
    if name == "Rotate":
        return 30 * share * sign
    if name == "ShearX":
        return 0.3 * share * sign
    if name == "TranslateXRel":
        return 0.45 * WIDTH * share * sign
    if name == "SolarizeAdd":
        return np.minimum(128, np.floor(110 * share))
    if name.startswith("Posterize"):
        kept = np.floor(4 * share)
        return np.clip(4 - kept, 0, 8) if name != "Posterize" else np.clip(kept, 0, 8)
    if name.startswith("Solarize"):
        threshold = np.minimum(256, np.floor(256 * share))
        return 256 - threshold if name != "Solarize" else threshold
    return np.maximum(0.1, 1 + 0.9 * share * sign) if name.endswith("Increasing") else 0.1 + 1.8 * share


def test_weighted_operations_are_drawn_without_replacement() -> None:
    weights = {16: 6 / 18, 12: 6 / 18, 21: 6 / 18}  # t3a has no weights: with replacement
    drawn = [tuple(op[0] for op in chain) for chain in chains(hr.TimmPolicy("rand-t3a-p1").nodes(), 2000)]
    assert frequencies(Counter(drawn), {(a, b): weights[a] * weights[b] for a in weights for b in weights}) > 1e-3
    text = "rand-m5-tweights-p1"
    children = ops_of(hr.TimmPolicy(text))
    shares = np.array([child.weight for child in children]) / sum(child.weight for child in children)
    pairs: Counter[object] = Counter()
    kinds = [child.kind for child in children]
    for first, second in permutations(range(len(kinds)), 2):
        pairs[kinds[first], kinds[second]] += shares[first] * shares[second] / (1 - shares[first])
    drawn = [tuple(op[0] for op in chain) for chain in chains(hr.TimmPolicy(text).nodes(), 4000)]
    assert all(len(pair) == 2 for pair in drawn)
    rare = {pair for pair, share in pairs.items() if share * 4000 < 5}
    counts = Counter("rare" if pair in rare else pair for pair in drawn)
    common: dict[object, float] = {pair: share for pair, share in pairs.items() if pair not in rare}
    common["rare"] = sum(pairs[pair] for pair in rare)
    assert frequencies(counts, common) > PASSES_IF_ABOVE


def test_timm_probability_and_translation() -> None:
    runs = [len(chain) for chain in chains(hr.TimmPolicy("rand-n1-p0.3").nodes(), 2000)]
    assert stats.binomtest(sum(runs), 2000, 0.3).pvalue > PASSES_IF_ABOVE
    share = {"rand-m10-p1": 0.45, "augmix-m10-mstd0": 0.3}
    for text, most in share.items():
        assert values(ops_of(hr.TimmPolicy(text))[-2], "TranslateX", 40) == {-most * WIDTH, most * WIDTH}
    assert values(ops_of(hr.TimmPolicy("rand-m10-p1", translate=0.2))[-1], "TranslateY", 40) == {-22.4, 22.4}


def test_fill_and_interpolation_reach_the_maps() -> None:
    policies = [
        (hr.RandAugment(magnitude=30), [0, 0, 0, 0]),
        (hr.TrivialAugmentWide(interpolation="bilinear", fill=(1, 2, 3)), [1, 1, 2, 3]),
        (hr.AugMix(fill=9), [1, 9, 9, 9]),
        (hr.TimmPolicy("rand-m9"), [1, 124, 116, 104]),
        (hr.TimmPolicy("v0", fill=5, interpolation="nearest"), [0, 5, 5, 5]),
    ]
    for policy, constants in policies:
        maps = [op[1][:4] for chain in chains(policy.nodes(), 60) for op in chain if op[0] == 40]
        assert maps
        assert all(each == constants for each in maps)


def test_a_str_stands_for_timms_policy_wherever_an_augmentation_does() -> None:
    text = "rand-m9-mstd0.5-inc1"
    program = compile_augment("augment", hr.TimmPolicy(text))
    assert program is not None
    for given in (text, [text], hr.RandomApply([text], p=1.0)):
        same = compile_augment("augment", given)
        assert same is not None
        assert np.array_equal(same.table, program.table)
    assert hr.Image(augment=text).augment == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("random", "'rand-"),
        ("rand", None),
        ("rand-m9-w0", "sections of m, n, p, mstd, mmax, inc, t"),
        ("rand-m9-m8", "each once"),
        ("rand-mstdinf", "got 'mstdinf'"),
        ("rand-m9.5", "m to be an int"),
        ("rand-p2", "p to be a number from 0 to 1"),
        ("rand-n0", "n to be an int from 1 to 16"),
        ("rand-tsomething", '"tweights", "t3a" or "t3aw"'),
        ("rand-n4-t3a", None),
        ("rand-n16-tweights", "without replacement"),
        ("augmix-w9", "w to be an int from 1 to 8"),
        ("original-m9", "sections of mstd"),
        ("3a-mstd1", "without mstd"),
        ("", "at the beginning"),
    ],
)
def test_bad_strings_are_refused_with_what_was_expected(text: str, says: str | None) -> None:
    if says is None:
        hr.TimmPolicy(text)
        return
    with pytest.raises(UsageError) as error:
        hr.Image(augment=text)
    assert "rand" in str(error.value) if says == "'rand-" else says in str(error.value)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: hr.RandAugment(num_ops=17), "num_ops to be an int from 0 to 16"),
        (lambda: hr.RandAugment(magnitude=31), "magnitude to be an int from 0 to 30"),
        (lambda: hr.RandAugment(interpolation="bicubic"), 'interpolation to be "nearest" or "bilinear"'),
        (lambda: hr.RandAugment(fill=256), "fill to be a number 0..255"),
        (lambda: hr.TrivialAugmentWide(num_magnitude_bins=1), "num_magnitude_bins"),
        (lambda: hr.AutoAugment("imagenet1k"), "one of 'imagenet', 'cifar10', 'svhn'"),
        (lambda: hr.AugMix(severity=11), "severity to be an int from 1 to 10"),
        (lambda: hr.AugMix(alpha=0), "alpha"),
        (lambda: hr.AugMix(all_ops=1), "True or False"),
        (lambda: hr.TimmPolicy("v0", translate=2), "translate to be None or a share"),
        (lambda: hr.TimmPolicy(9), "text to be a str"),
    ],
)
def test_bad_arguments_are_refused(make, says: str) -> None:
    with pytest.raises(UsageError, match="expected") as error:
        make()
    assert says in str(error.value)


def test_no_operation_is_no_program() -> None:
    assert compile_augment("augment", hr.RandAugment(num_ops=0)) is None
