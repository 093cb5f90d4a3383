"""Joining of parts to one batch, by itself: types, layouts and memory, beside numpy's own indexing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.loader.batch_memory import PooledMemory
from headrace.loader.decoding.detection import PerSample
from headrace.loader.mixtures.joining import join

ROWS = [np.array([0, 3, 4]), np.array([1, 2])]


def joined(*values, rows=ROWS, memory=None):
    parts = [(name, at, {"x": value}) for name, at, value in zip("abcde", rows, values, strict=False)]
    return join(parts, sum(map(len, rows)), memory or PooledMemory(1, 1))["x"]


@given(
    dtype=st.sampled_from(["uint8", "bool", "int64", "float16", "float32", "complex64"]),
    shape=st.lists(st.integers(0, 9), max_size=3),
    order=st.randoms(use_true_random=False),
    sources=st.lists(st.integers(0, 3), min_size=1, max_size=9),
)
def test_rows_are_where_numpy_puts_them(dtype, shape, order, sources):
    """In whatever order the dimensions of a part lie in memory."""
    rng = np.random.default_rng(len(sources))
    expected = (rng.random((len(sources), *shape)) * 250).astype(dtype)
    rows = [np.flatnonzero(np.array(sources) == source) for source in sorted(set(sources))]
    axes = list(range(1, 1 + len(shape)))
    order.shuffle(axes)
    back = np.argsort([0, *axes])
    parts = [np.ascontiguousarray(expected[at].transpose(0, *axes)).transpose(*back) for at in rows]
    got = joined(*parts, rows=rows)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.uint8, torch.float32])
def test_tensors_keep_their_layout(dtype, layout):
    whole = torch.randint(0, 99, (5, 3, 40, 20)).to(dtype)
    parts = [whole[torch.from_numpy(at)].to(memory_format=layout) for at in ROWS]
    got = joined(*parts)
    assert torch.equal(got, whole)
    assert got.dtype == dtype
    assert got.is_contiguous(memory_format=layout)


def test_parts_of_two_layouts_take_the_firsts():
    whole = torch.rand(5, 3, 40, 20)
    first, second = (whole[torch.from_numpy(at)] for at in ROWS)
    got = joined(first.to(memory_format=torch.channels_last), second)
    assert torch.equal(got, whole)
    assert got.is_contiguous(memory_format=torch.channels_last)


def test_lists_keep_their_class():
    assert joined(["a", "d", "e"], ["b", "c"]) == list("abcde")
    assert type(joined(PerSample([1, 2, 3]), PerSample([4, 5]))) is PerSample


def test_dicts_are_joined_within():
    got = joined({"ids": np.array([0, 3, 4])}, {"ids": np.array([1, 2])})
    assert got["ids"].tolist() == [0, 1, 2, 3, 4]


def test_large_parts_lie_in_the_memory_that_is_given():
    """As the tensor it was allocated as: by its storage torch's allocator learns of copies from pinned memory."""
    allocated = torch.zeros(5 * 3 * 40 * 20, dtype=torch.float32)

    class Given:
        def acquire(self, bytes):
            assert bytes == allocated.nbytes
            return allocated.view(torch.uint8).numpy()

    got = joined(torch.ones(3, 3, 40, 20), torch.ones(2, 3, 40, 20), memory=Given())
    assert got.untyped_storage()._cdata == allocated.untyped_storage()._cdata
    assert (allocated == 1).all()
