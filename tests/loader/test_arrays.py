"""Arrays and tensors as rows of a batch: `Plain` and `Layout`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.loader.batch_values import PlainArray, RowLayout, memory_order

DTYPES = ("uint8", "int64", "float16", "float32", "bool", "complex64")
ONLY_TORCH = ("bfloat16", "float8_e5m2")


@st.composite
def arrays(draw):
    """Of any order of memory, with gaps, turned around, or with one value for a whole dimension."""
    shape = draw(st.lists(st.integers(1, 5), min_size=0, max_size=4))
    order = draw(st.permutations(range(len(shape))))
    array = np.arange(np.prod(shape, dtype=int)).reshape([shape[d] for d in order])
    array = array.astype(draw(st.sampled_from(DTYPES))).transpose(np.argsort(order))
    for dimension in range(len(shape)):
        match draw(st.sampled_from(["as it is", "back to front", "every second", "one for all"])):
            case "back to front":
                array = np.flip(array, dimension)
            case "every second":
                array = array[(slice(None),) * dimension + (slice(None, None, 2),)]
            case "one for all":
                array = np.broadcast_to(array.take([0], dimension), array.shape)
    return array


@given(arrays(), st.integers(1, 3))
def test_rows_that_are_written_are_the_batch(array, count):
    row = PlainArray.of(array)
    layout = RowLayout.of(row)
    assert layout.fits(row)
    memory = np.full(count * layout.row_bytes + 8, 255, np.uint8)
    batch = layout.batch(memory, count)
    assert batch.array.shape == (count, *array.shape)
    for number in range(count):
        np.copyto(batch.array[number, ...], array)
    assert batch.array.tobytes() == np.stack([array] * count).tobytes()
    assert memory[-8:].tolist() == [255] * 8
    assert (
        memory_order(batch.array.strides[1:]) == memory_order(array.strides) or 1 in array.shape or 0 in array.strides
    )


@pytest.mark.parametrize("dtype", [*DTYPES, *ONLY_TORCH])
def test_a_tensor_comes_back_as_it_was(dtype):
    tensor = torch.arange(24).reshape(2, 3, 4).to(getattr(torch, dtype)).permute(1, 2, 0)
    plain = PlainArray.of(tensor)
    again = plain.restore()
    assert (again.dtype, again.stride(), again.data_ptr()) == (tensor.dtype, tensor.stride(), tensor.data_ptr())
    layout = RowLayout.of(plain)
    batch = layout.batch(np.zeros(2 * layout.row_bytes, np.uint8), 2).restore()
    assert (batch.dtype, batch.shape) == (tensor.dtype, (2, *tensor.shape))
    assert batch.stride()[1:] == tensor.stride()


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        [1, 2],
        np.float32(3),
        np.array(["text"]),
        np.array([object()]),
        np.zeros(2, ">f4"),
        np.ma.array([1, 2], mask=[0, 1]),
        torch.zeros(3, requires_grad=True),
        torch.eye(3).to_sparse(),
        torch.complex(torch.ones(2), torch.ones(2)).conj(),
        torch.zeros(3, device="meta"),
        torch.nn.Parameter(torch.zeros(2)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_more_than_its_numbers_is_not_plain(value):
    assert PlainArray.of(value) is None


@pytest.mark.parametrize(
    "other", [np.zeros((3, 5), np.uint8), np.zeros((3, 4), np.int8), torch.zeros((3, 4), dtype=torch.uint8)], ids=str
)
def test_another_type_or_shape_does_not_fit(other):
    assert not RowLayout.of(PlainArray.of(np.zeros((3, 4), np.uint8))).fits(PlainArray.of(other))
