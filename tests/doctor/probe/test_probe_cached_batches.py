"""Copies of batches, as loops take them apart and change them."""

from __future__ import annotations

from collections import Counter, OrderedDict, UserDict, defaultdict, namedtuple
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from headrace.doctor.probe.training import state
from headrace.doctor.probe.training.loader_sources import IN_WARMUP, MOST_CACHED, CachedBatches, Uncopyable, copied

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
    "user's dict": UserDict(inputs=X),
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


ROOM = 1 << 30


def _replayed(kept: CachedBatches, count: int) -> list[int]:
    """Lengths of the batches that come."""
    return [len(kept.next()) for _ in range(count)]


def _offered(
    lengths: list[int], room_bytes: int = ROOM, every: int = 1 << 30, most: int = MOST_CACHED
) -> CachedBatches:
    kept = CachedBatches(every, room_bytes, most)
    for length in lengths:
        kept.offer(torch.zeros(length, dtype=torch.uint8), length, length)
    return kept


def test_shapes_come_in_the_proportion_in_which_they_were_seen() -> None:
    kept = _offered([10, 10, 10, 20, 10, 10, 10, 20])
    assert Counter(_replayed(kept, 40)) == {10: 30, 20: 10}


def test_a_shape_that_is_not_kept_is_stood_for_by_the_nearest_in_size() -> None:
    kept = _offered([10, 100, 12, 12, 95, 60], most=2)
    assert Counter(_replayed(kept, 60)) == {10: 30, 100: 30}


@pytest.mark.parametrize("every", [1, 5])
def test_no_more_is_kept_than_is_of_use(every: int) -> None:
    kept = CachedBatches(every, ROOM)
    for number in range(200):
        kept.offer(torch.full((4,), number), 32, 0)
    assert len({int(kept.next()[0]) for _ in range(200)}) == IN_WARMUP


def test_the_warm_up_gives_the_copies_and_stands_for_none_of_its_batches() -> None:
    kept = CachedBatches(1, ROOM)
    for number, shape in enumerate([0, 0, 1] * 4):
        kept.offer(torch.full((4,), number), 32, shape, is_measured=False)
    warm = {id(one.batch) for one in kept._cached}
    assert len(warm) == IN_WARMUP
    for number, shape in enumerate([0, 0, 0, 2] * 3, 100):
        kept.offer(torch.full((4,), number), 32, shape)
    assert sum(id(one.batch) not in warm for one in kept._cached) == 1  # of the new shape
    came = Counter(int(kept.next()[0]) for _ in range(40))
    assert came.pop(103) == 10
    assert set(came) <= {0, 1, 3, 4, 6, 7}  # batches of shape 1 came in the warm-up only


def test_one_that_there_is_no_room_for_says_so() -> None:
    assert "10 bytes" in _offered([10], room_bytes=5).why_not


def test_what_is_kept_is_a_copy_and_what_comes_is_another() -> None:
    kept, batch = CachedBatches(1, ROOM), torch.zeros(4)
    kept.offer(batch, 16, 0)
    batch.fill_(1)
    kept.next().fill_(2)
    assert kept.next().tolist() == [0, 0, 0, 0]


COUNT = 3


@pytest.fixture
def store() -> Any:
    """The store of all ranks."""
    one = dist.HashStore()
    one.set_timeout(timedelta(seconds=20))
    return one


def _group(store: Any, rank: int, count: int) -> state.RankGroup:
    group = state.RankGroup()
    store_of = SimpleNamespace(_get_default_store=lambda: store)
    world = {"is_initialized": lambda: True, "get_world_size": lambda: count, "get_rank": lambda: rank}
    group.distributed = SimpleNamespace(distributed_c10d=store_of, **world)
    return group


def _agree(store: Any, votes: dict[int, Any]) -> list[Any]:
    with ThreadPoolExecutor(COUNT) as pool:
        groups = [(_group(store, rank, COUNT), vote) for rank, vote in votes.items()]
        decisions = [pool.submit(group.agree, "steps", vote, max) for group, vote in groups]
        return [decision.result(timeout=30) for decision in decisions]


def test_all_get_what_was_made_of_all_votes(store: Any) -> None:
    assert _agree(store, {0: 3, 1: 11, 2: 7}) == [11, 11, 11]


def test_one_that_does_not_come_leaves_no_decision(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "DEADLINE_S", 0.2)
    assert _agree(store, {0: 3, 2: 7}) == [None, None]
    assert _agree(store, {1: 11}) == [None]


def test_a_rank_alone_decides_by_itself() -> None:
    assert _group(None, 0, 1).agree("steps", 5, max) == 5
