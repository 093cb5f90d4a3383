"""Members of buckets by rank and select, against a search through all codes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.plan.bucket_members import CodedMembers, OneBucket, blank_codes, no_bucket


def coded(codes, buckets):
    blank = blank_codes(len(codes), buckets)
    blank.reshape(-1)[: len(codes)] = codes
    return CodedMembers.of(blank, buckets)


@given(st.integers(1, 5000), st.sampled_from([1, 2, 7, 254, 255, 300]), st.integers(0, 2**32 - 1), st.booleans())
def test_equals_a_search_through_all_codes(length, buckets, seed, clustered):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, buckets, length)
    codes = np.sort(codes) if clustered else codes
    members = coded(codes, buckets)
    assert members.counts.tolist() == np.bincount(codes, minlength=buckets).tolist()
    for bucket in set(codes[:20].tolist()):
        expected = np.flatnonzero(codes == bucket)
        asked = rng.permutation(len(expected))
        assert np.array_equal(members.select(bucket, asked), expected[asked])


@pytest.mark.parametrize(
    ("buckets", "dtype", "block"), [(254, np.uint8, 2048), (255, np.uint16, 2048), (9, np.uint8, 1024)]
)
def test_codes_take_a_byte_or_two_and_counts_no_more(buckets, dtype, block):
    codes = blank_codes(10_000, buckets)
    assert codes.dtype == dtype
    assert codes.shape[1] == block
    assert (codes.reshape(-1)[10_000:] == no_bucket(dtype)).all()
    assert CodedMembers.of(codes, buckets).before.nbytes <= codes.size + 16 * buckets


def test_more_is_asked_for_than_is_looked_at_together():
    codes = np.arange(200_000) % 3 % 2
    members = coded(codes, 2)
    expected = np.flatnonzero(codes == 0)
    assert np.array_equal(members.select(0, np.arange(len(expected))), expected)


def test_the_digest_tells_buckets_apart():
    assert coded([0, 1, 1], 2).digest == coded(np.array([0, 1, 1]), 2).digest
    assert coded([0, 1, 1], 2).digest != coded([0, 1, 0], 2).digest


def test_one_bucket_is_the_dataset():
    assert OneBucket(7).counts.tolist() == [7]
    assert OneBucket(7).select(0, np.array([6, 0])).tolist() == [6, 0]
