"""Views against torchvision's documented sampling, written down once more with Python's own random source.

Kolmogorov-Smirnov at fixed seeds: the two share no code and no random bits, only the distribution.
"""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from scipy import stats

from headrace import _core
from headrace.views import (
    RandomCrop,
    RandomHorizontalFlip,
    RandomQuarterTurn,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    compile_view,
)

N = 4000
PASSES_IF_ABOVE = 1e-3


def drawn(view, width, height):
    """float64[N, 17]: the views of samples 0..N-1."""
    columns = np.arange(N), np.zeros(N, np.uint32), 0, np.full(N, width, np.int32), np.full(N, height, np.int32)
    return _core.sample_views(compile_view(view).ops, 2024, *columns)


def documented_crop(source, width, height, scale, ratio):
    """(left, top, width, height, whether the fallback was taken) as RandomResizedCrop.get_params describes it."""
    for _ in range(10):
        target = width * height * source.uniform(*scale)
        aspect = math.exp(source.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            return source.randint(0, width - w), source.randint(0, height - h), w, h, False
    if width / height < min(ratio):
        w, h = width, round(width / min(ratio))
    elif width / height > max(ratio):
        w, h = round(height * max(ratio)), height
    else:
        w, h = width, height
    return (width - w) // 2, (height - h) // 2, w, h, True


CASES = [
    (500, 375, (0.08, 1.0), (3 / 4, 4 / 3)),
    (375, 500, (0.08, 1.0), (3 / 4, 4 / 3)),
    (640, 480, (0.5, 1.0), (0.5, 2.0)),
    (64, 48, (0.2, 0.3), (1.0, 1.0)),
    (900, 100, (0.08, 1.0), (3 / 4, 4 / 3)),  # many attempts fail
]


@pytest.mark.parametrize(("width", "height", "scale", "ratio"), CASES)
def test_random_resized_crop_is_distributed_as_documented(width, height, scale, ratio):
    views = drawn(RandomResizedCrop(32, scale=scale, ratio=ratio), width, height)
    source = random.Random(7)
    expected = np.array([documented_crop(source, width, height, scale, ratio) for _ in range(N)], float)
    left, top, w, h = views[:, 0], views[:, 1], views[:, 2] - views[:, 0], views[:, 3] - views[:, 1]
    x, y, ew, eh = expected[:, :4].T
    for got, want in [(w * h, ew * eh), (w / h, ew / eh), (left, x), (top, y), (w, ew), (h, eh)]:
        assert stats.ks_2samp(got, want).pvalue > PASSES_IF_ABOVE


@pytest.mark.parametrize(("width", "height", "scale", "ratio"), CASES[:3])
def test_the_place_is_uniform_whatever_the_size(width, height, scale, ratio):
    views = drawn(RandomResizedCrop(32, scale=scale, ratio=ratio), width, height)
    spare = width - (views[:, 2] - views[:, 0])
    roomy = spare > 20
    place = (views[roomy, 0] + 0.5) / (spare[roomy] + 1)
    assert stats.kstest(place, "uniform").pvalue > PASSES_IF_ABOVE


@pytest.mark.parametrize(("width", "height"), [(900, 100), (1500, 100), (100, 1500), (3000, 100)])
def test_the_fallback_is_as_frequent_as_documented(width, height):
    scale, ratio = (0.08, 1.0), (3 / 4, 4 / 3)
    source = random.Random(8)
    expected = [documented_crop(source, width, height, scale, ratio) for _ in range(N)]
    box = next(crop[:4] for crop in expected if crop[4])
    views = drawn(RandomResizedCrop(32, scale=scale, ratio=ratio), width, height)
    got = np.sum(np.all(views[:, :4] == [box[0], box[1], box[0] + box[2], box[1] + box[3]], axis=1))
    want = sum(crop[:4] == box for crop in expected)
    assert abs(got - want) < 4 * math.sqrt(N / 2)
    assert stats.fisher_exact([[got, N - got], [want, N - want]]).pvalue > PASSES_IF_ABOVE


def test_the_fallback_keeps_at_least_a_pixel():
    row = drawn(RandomResizedCrop(32, scale=(1.0, 1.0), ratio=(900.0, 1000.0)), 3, 3)[0]
    assert row[:4].tolist() == [0, 1, 3, 2]


def test_random_crop_is_uniform_in_both_axes():
    views = drawn(RandomCrop(10), 20, 13)
    table = np.zeros((11, 4))
    np.add.at(table, (views[:, 0].astype(int), views[:, 1].astype(int)), 1)
    assert stats.chisquare(table.ravel()).pvalue > PASSES_IF_ABOVE


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(
    ("view", "column"),
    [(lambda p: RandomHorizontalFlip(p), 14), (lambda p: RandomVerticalFlip(p), 15), (lambda p: Resize(8, flip=p), 14)],
)
def test_flips_come_as_often_as_asked(view, column, p):
    flips = drawn(view(p), 20, 13)[:, 14:]
    assert stats.binomtest(int(flips[:, column - 14].sum()), N, p).pvalue > PASSES_IF_ABOVE
    assert flips[:, 15 - column].sum() == 0


@pytest.mark.parametrize("probabilities", [(0.25, 0.25, 0.25, 0.25), (0, 0.5, 0.2, 0.3)])
def test_quarter_turns_come_as_often_as_asked(probabilities):
    signs = drawn([RandomCrop(10), RandomQuarterTurn(probabilities)], 20, 13)[:, 14:].astype(int).tolist()
    turns = [[0, 0, 0], [0, 1, 1], [1, 1, 0], [1, 0, 1]]
    counts = np.bincount([turns.index(each) for each in signs], minlength=4)
    possible = np.array(probabilities) > 0
    assert not counts[~possible].any()
    assert stats.chisquare(counts[possible], N * np.array(probabilities)[possible]).pvalue > PASSES_IF_ABOVE


def test_a_flip_is_independent_of_the_crop():
    views = drawn(RandomResizedCrop(32, flip=0.5), 500, 375)
    flipped, plain = views[views[:, 14] == 1], views[views[:, 14] == 0]
    for column in range(4):
        assert stats.ks_2samp(flipped[:, column], plain[:, column]).pvalue > PASSES_IF_ABOVE
