"""`headrace.cache.Store`: what is kept comes back as it was or not at all, whatever becomes of the file."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import random
import signal
import socket
import struct
import subprocess
import threading
import warnings
import zlib

import numpy as np
import pytest
from processes import in_fork, run_python, start_python

from headrace.cache import CacheStats, Store, identity_of, parse_spec, storage
from headrace.errors import SharedMemoryError, UsageError, WriteError

ENTRIES = 64
WHAT = {"tests": os.getpid()}
"""Other runs of these tests must not share memory with this one."""
IDENTITY = identity_of(ENTRIES, WHAT)
INDEX_AT, DATA_AT = 4096, 8192
"""core/cache/layout.hpp, for fewer than 129 entries."""


def value_of(index: int, size: int = 1000) -> bytes:
    """Of each index another, and of no period that a page or a block has."""
    return (b"%d of many, " % index * (size // 11 + 1))[:size]


def on_disk(folder, identity=IDENTITY, limit="10MB"):
    return Store(parse_spec(f"disk:{folder}:{limit}"), identity)


def in_ram(identity=IDENTITY, limit="10MB"):
    return Store(parse_spec(f"ram:{limit}"), identity)


def fill(store, entries=ENTRIES):
    for index in range(entries):
        assert store.put(index, value_of(index))


def only_file(folder):
    (name,) = os.listdir(folder)
    return folder / name


@pytest.fixture(params=["ram", "disk"])
def store(request, tmp_path):
    return in_ram() if request.param == "ram" else on_disk(tmp_path)


def test_what_is_put_comes_back(store):
    assert store.get(3) is None
    assert store.put(3, value_of(3))
    assert store.get(3) == value_of(3)
    assert store.get(2) is None
    assert store.put(0, bytearray(b"one"))
    assert store.put(1, memoryview(b""))
    assert (store.get(0), store.get(1)) == (b"one", b"")
    stats = store.stats()
    assert (stats.hits, stats.misses, stats.admitted, stats.damaged, stats.stopped) == (3, 2, 3, 0, None)
    assert stats.used_bytes == DATA_AT + 1000 + 3
    assert stats.limit_bytes == 10_000_000


def test_the_first_bytes_stay(store):
    assert store.put(5, b"first")
    assert not store.put(5, b"second")
    assert store.get(5) == b"first"


def test_many_at_a_time(store):
    values = [value_of(3), b"", value_of(9, 70_000)]
    lengths = np.array([len(each) for each in values])
    assert store.put(3, value_of(3))
    assert store.put_many(np.array([3, 60, 9]), np.frombuffer(b"".join(values), np.uint8), lengths) == 2
    data, found = store.get_many(np.array([9, 2, 60, 3, 9]))
    assert found.tolist() == [70_000, -1, 0, 1000, 70_000]
    assert data.tobytes() == values[2] + values[0] + values[2]
    stats = store.stats()
    assert (stats.hits, stats.misses, stats.admitted) == (4, 1, 3)
    assert [each.tolist() for each in store.get_many(np.empty(0, np.int64))] == [[], []]


def test_many_are_checked_before_any_is_kept(store):
    data = np.zeros(10, np.uint8)
    for index in (-1, ENTRIES):
        with pytest.raises(IndexError, match=f"of {ENTRIES}"):
            store.get_many(np.array([0, index]))
        with pytest.raises(IndexError, match=f"of {ENTRIES}"):
            store.put_many(np.array([0, index]), data, np.array([5, 5]))
    for lengths in ([5], [5, 4], [5, 6], [11, -1], [-1, 11]):
        with pytest.raises(ValueError, match="expected"):
            store.put_many(np.array([0, 1]), data, np.array(lengths))
    assert store.stats().admitted == 0


def test_a_damaged_one_of_many(tmp_path):
    store = on_disk(tmp_path)
    fill(store, 3)
    with open(only_file(tmp_path), "r+b") as file:
        file.seek(DATA_AT + 1500)
        file.write(b"\0")
    data, lengths = store.get_many(np.arange(3))
    assert lengths.tolist() == [1000, -1, 1000]
    assert data.tobytes() == value_of(0) + value_of(2)


@pytest.mark.parametrize("index", [ENTRIES, 1 << 60])
def test_entries_have_an_end(store, index):
    with pytest.raises(IndexError, match=f"entry {index} of {ENTRIES}"):
        store.get(index)
    with pytest.raises(IndexError, match=f"entry {index} of {ENTRIES}"):
        store.put(index, b"")


def test_nothing_is_thrown_out_for_what_comes_later(tmp_path):
    store = on_disk(tmp_path, limit=f"{DATA_AT + 10_500}B")
    assert [store.put(index, value_of(index)) for index in range(20)] == [True] * 10 + [False] * 10
    assert store.stats().stopped == "full"
    assert store.stats().used_bytes == DATA_AT + 10_000
    assert [store.get(index) for index in range(20)] == [value_of(index) for index in range(10)] + [None] * 10
    larger = on_disk(tmp_path, limit="1MB")  # the limit may change from run to run
    assert larger.put(15, value_of(15))
    assert store.get(15) == value_of(15)
    assert os.stat(only_file(tmp_path)).st_size == DATA_AT + 11_000


def test_a_pickle_opens_the_same_cache(store):
    fill(store, 3)
    again = pickle.loads(pickle.dumps(store))
    assert again.get(2) == value_of(2)
    again.put(10, b"there")
    assert store.get(10) == b"there"


def child_of_spawn(store, answers):
    store.put(40, b"from the child")
    answers.put(store.get(7))


@pytest.mark.long
def test_spawned_and_forked_processes_share_it(store):
    fill(store, 8)
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    child = context.Process(target=child_of_spawn, args=(store, answers))
    child.start()
    assert answers.get() == value_of(7)
    child.join()
    child.close()
    assert store.get(40) == b"from the child"
    assert in_fork(lambda: store.get(7) + bytes([store.put(41, b"fork")]))() == value_of(7) + b"\1"
    assert store.get(41) == b"fork"


def test_a_fork_does_not_hold_the_parents_name():
    """Whoever asks once the parent has let go makes a cache of its own, and does not wait for the fork."""
    store, (read, write) = in_ram(), os.pipe()
    fill(store, 1)
    ended = in_fork(lambda: os.read(read, 1))
    del store
    assert in_ram().get(0) is None
    os.write(write, b"x")
    assert ended() == b"x"
    os.close(read)
    os.close(write)


def test_a_closed_store_says_so(store):
    store.close()
    store.close()
    with pytest.raises(ValueError, match="this cache is closed"):
        store.get(1)


def test_memory_lives_on_with_those_who_have_it():
    first = in_ram()
    fill(first, 2)
    second = in_ram()
    del first
    assert second.get(1) == value_of(1)


OWNER = """
    import os, sys
    from headrace.cache import Store, identity_of, parse_spec
    store = Store(parse_spec("ram:10MB"), identity_of(64, {"tests": os.getppid()}))
    store.put(3, b"kept")
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_the_process_that_made_it_is_killed():
    """Who has the memory keeps it; who comes then makes another; nothing is left when all have ended."""
    owner = start_python(OWNER, stdin=subprocess.PIPE)
    assert owner.stdout.readline() == "ready\n"
    store = in_ram()
    assert store.get(3) == b"kept"
    owner.kill()
    owner.communicate()
    assert store.get(3) == b"kept"
    assert store.put(4, b"more")
    later = in_ram()
    assert later.get(3) is None
    assert later.put(3, b"other")
    assert store.get(3) == b"kept"


@pytest.mark.one_in(2)
@pytest.mark.long
def test_forks_while_others_write(store):
    """A fork has a copy of whatever another thread held in its midst."""
    stop, done = threading.Event(), []

    def write():
        for index in range(ENTRIES // 2):
            done.append(store.put(index, value_of(index, 50_000)))
            if stop.is_set():
                return

    thread = threading.Thread(target=write)
    thread.start()
    forks = [in_fork(lambda index=index: bytes([store.put(index, b"of a fork")])) for index in range(40, 52)]
    assert [fork() for fork in forks] == [b"\1"] * 12
    stop.set()
    thread.join()
    assert all(done)
    assert [store.get(index) for index in range(40, 52)] == [b"of a fork"] * 12


def test_threads_keep_each_sample_once(store):
    start = threading.Barrier(4)

    def work(seed):
        start.wait()
        order = random.Random(seed).sample(range(ENTRIES), ENTRIES)
        for index in order:
            if store.get(index) is None:
                store.put(index, value_of(index))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [store.get(index) for index in range(ENTRIES)] == [value_of(index) for index in range(ENTRIES)]
    assert store.stats().damaged == 0


WRITER = """
    import os, random, sys
    from headrace.cache import Store, identity_of, parse_spec
    spec, seed, entries, size, talks = sys.argv[1], *map(int, sys.argv[2:])
    store = Store(parse_spec(spec), identity_of(entries, {"tests": os.getppid()}))
    for index in random.Random(seed).sample(range(entries), entries):
        if talks:
            print(index, flush=True)
        if store.get(index) is None:
            store.put(index, (b"%d of many, " % index * (size // 11 + 1))[:size])
    print(store.stats().damaged)
"""


@pytest.mark.parametrize("kind", ["ram", "disk"])
@pytest.mark.long
def test_two_programs_write_at_a_time(tmp_path, kind):
    spec = "ram:30MB" if kind == "ram" else f"disk:{tmp_path}:30MB"
    writers = [start_python(WRITER, spec, seed, 500, 20_000, 0) for seed in range(2)]
    store = Store(parse_spec(spec), identity_of(500, WHAT))  # by whom it is made chance says
    for writer in writers:
        out, error = writer.communicate()
        assert (writer.returncode, out) == (0, "0\n"), error
    assert all(store.get(index) == value_of(index, 20_000) for index in range(500))
    assert store.stats().damaged == 0


def mended(folder, entries=ENTRIES, size=1000):
    """Every entry is what was put or empty; what is empty can be put again. How many were there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it is made anew
        store = on_disk(folder, identity_of(entries, WHAT), limit="900MB")
    there = 0
    for index in range(entries):
        found = store.get(index)
        assert found in (None, value_of(index, size))
        there += found is not None
        assert store.put(index, value_of(index, size)) == (found is None)
    assert all(store.get(index) == value_of(index, size) for index in range(entries))
    return there, store.stats()


def killed(folder, seed):
    """A writer that SIGKILL meets some time after one of its entries, at its start, in the midst or near its end."""
    writer = start_python(WRITER, f"disk:{folder}:900MB", seed, 400, 100_000, 1)
    for _ in range(random.Random(seed).randrange(380)):
        assert writer.stdout.readline()
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    assert writer.returncode == -signal.SIGKILL


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.one_in(4)
def test_killed_while_it_writes(tmp_path, seed):
    killed(tmp_path, seed)
    _, stats = mended(tmp_path, 400, 100_000)
    assert stats.damaged == 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 60))
def test_killed_at_many_moments(tmp_path, seed):
    killed(tmp_path, seed)
    _, stats = mended(tmp_path, 400, 100_000)
    assert stats.damaged == 0


def parts_of(place):
    """Header, tail, index and data of a file of 3 entries of 40 bytes: (first byte, length)."""
    assert place.stat().st_size == DATA_AT + 120
    return ((0, 88), (256, 16), (INDEX_AT, 3 * 32), (DATA_AT, 120))


def lost_with(folder, bits):
    """How many of 3 entries are gone when a bit of the file flips, over `bits` of each byte. None is ever wrong, and
    all can be put again."""
    identity = identity_of(3, "bits")
    store = on_disk(folder, identity)
    values = [value_of(index, 40) for index in range(3)]
    for index, value in enumerate(values):
        store.put(index, value)
    place = only_file(folder)
    whole, lost = place.read_bytes(), []
    for first, length in parts_of(place):
        lost.append(0)
        for byte in range(first, first + length):
            for bit in bits(byte):
                place.write_bytes(whole[:byte] + bytes([whole[byte] ^ 1 << bit]) + whole[byte + 1 :])
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)
                    again = on_disk(folder, identity)
                found = [again.get(index) for index in range(3)]
                lost[-1] += found.count(None)
                assert all(each in (None, value) for each, value in zip(found, values, strict=True)), (byte, bit)
                for index, value in enumerate(values):
                    again.put(index, value)
                assert [again.get(index) for index in range(3)] == values, (byte, bit)
    return lost


def test_a_bit_that_flips(tmp_path):
    assert lost_with(tmp_path, lambda byte: [byte % 8]) == [3 * 88, 0, 3 * 32, 120]


@pytest.mark.long
def test_any_bit_that_flips(tmp_path):
    assert lost_with(tmp_path, lambda byte: range(8)) == [8 * 3 * 88, 0, 8 * 3 * 32, 8 * 120]


@pytest.mark.parametrize("length", [0, 1, 50, 87, 88, 260, 4095, 4096, 4100, 4160, 8191, 8192, 8193, 20_000, 72_191])
def test_cut_short(tmp_path, length):
    fill(on_disk(tmp_path, limit="900MB"))
    os.truncate(only_file(tmp_path), length)
    there, _ = mended(tmp_path)
    assert there == max(0, (length - DATA_AT) // 1000)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: data[:8] + struct.pack("<I", 7) + data[12:], "is of another version of Headrace"),
        (lambda data: data[:20] + b"\xff" + data[21:], "is damaged"),
        (lambda data: b"something else", "is damaged"),
    ],
)
def test_another_file_in_its_place_is_made_anew_with_a_word(tmp_path, change, why):
    fill(on_disk(tmp_path))
    place = only_file(tmp_path)
    place.write_bytes(change(place.read_bytes()))
    with pytest.warns(UserWarning, match=f"the cache .*headrace-.*.cache {why}, and is made anew"):
        store = on_disk(tmp_path)
    assert store.get(0) is None
    fill(store)


def test_older_files_of_a_dataset_are_made_anew_and_other_keys_stay(tmp_path):
    fill(on_disk(tmp_path, identity_of(ENTRIES, "a", stamp=1)))
    other = on_disk(tmp_path, identity_of(ENTRIES, "b", stamp=1))
    assert other.get(0) is None
    assert len(os.listdir(tmp_path)) == 2
    with pytest.warns(UserWarning, match="is of files that have changed since"):
        assert on_disk(tmp_path, identity_of(ENTRIES, "a", stamp=2)).get(0) is None
    assert len(os.listdir(tmp_path)) == 2


def test_who_uses_a_file_that_is_made_anew_goes_on(tmp_path):
    store = on_disk(tmp_path)
    fill(store)
    with pytest.warns(UserWarning, match="made anew"):
        on_disk(tmp_path, identity_of(ENTRIES, WHAT, stamp="new"))
    assert store.get(1) == value_of(1)


FULL = """
    import os, resource, sys
    from headrace.cache import Store, identity_of, parse_spec
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    store = Store(parse_spec(sys.argv[1]), identity_of(64, {"tests": os.getppid()}))
    done = [store.put(index, bytes([index]) * 1000) for index in range(64)]
    found = [store.get(index) for index in range(64)]
    assert found == [bytes([index]) * 1000 if kept else None for index, kept in enumerate(done)]
    print(sum(done), store.stats().stopped)
"""


@pytest.mark.long
def test_no_room_in_the_midst_of_a_write(tmp_path):
    code, out, error = run_python(FULL, f"disk:{tmp_path}:10MB")
    assert (code, out) == (0, f"41 {os.strerror(errno.EFBIG)}\n"), error
    store = on_disk(tmp_path)
    assert store.put(60, value_of(60))
    assert (store.get(40), store.get(41), store.get(60)) == (bytes([40]) * 1000, None, value_of(60))


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 kB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk(small_disk):
    store = on_disk(small_disk)
    done = [store.put(index, value_of(index, 9000)) for index in range(ENTRIES)]
    assert 10 < sum(done) < 29
    assert store.stats().stopped == os.strerror(errno.ENOSPC)
    assert [store.get(index) for index in range(ENTRIES)] == [
        value_of(index, 9000) if kept else None for index, kept in enumerate(done)
    ]
    del store


def test_a_full_disk_at_the_start(small_disk):
    (small_disk / "else").write_bytes(bytes(256 << 10))
    with pytest.raises(WriteError, match="cannot be made: No space left on device; check the folder, its rights and"):
        on_disk(small_disk)


def test_a_folder_that_is_none(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match=r"the cache .*file/headrace-.* cannot be made: File exists"):
        on_disk(tmp_path / "file")


# --- where caches lie, and how large they may be ---


@pytest.mark.parametrize(
    ("text", "folder", "limit"),
    [
        ("ram:8GB", None, 8 * 10**9),
        ("ram:512MiB", None, 512 << 20),
        ("ram: 1.5 tb", None, 1_500_000_000_000),
        ("disk:/nvme/cache:200GB", "/nvme/cache", 200 * 10**9),
        ("disk:/a:b/c:1KiB", "/a:b/c", 1024),
    ],
)
def test_specs(text, folder, limit):
    spec = parse_spec(text)
    assert (spec.folder, spec.limit_bytes) == (folder, limit)


@pytest.mark.parametrize("text", ["8GB", "ram", "ssd:/x:1GB", "disk:200GB", "disk::200GB", "", 8, None])
def test_specs_of_another_form(text):
    with pytest.raises(UsageError, match='expected "ram:SIZE" or "disk:FOLDER:SIZE", such as'):
        parse_spec(text)


@pytest.mark.parametrize("size", ["", "8", "GB", "-1GB", "0GB", "8 parsecs", "1e3GB", "nanGB", "0.1B"])
def test_sizes_of_another_form(size):
    with pytest.raises(UsageError, match=r"cache: expected a size above 0 in 'ram:.*', such as 8GB or 512MiB, got '"):
        parse_spec(f"ram:{size}")


def test_a_limit_below_the_index(tmp_path):
    with pytest.raises(
        UsageError, match=r"expected a limit above the 40.0 MB that an index of 1,250,000 entries takes"
    ):
        on_disk(tmp_path, identity_of(1_250_000, ""), limit="30MB")


def test_more_ram_than_is_free(monkeypatch):
    monkeypatch.setattr(storage, "available_bytes", lambda: 7_000_000)
    with pytest.raises(
        UsageError, match=r"within the 7.0 MB of memory that are free, got 10.0 MB; lower it, or cache on"
    ):
        in_ram(identity_of(5, ["more", WHAT]))


def test_memory_that_the_system_refuses(monkeypatch):
    def refuse(name):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "memfd_create", refuse)
    with pytest.raises(SharedMemoryError, match=r"no memory for a cache: .*Too many open files; use disk:FOLDER:SIZE"):
        in_ram(identity_of(5, ["refused", WHAT]))


def test_another_user_is_given_nothing(monkeypatch):
    """And what another user hands out is not taken."""
    store = in_ram()
    fill(store, 1)
    monkeypatch.setattr(storage, "_peer_user", lambda connection: os.getuid() + 1)
    monkeypatch.setattr(storage, "_WAIT_S", 0.05)
    other = in_ram()
    assert other.get(0) is None
    assert other.put(0, b"own")
    assert store.get(0) == value_of(0)


def test_an_owner_that_does_not_answer(monkeypatch):
    """A stopped process, say: after a while the cache is this process's own."""
    import socket

    identity = identity_of(4, ["silent", WHAT])
    monkeypatch.setattr(storage, "_WAIT_S", 0.05)
    name = f"\0headrace-cache-{os.getuid()}-{identity.name}-{identity.stamp[:8].hex()}-10000000"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(name)
        silent.listen(1)
        store = in_ram(identity)
        assert store.put(0, b"own")
        assert store.get(0) == b"own"


def test_a_system_without_such_sockets(monkeypatch):
    """Each process has a cache of its own, and nobody waits."""

    def refuse(*args):
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))

    monkeypatch.setattr(storage.socket, "socket", refuse)
    first, second = in_ram(), in_ram()
    assert first.put(0, b"own")
    assert (first.get(0), second.get(0)) == (b"own", None)


def test_statistics_in_words():
    stats = CacheStats("ram", 3, 1, 1, 1, 5_400_000, 8_000_000_000, "full", {"image": "files' bytes"})
    assert str(stats) == (
        "cache (ram): 75.0% hits, 5.4 MB of 8.0 GB used, full, 1 damaged entries made anew\n"
        "    cached: image: files' bytes"
    )
    assert str(CacheStats("ram", 0, 0, 0, 0, 50, 100, None)) == "cache (ram): nothing looked up yet, 50 B of 100 B used"
    assert stats.since(stats).hit_rate is None


def test_entries_are_told_apart_by_what_they_are_of():
    assert identity_of(5, ["a", 1]) == identity_of(5, ["a", 1])
    different = {identity_of(5, "a").key, identity_of(6, "a").key, identity_of(5, "b").key, identity_of(5, ["a"]).key}
    assert len(different) == 4


def test_the_file_is_laid_out_as_its_header_says(tmp_path):
    """Read by another implementation."""
    store = on_disk(tmp_path)
    store.put(2, b"abc")
    data = only_file(tmp_path).read_bytes()
    magic, version, _, entries, key, stamp = struct.unpack_from("<8sIIQ32s32s", data)
    assert (magic, version, entries, key, stamp) == (b"hr-cache", 1, ENTRIES, IDENTITY.key, IDENTITY.stamp)
    next_at, check = struct.unpack_from("<QI", data, 256)
    assert (next_at, check) == (DATA_AT + 3, zlib.crc32(data[256:264]) ^ 0xFFFFFFFF)
    at = INDEX_AT + 2 * 32
    offset, length, state, _, _, data_check, check = struct.unpack_from("<QIIIIII", data, at)
    assert data[offset : offset + length] == b"abc"
    assert state == 1
    assert data_check == zlib.crc32(b"abc")
    assert check == zlib.crc32(struct.pack("<Q", 2) + data[at : at + 28])


def test_memory_is_handed_out_again_once_descriptors_are_left():
    class Full(socket.socket):
        refused = 0

        def accept(self):
            if Full.refused < 2:
                Full.refused += 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return super().accept()

    address = f"\0headrace-test-full-{os.getpid()}"
    listening = Full(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(address)
    listening.listen()
    with open(os.devnull, "rb") as file:
        gives = storage.DescriptorServer(listening, file.fileno())
        found = storage._ask(address)
        gives.close()
        assert found is not None
        assert Full.refused == 2
        assert os.path.samestat(os.fstat(found), os.fstat(file.fileno()))
        os.close(found)
