"""Copies of batches, as loops take them apart and change them."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from headrace.doctor.probe.training.loader_sources import Uncopyable, copied

Pair = namedtuple("Pair", "inputs targets")


@dataclass(frozen=True)
class Frozen:
    inputs: torch.Tensor
    name: str


class Slotted:
    __slots__ = ("inputs",)

    def __init__(self, inputs: torch.Tensor) -> None:
        self.inputs = inputs


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    elif isinstance(value, Slotted):
        value = [value.inputs]
    elif hasattr(value, "__dict__") and not isinstance(value, (tuple, list)):
        value = list(vars(value).values())
    return [tensor for inner in value for tensor in _tensors(inner)] if isinstance(value, (tuple, list)) else []


X = torch.arange(6.0).reshape(2, 3)
BATCHES = {
    "tensor": X,
    "list": [X, "text", 3, None],
    "tuple": (X, (X + 1, [X + 2])),
    "namedtuple": Pair(X, X + 1),
    "dict": {"inputs": X, "targets": {"boxes": [X + 1]}},
    "ordered dict": OrderedDict(b=X, a=X + 1),
    "default dict": defaultdict(list, a=X),
    "frozen dataclass": Frozen(X, "a"),
    "slots": Slotted(X),
    "packed": pack_sequence([X[0], X[1][:2]]),
}


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_a_copy_is_equal_and_shares_no_memory(batch: Any) -> None:
    copy = copied(batch)
    assert type(copy) is type(batch)
    assert len(_tensors(copy)) == len(_tensors(batch)) > 0
    for new, old in zip(_tensors(copy), _tensors(batch), strict=True):
        assert torch.equal(new, old)
        assert new.untyped_storage().data_ptr() != old.untyped_storage().data_ptr()


def test_what_beside_its_items_makes_a_container_is_kept() -> None:
    copy = copied(defaultdict(list, a=X))
    assert copy["b"] == []
    packed = copied(pack_sequence([X[0], X[1][:2]]))
    assert isinstance(packed, PackedSequence)
    assert packed.batch_sizes.tolist() == [2, 2, 1]


def test_a_batch_encoding_keeps_its_attributes() -> None:
    from transformers import BatchEncoding

    batch = BatchEncoding({"input_ids": X.long(), "attention_mask": torch.ones(2, 3)})
    copy = copied(batch)
    copy["input_ids"].zero_()
    copy.pop("attention_mask")
    assert batch.input_ids.tolist() == X.long().tolist()
    assert set(batch) == {"input_ids", "attention_mask"}


def test_strides_types_and_gradients_are_kept() -> None:
    last = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert copied(last).stride() == last.stride()
    assert copied(torch.zeros(2, dtype=torch.bfloat16)).dtype is torch.bfloat16
    assert copied(torch.zeros(2, requires_grad=True)).requires_grad
    assert not copied((torch.zeros(2, requires_grad=True) * 2).detach()).requires_grad
    assert copied(torch.zeros(2, requires_grad=True) * 2).is_leaf
    assert copied(torch.eye(3).to_sparse()).is_sparse


def test_arrays_keep_their_order_and_their_own_memory() -> None:
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    copy = copied({"image": array})["image"]
    assert copy.flags.f_contiguous
    assert np.array_equal(copy, array)
    assert not np.shares_memory(copy, array)
    objects = np.array([[1], "a"], dtype=object)
    assert copied(objects)[0] is not objects[0]


def test_a_subclass_of_tensor_stays_one() -> None:
    class Boxes(torch.Tensor):
        pass

    boxes = torch.ones(2, 4).as_subclass(Boxes)
    copy = copied([boxes])[0]
    copy.zero_()
    assert type(copy) is Boxes
    assert float(boxes.sum()) == 8


def test_a_tensor_that_has_left_the_host_is_refused() -> None:
    with pytest.raises(Uncopyable, match=r"^Tensor: on meta already$"):
        copied([torch.zeros(2, device="meta")])


def test_why_it_cannot_be_copied_is_said() -> None:
    class Socket:
        def __reduce__(self) -> Any:
            raise TypeError("no")

    with pytest.raises(Uncopyable, match=r"^TypeError: no$"):
        copied({"inputs": X, "connection": [Socket()]})
