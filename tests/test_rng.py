"""The random source: known answers, its numpy twin, and statistics that a poor source would fail."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from twin import rng as twin

from headrace import _core

words = st.integers(0, 2**64 - 1)

# From Random123's kat_vectors, philox4x32 10: counter, key, answer.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize("implementation", [_core.philox, twin.philox])
@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_philox_known_answers(implementation, counter, key, answer):
    got = implementation(key[0] | key[1] << 32, np.array(counter, np.uint32))
    assert got.dtype == np.uint32
    assert got.tolist() == list(answer)


def test_philox_takes_any_leading_shape_and_equals_its_twin():
    counters = np.random.default_rng(0).integers(0, 2**32, (7, 3, 4), dtype=np.uint32)
    assert np.array_equal(_core.philox(0x0123456789ABCDEF, counters), twin.philox(0x0123456789ABCDEF, counters))
    assert _core.philox(1, np.zeros((0, 4), np.uint32)).shape == (0, 4)


@pytest.mark.parametrize("shape", [(), (3,), (4, 3)])
def test_philox_refuses_other_shapes(shape):
    with pytest.raises(ValueError, match=r"\[\.\.\., 4\]"):
        _core.philox(0, np.zeros(shape, np.uint32))


@given(words, words)
def test_hash_equals_its_twin(a, b):
    assert _core.hash64(a, b) == twin.hash64(a, b)


def test_hash_is_splitmix64():
    # The first output of splitmix64 seeded with 1234567 (Vigna's splitmix64.c) is mix64(seed + gamma).
    assert twin.mix64((1234567 + twin.GAMMA) & twin.MASK64) == 6457827717110365317


@pytest.mark.parametrize("bad", [-1, 2**64, 1.5])
def test_keys_outside_64_bits_are_refused(bad):
    with pytest.raises(TypeError):
        _core.hash64(bad, 0)


def test_neighbouring_seeds_and_epochs_share_no_key():
    keys = {_core.hash64(seed, epoch) for seed in range(200) for epoch in range(200)}
    assert len(keys) == 200 * 200


LENGTHS = [
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    13,
    16,
    17,
    31,
    32,
    33,
    97,
    255,
    256,
    257,
    1000,
    4095,
    4096,
    4097,
    32769,
    65537,
    99991,
]


@pytest.mark.parametrize("n", LENGTHS)
def test_permutation_is_a_bijection(n):
    indices = _core.permute(n, 42, np.arange(n))
    assert indices.dtype == np.int64
    assert np.array_equal(np.sort(indices), np.arange(n))


@given(st.integers(1, 2**62), words, st.data())
def test_permutation_equals_its_twin(n, key, data):
    position = data.draw(st.integers(0, n - 1))
    got = _core.permute(n, key, np.array([position]))
    assert got.tolist() == [twin.permute(n, key, position)]
    assert 0 <= got[0] < n


@given(st.integers(1, 2**62), words, st.data())
def test_the_inverse_equals_its_twin(n, key, data):
    indices = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=12)), np.int64)
    got = _core.permute(n, key, indices, inverse=True)
    assert got.tolist() == [twin.position_of(n, key, index) for index in indices.tolist()]
    assert np.array_equal(_core.permute(n, key, got), indices)


@pytest.mark.parametrize("n", LENGTHS)
def test_the_inverse_gives_back_every_position(n):
    positions = np.arange(n)
    assert np.array_equal(_core.permute(n, 42, _core.permute(n, 42, positions), inverse=True), positions)


@given(st.lists(st.tuples(st.integers(1, 2**62), st.integers(0, 3), words), min_size=1, max_size=8), words)
def test_each_position_in_a_permutation_of_its_own(asked, key):
    places = [(n, stream, word % n) for n, stream, word in asked]
    lengths, streams, positions = (np.array(column, np.int64) for column in zip(*places, strict=True))
    got = _core.permute_each(lengths, key, streams, positions)
    assert got.tolist() == [twin.permute(n, twin.hash64(key, stream), at) for n, stream, at in places]


def test_a_position_outside_its_permutation_is_refused():
    three = np.array([3, 3, 3])
    for lengths, positions in ((three, [0, 3, 1]), (three, [0, -1, 1]), (np.array([3, 0, 3]), [0, 0, 0])):
        with pytest.raises(ValueError, match="0 <= position < length"):
            _core.permute_each(lengths, 1, three, np.array(positions))
    with pytest.raises(ValueError, match="of one length"):
        _core.permute_each(three, 1, three, np.array([0]))


def test_permutation_of_ten_to_the_twelve_does_not_collide():
    indices = _core.permute(10**12, 7, np.arange(10**5) * 9_999_991)
    assert len(np.unique(indices)) == 10**5


@pytest.mark.one_in(2)
@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_every_order_of_a_few_is_equally_likely(n):
    keys = 20_000
    seen = Counter(tuple(_core.permute(n, key, np.arange(n)).tolist()) for key in range(keys))
    counts = [seen[order] for order in itertools.permutations(range(n))]
    assert len(counts) == math.factorial(n)
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("n", [37, 64, 100])
def test_every_index_is_equally_likely_at_every_position(n):
    table = np.zeros((n, n))
    for key in range(4000):
        table[np.arange(n), _core.permute(n, key, np.arange(n))] += 1
    assert stats.chisquare(table.ravel(), ddof=2 * n - 2).pvalue > 1e-3


@pytest.mark.parametrize("n", [1000, 65536, 100_003])
def test_neighbours_do_not_stay_together(n):
    order = _core.permute(n, 3, np.arange(n)).astype(float)
    for lag in (1, 2, 64):
        correlation = np.corrcoef(order[:-lag], order[lag:])[0, 1]
        assert abs(correlation) < 4 / math.sqrt(n)
    ascents = np.mean(np.diff(order) > 0)
    assert abs(ascents - 0.5) < 4 / math.sqrt(12 * n)


def test_neighbouring_keys_give_unrelated_orders():
    n = 10_000
    first, second = (_core.permute(n, key, np.arange(n)) for key in (5, 6))
    assert np.count_nonzero(first == second) < 12  # Poisson with mean 1
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / math.sqrt(n)


@pytest.mark.parametrize(("n", "position"), [(0, 0), (2**62 + 1, 0), (5, 5), (5, -1)])
def test_permute_refuses_what_is_out_of_range(n, position):
    with pytest.raises(ValueError, match="expected"):
        _core.permute(n, 0, np.array([position]))


def test_permute_refuses_other_dtypes():
    with pytest.raises(TypeError):
        _core.permute(5, 0, np.array([1.0]))
