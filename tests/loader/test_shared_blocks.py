"""Memory that a pass shares with its map workers: blocks of one anonymous file."""

from __future__ import annotations

import gc
import os
import weakref

import numpy as np
import pytest
from processes import in_fork

from headrace import _core
from headrace.loader.batch_memory import MappedBlocks, SharedBlocks, SharedFile
from headrace.loader.map_workers.messages import MapCounters, counter_bytes
from headrace.system.forks import forget_ended_forks

PAGE = 4096


@pytest.fixture
def blocks():
    file = SharedFile.make()
    blocks = SharedBlocks(file, most_idle=2)
    yield blocks
    blocks.retire()


def held_bytes(file):
    """Memory that the kernel holds for the file."""
    return os.fstat(file.fileno()).st_blocks * 512


def place_of(block):
    return block.__array_interface__["data"][0]


def test_what_one_side_writes_the_other_reads(blocks):
    first, second = blocks.acquire(100), blocks.acquire(3 * PAGE)
    first[:], second[:] = 1, 2
    mapped = MappedBlocks(blocks.file)
    assert mapped.fresh(blocks.offset_of(first), 100).tolist() == [1] * 100
    other = mapped.fresh(blocks.offset_of(second), 3 * PAGE)
    assert (other == 2).all()
    other[7] = 9
    assert second[7] == 9


def test_only_the_start_of_a_block_has_an_offset(blocks):
    block = blocks.acquire(2 * PAGE)
    assert blocks.offset_of(block) is not None
    assert blocks.offset_of(block[8:16]) is None
    assert blocks.offset_of(np.zeros(8)) is None


@pytest.mark.parametrize("file", [True, False], ids=["shared", "private"])
def test_batches_of_changing_shapes_share_blocks(file):
    """The smallest that is large enough, but none of more than twice the size."""
    descriptor = os.memfd_create("blocks") if file else -1
    pool = _core.BlockPool(most_idle=4, file=descriptor)
    sizes = [9 * PAGE, 5 * PAGE, 4 * PAGE]
    blocks = [pool.acquire(size) for size in sizes]
    places = [place_of(block) for block in blocks]
    del blocks
    smaller = pool.acquire(4 * PAGE - 1), pool.acquire(4 * PAGE)
    assert [place_of(block) for block in smaller] == [places[2], places[1]]
    assert [len(block) for block in smaller] == [4 * PAGE - 1, 4 * PAGE]
    other = pool.acquire(4 * PAGE)
    assert place_of(other) not in places, "the one of nine pages is too large"
    assert pool.usage()[3] == 4
    del smaller, other
    if file:
        os.close(descriptor)


def test_a_block_is_used_again_once_nobody_holds_it(blocks):
    block = blocks.acquire(PAGE)
    view, at = block[10:20], place_of(block)
    del block
    other = blocks.acquire(PAGE)
    assert place_of(other) != at
    del view
    assert place_of(blocks.acquire(PAGE)) == at
    del other
    assert blocks.held() == 0


def test_idle_blocks_beyond_the_most_give_their_memory_back(blocks):
    held = [blocks.acquire(16 * PAGE) for _ in range(5)]
    for block in held:
        block[:] = 1
    assert held_bytes(blocks.file) == 5 * 16 * PAGE
    del block, held
    assert held_bytes(blocks.file) == 2 * 16 * PAGE


def test_memory_that_is_held_outlives_the_rest(blocks):
    """A consumer may keep a batch: the others' memory must not stay with it, as it would in a file that is only
    unmapped."""
    kept, idle = blocks.acquire(PAGE), blocks.acquire(64 * PAGE)
    kept[:], idle[:] = 3, 4
    late = blocks.acquire(PAGE)
    late[:] = 5
    view = os.dup(blocks.file.fileno())
    del idle
    blocks.retire()
    assert os.fstat(view).st_blocks * 512 == 2 * PAGE
    del late
    assert os.fstat(view).st_blocks * 512 == PAGE
    assert (kept == 3).all()
    os.close(view)


def test_what_a_fork_may_look_at_stays_as_it_is_while_the_fork_lives(blocks):
    """Shared memory is not copied by a fork: used again, it would change under the fork's eyes."""
    read, write = os.pipe()
    block = blocks.acquire(PAGE)
    block[:], at = 8, place_of(block)

    def looks():
        os.read(read, 1)
        return bytes(block[:3])

    child = in_fork(looks)
    block = None
    later = [blocks.acquire(PAGE) for _ in range(3)]
    for each in later:
        each[:] = 9
    assert at not in map(place_of, later)
    os.write(write, b".")
    assert child() == b"\x08\x08\x08"
    assert place_of(blocks.acquire(PAGE)) == at, "it comes back once the fork has gone"
    os.close(read), os.close(write)


def test_what_a_fork_may_look_at_stays_when_the_pass_is_over(blocks):
    read, write = os.pipe()
    block = blocks.acquire(PAGE)
    block[:] = 8

    def looks():
        os.read(read, 1)
        return bytes(block[:3])

    child = in_fork(looks)
    view = os.dup(blocks.file.fileno())
    blocks.retire()
    block = blocks = None
    assert os.fstat(view).st_blocks * 512 == PAGE
    os.write(write, b".")
    assert child() == b"\x08\x08\x08"
    forget_ended_forks()
    assert os.fstat(view).st_blocks == 0
    os.close(read), os.close(write), os.close(view)


def test_a_fork_touches_nothing_of_its_parents_memory(blocks):
    block, idle = blocks.acquire(PAGE), blocks.acquire(PAGE)
    block[:], at = 6, place_of(idle)
    idle[:] = 7
    del idle

    def work():
        nonlocal block
        descriptor = blocks.file._descriptor
        del block
        blocks.retire()
        gc.collect()
        return b"closed" if descriptor is None else b"open"

    assert in_fork(work)() == b"closed"
    assert (block == 6).all()
    again = blocks.acquire(PAGE)
    assert place_of(again) == at
    assert (again == 7).all(), "the fork has freed it"


def test_a_fresh_array_dies_when_nothing_refers_to_it(blocks):
    """Views of views keep it alive, not an older array over the same memory."""
    block = blocks.acquire(PAGE)
    mapped = MappedBlocks(blocks.file)
    fresh = mapped.fresh(blocks.offset_of(block), PAGE)
    alive = weakref.ref(fresh)
    view = np.ndarray((4, 4), np.int16, fresh)[1:].T[:2]
    del fresh
    assert alive() is not None
    del view
    assert alive() is None


def test_a_system_without_anonymous_files(monkeypatch):
    def refuse(name):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "memfd_create", refuse)
    assert SharedFile.make() is None
    monkeypatch.delattr(os, "memfd_create")
    assert SharedFile.make() is None


def test_rows_are_taken_once_each(blocks):
    """Over as many processes as there may be; two here."""
    memory = blocks.acquire(counter_bytes(batches=3, workers=2))
    counters = MapCounters(memory, batches=3)
    counters.reset()
    counters.begin_batch(5)
    children = [in_fork(lambda: bytes(counters.take(5) for _ in range(100))) for _ in range(2)]
    assert sorted(b"".join(child() for child in children)) == list(range(200))
    counters.take(5, 1000)
    assert counters.take(5) >= 1000
    counters.begin_batch(4)
    assert counters.take(4) == 0


def test_where_a_worker_is(blocks):
    counters = MapCounters(blocks.acquire(counter_bytes(batches=1, workers=2)), batches=1)
    counters.reset()
    assert counters.at(0) is None
    counters.set_at(1, 70_000, 123_456)
    assert (counters.at(0), counters.at(1)) == (None, (70_000, 123_456))
    counters.set_idle(1)
    assert counters.at(1) is None


def test_a_counter_that_is_not_there():
    with pytest.raises(IndexError, match="expected the index of a counter"):
        _core.fetch_add(np.zeros(3, np.int64), 3, 1)


def test_a_file_that_is_not_there():
    with pytest.raises(OSError, match="Bad file descriptor"):
        _core.map_file(-1, 0, PAGE)
