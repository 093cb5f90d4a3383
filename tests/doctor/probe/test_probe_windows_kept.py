"""Which batches are kept for replay, and how often each comes."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from headrace.doctor.probe.training.loader_sources import IN_WARMUP, MOST_CACHED, CachedBatches

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
