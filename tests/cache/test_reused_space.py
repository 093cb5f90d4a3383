"""A store whose space is used again: what is found is always what was put, whoever drops and writes meanwhile."""

from __future__ import annotations

import os
import random
import signal
import struct
import threading
import warnings

import numpy as np
import pytest
from processes import start_python

from headrace import _core
from headrace.cache import Store, identity_of, parse_spec

ENTRIES = 64
WHAT = {"tests": os.getpid()}
UNIT, MAP_BYTES = 1024, 32768
"""core/cache/space_map.hpp"""
DATA_AT = 8192


def value_of(index: int, size: int = 3000) -> bytes:
    return (b"%d of many, " % index * (size // 11 + 1))[:size]


def reused(folder, *, limit=DATA_AT + MAP_BYTES + 20 * 3 * UNIT, entries=ENTRIES):
    """By default with room for 20 entries of `value_of`."""
    spec = "ram" if folder is None else f"disk:{folder}"
    return Store(parse_spec(f"{spec}:{limit}B"), identity_of(entries, [WHAT, str(folder)]), reuses=True)


@pytest.fixture(params=["ram", "disk"])
def store(request, tmp_path):
    return reused(None if request.param == "ram" else tmp_path)


def evict(store, *indices):
    return store.native.evict(np.array(indices, np.int64))


def test_space_is_used_again(store):
    assert [store.put(index, value_of(index)) for index in range(22)] == [True] * 20 + [False] * 2
    assert store.stats().stopped == "full"
    assert evict(store, 3, 4, 40) == 2 * 3 * UNIT
    assert not store.put(30, value_of(30))
    store.native.resume()
    assert store.put(30, value_of(30))
    assert store.put(31, value_of(31))
    assert not store.put(32, value_of(32))
    kept = [index for index in range(ENTRIES) if store.get(index) is not None]
    assert kept == [0, 1, 2, *range(5, 20), 30, 31]
    assert all(store.get(index) == value_of(index) for index in kept)
    assert np.flatnonzero(store.native.taken(0, ENTRIES)).tolist() == kept
    assert store.stats().used_bytes == DATA_AT + MAP_BYTES + 20 * 3 * UNIT
    assert store.stats().damaged == 0


def test_entries_of_all_sizes_and_of_none(store):
    sizes = {0: 0, 1: 1, 2: UNIT, 3: UNIT + 1, 4: 9 * UNIT}
    for index, size in sizes.items():
        assert store.put(index, value_of(index, size))
    assert store.native.taken(0, 5).tolist() == [0, UNIT, UNIT, 2 * UNIT, 9 * UNIT]
    assert [store.get(index) for index in sizes] == [value_of(index, size) for index, size in sizes.items()]
    assert evict(store, *sizes) == 13 * UNIT
    assert store.stats().used_bytes == DATA_AT + MAP_BYTES
    assert not any(store.get(index) for index in sizes)


def test_an_entry_too_large_for_any_place_leaves_room_for_others(store):
    assert not store.put(0, bytes(61 * UNIT))  # one unit more than there are
    assert store.stats().stopped is None
    assert store.put(1, bytes(60 * UNIT))


def test_an_entry_without_bytes_is_there_when_the_file_is_opened_again(tmp_path):
    first = reused(tmp_path)
    assert first.put(3, b"")
    assert first.put(4, value_of(4))
    del first
    again = reused(tmp_path)
    assert [again.get(3), again.get(4)] == [b"", value_of(4)]


def test_a_model_of_it(tmp_path):
    """Random puts and evictions of random sizes against a dict."""
    rng, store, model, sizes = random.Random(7), reused(tmp_path, limit=400_000), {}, {}
    for _ in range(3000):
        index = rng.randrange(ENTRIES)
        if rng.random() < 0.4:
            evict(store, index)
            model.pop(index, None)
            store.native.resume()
        elif store.put(index, value := value_of(index, sizes.setdefault(index, rng.randrange(1, 20_000)))):
            assert index not in model
            model[index] = value
    assert {index: found for index in range(ENTRIES) if (found := store.get(index)) is not None} == model
    taken = sum(-(-len(value) // UNIT) * UNIT for value in model.values())
    assert (
        store.stats().used_bytes
        == DATA_AT + MAP_BYTES + taken
        == DATA_AT + MAP_BYTES + int(store.native.taken(0, ENTRIES).sum())
    )
    assert 10 < len(model) < ENTRIES
    del store
    assert {index: reused(tmp_path, limit=400_000).get(index) for index in model} == model


def test_nobody_reads_what_is_being_replaced(tmp_path):
    """Threads of two stores of one file read, put and drop in a space for few entries: no value is ever another's, and
    none counts as damaged."""
    stores = [reused(tmp_path), reused(tmp_path)]
    begin = threading.Barrier(4)
    wrong, found = [], [0] * 4

    def work(number):
        rng, store = random.Random(number), stores[number % 2]
        begin.wait()
        for _ in range(1500):
            index = rng.randrange(ENTRIES)
            got = store.get(index)
            if got is None:
                evict(store, *rng.sample(range(ENTRIES), 3))
                store.native.resume()
                store.put(index, value_of(index))
            else:
                found[number] += 1
                if got != value_of(index):
                    wrong.append(index)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert min(found) > 100
    assert sum(store.stats().damaged for store in stores) == 0


def entry_at(index):
    return 4096 + 32 * index


def test_space_that_another_entry_has_meanwhile(tmp_path):
    """An index entry that names another one's bytes, with right checksums of its own, is found out by the data's."""
    store = reused(tmp_path)
    store.put(1, value_of(1))
    store.put(2, value_of(2))
    (name,) = os.listdir(tmp_path)
    with open(tmp_path / name, "r+b") as file:
        file.seek(entry_at(1))
        (offset,) = struct.unpack("<Q", file.read(8))
        file.seek(offset)
        file.write(value_of(2))
    assert store.get(1) is None
    assert store.get(2) == value_of(2)
    assert store.stats().damaged == 1
    assert store.put(1, value_of(1))
    assert store.get(1) == value_of(1)


WRITER = """
    import os, random, sys
    import numpy as np
    from headrace.cache import Store, identity_of, parse_spec
    folder, limit, seed = sys.argv[1], *map(int, sys.argv[2:])
    what = [{"tests": os.getppid()}, folder]
    store = Store(parse_spec(f"disk:{folder}:{limit}B"), identity_of(64, what), reuses=True)
    rng = random.Random(seed)
    for turn in range(4000):
        index = rng.randrange(64)
        value = (b"%d of many, " % index * (3000 // 11 + 1))[:3000]
        got = store.get(index)
        assert got in (None, value)
        if got is None:
            store.native.evict(np.array(rng.sample(range(64), 3)))
            store.native.resume()
            store.put(index, value)
        if turn % 50 == 0:
            print(turn, store.stats().damaged, flush=True)
"""


def killed(folder, seed):
    """A writer that SIGKILL meets in the midst of its puts and evictions, while this process has the file open, too."""
    limit = DATA_AT + MAP_BYTES + 20 * 3 * UNIT
    store = reused(folder)
    writer = start_python(WRITER, folder, limit, seed)
    for _ in range(2 + random.Random(seed).randrange(20)):
        assert writer.stdout.readline().endswith(" 0\n")
    for index in range(ENTRIES):
        assert store.get(index) in (None, value_of(index))
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    assert writer.returncode == -signal.SIGKILL
    found = [store.get(index) for index in range(ENTRIES)]
    assert all(each in (None, value_of(index)) for index, each in enumerate(found))
    assert store.stats().damaged == 0
    del store
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = reused(folder)
    assert [again.get(index) for index in range(ENTRIES)] == found
    taken = int(again.native.taken(0, ENTRIES).sum())
    assert again.stats().used_bytes == DATA_AT + MAP_BYTES + taken  # nothing that the killed one had taken is lost
    evict(again, *range(ENTRIES))
    again.native.resume()
    assert [again.put(index, value_of(index)) for index in range(22)] == [True] * 20 + [False] * 2


def test_killed_while_it_drops_and_writes(tmp_path):
    killed(tmp_path, 1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 60))
def test_killed_at_many_moments_of_dropping(tmp_path, seed):
    killed(tmp_path, seed)


def test_lost_space_is_free_again_only_once_nobody_else_uses_the_file(tmp_path):
    first = reused(tmp_path)
    first.put(1, value_of(1))
    (name,) = os.listdir(tmp_path)
    with open(tmp_path / name, "r+b") as file:  # as if a killed process had taken all
        file.seek(DATA_AT)
        file.write(b"\xff" * MAP_BYTES)
    second = reused(tmp_path)
    assert not second.put(2, value_of(2))
    del first, second
    third = reused(tmp_path)
    assert third.get(1) == value_of(1)
    assert third.put(2, value_of(2))


def test_a_lower_limit_drops_what_lies_above_it(tmp_path):
    first = reused(tmp_path)
    for index in range(20):
        first.put(index, value_of(index))
    del first
    lower = reused(tmp_path, limit=DATA_AT + MAP_BYTES + 5 * 3 * UNIT)
    assert [index for index in range(ENTRIES) if lower.get(index) is not None] == list(range(5))
    (name,) = os.listdir(tmp_path)
    assert os.path.getsize(tmp_path / name) <= lower.limit_bytes
    assert lower.stats().used_bytes == DATA_AT + MAP_BYTES + 5 * 3 * UNIT


def test_damaged_bytes_never_come_back_as_others(tmp_path):
    """A bit of the header, index, map or data flips: entries are what was put or gone, and can be put again."""
    values = [value_of(index, 1500) for index in range(3)]
    first = reused(tmp_path, entries=3)
    for index, value in enumerate(values):
        first.put(index, value)
    del first
    (name,) = os.listdir(tmp_path)
    whole = (tmp_path / name).read_bytes()
    places = [*range(0, 88, 9), *range(256, 272, 3), *range(4096, 4192, 5), *range(DATA_AT, DATA_AT + 2)]
    data = [DATA_AT + MAP_BYTES + 700 * step for step in range(6)]
    for place in (*places, *data):
        (tmp_path / name).write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            again = reused(tmp_path, entries=3)
        found = [again.get(index) for index in range(3)]
        assert all(each in (None, value) for each, value in zip(found, values, strict=True)), place
        for index, value in enumerate(values):
            again.put(index, value)
        assert [again.get(index) for index in range(3)] == values, place
        del again


def test_files_that_grow_are_told_from_those_that_are_reused(tmp_path):
    identity = identity_of(5, "both")
    grows = Store(parse_spec(f"disk:{tmp_path}:1MB"), identity)
    grows.put(1, b"one")
    with pytest.warns(UserWarning, match="is of another version of Headrace, and is made anew"):
        other = Store(parse_spec(f"disk:{tmp_path}:1MB"), identity, reuses=True)
    assert other.get(1) is None
    assert grows.get(1) == b"one"
    assert grows.native.evict(np.array([1])) == 0
    assert _core.CACHE_FULL == -1
