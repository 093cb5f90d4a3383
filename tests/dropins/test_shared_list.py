"""`shared_list`: a list's interface, no memory of their own for workers, and nothing that has a name."""

from __future__ import annotations

import copy
import gc
import os
import pathlib
import pickle
import resource
import signal
import subprocess
import sys
import tracemalloc
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from archive_workers import described, in_processes, same_memory
from hypothesis import given
from hypothesis import strategies as st
from processes import in_fork, run_python, start_python

from headrace.dropins.shared_sequence import SharedList, shared_list
from headrace.errors import SharedMemoryError, UsageError

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary()
KEYS = st.text() | st.integers() | st.tuples(st.integers(), st.text())
ITEMS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(KEYS, inner),
    max_leaves=10,
)
NAMES = [f"folder{i % 7}/image_{i:05d}.jpg" for i in range(5000)]
Pair = namedtuple("Pair", "path label")  # as datasets have them


# --- a list ---


@given(st.lists(ITEMS, max_size=20))
def test_items_come_back_equal_and_of_the_same_types(items):
    shared = shared_list(iter(items))
    assert repr(list(shared)) == repr(items)  # which tells True from 1, 1 from 1.0, and knows nan
    assert len(shared) == len(items)


@given(st.lists(st.integers(0, 9), max_size=12), st.lists(st.slices(12), max_size=3), st.integers(-13, 12))
def test_indices_and_slices_are_a_lists(items, slices, index):
    shared = shared_list(items)
    for which in slices:
        items, shared = items[which], shared[which]
    assert shared == items
    assert list(reversed(shared)) == items[::-1]
    if -len(items) <= index < len(items):
        assert shared[index] == shared[np.int64(index)] == items[index]
    else:
        with pytest.raises(IndexError, match=f"item {index} of {len(items)}"):
            shared[index]


def test_is_used_as_a_list():
    shared = shared_list(["a", "b", "a"])
    assert "b" in shared
    assert "c" not in shared
    assert (shared.index("b"), shared.count("a")) == (1, 2)
    assert shared == ["a", "b", "a"]
    assert shared == shared_list("aba")
    assert shared != ["a", "b"]
    assert shared != ("a", "b", "a")
    assert shared[::2] == ["a", "a"]
    with pytest.raises(TypeError, match="unhashable"):
        hash(shared)
    with pytest.raises(TypeError):
        shared[0] = "c"


@pytest.mark.long
def test_repr_shows_little():
    assert repr(shared_list(NAMES)[:3]) == f"SharedList(3 items: {NAMES[:3]})"
    assert repr(shared_list(range(1_000_000))) == "SharedList(1,000,000 items: [0, 1, 2, …])"


def test_slices_share_their_memory():
    shared = shared_list(NAMES)
    assert shared[10:20][::3]._memory is shared._memory
    assert shared[10:20].nbytes == shared.nbytes


def test_what_is_read_may_be_changed_without_changing_the_list():
    shared = shared_list([{"label": 1}])
    shared[0]["label"] = 2
    assert shared[0] == {"label": 1}
    assert copy.deepcopy(shared) == shared == copy.copy(shared)


def test_a_list_of_paths_stays_one():
    paths = [pathlib.Path(name) for name in NAMES]
    assert list(shared_list(paths)) == paths
    assert isinstance(shared_list(paths)[0], pathlib.Path)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (["a", object()], r"item 1: expected None, bool, .*, got object\. Pass plain values"),
        ([[1, {"x": np.float32(2)}]], r"item 0: .* got numpy\.float32\. Pass item\.tolist\(\)"),
        (np.array(["a", "b"]), r"item 0: .* got numpy\.str_\. Pass item\.tolist\(\)"),
        ([b"a", bytearray(b"b")], r"item 1: .* got bytearray"),
        ([Pair("a.jpg", 1)], r"item 0: .* got test_shared_list\.Pair\. Pass plain values: a str, a tuple"),
        ([{1, 2}], r"item 0: .* got set"),
        (
            [("a", pathlib.Path("a"))],
            r"item 0: .* got pathlib\.PosixPath\. Pass str\(path\); only a list of no",
        ),
        ([pathlib.Path("a"), "b"], r"item 1: expected a path, as the first item is one, got str\. Pass str\(path\)"),
        ([*range(5000), 1j], r"item 5,000: .* got complex"),
    ],
)
def test_other_items_are_refused(items, message):
    with pytest.raises(UsageError, match=message):
        shared_list(items)


def test_circles_are_refused():
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(UsageError, match="item 1: lists or dicts nested too deeply, or in a circle"):
        shared_list(["a", circle])


def test_an_error_of_the_source_stays_its_own():
    def source():
        yield "a"
        raise TypeError("of the source")

    with pytest.raises(TypeError, match=r"^of the source$"):
        shared_list(source())


@pytest.mark.long
def test_a_source_is_consumed_as_it_comes():
    count = 100_000
    tracemalloc.start()
    shared = shared_list(f"{'x' * 100}{i}" for i in range(count))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(shared) == count
    assert shared.nbytes > 10_000_000
    assert peak < 4_000_000


# --- shared ---


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "method",
    ["fork", pytest.param("forkserver", marks=pytest.mark.leaks(reason="Python keeps its fork server")), "spawn"],
)
def test_started_processes_have_the_same_memory(method):
    shared = shared_list(NAMES)
    inode = os.fstat(shared._memory.descriptor).st_ino
    assert in_processes(method, described, shared[5:9]) == [(NAMES[5:9], inode)]
    # The list and its slice come as one memory: a descriptor of its own, and the map's.
    assert in_processes(method, same_memory, shared, shared[::2]) == [(True, 2)]


def private_bytes() -> int:
    """What this process alone holds and has written."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no Private_Dirty")


def growth_by_reading(items) -> int:
    def work() -> bytes:
        gc.disable()  # a collection writes to every object of the tests' process
        for item in items[:100]:
            item.upper()
        before = private_bytes()
        assert sum(map(len, items)) == total
        return str(private_bytes() - before).encode()

    total = sum(map(len, items))
    return int(in_fork(work)())


@pytest.mark.long
def test_a_forked_worker_grows_by_nothing_and_with_a_list_by_all():
    items = [f"/data/images/{i:060d}.jpg" for i in range(150_000)]
    shared = shared_list(items)
    assert growth_by_reading(shared) < 1_000_000
    assert growth_by_reading(items) > 10_000_000


def test_a_pickle_for_anything_else_holds_the_content():
    shared = shared_list(NAMES)
    copied = pickle.loads(pickle.dumps(shared))
    assert isinstance(copied, SharedList)
    assert copied == NAMES
    assert copied._memory is not shared._memory
    few = pickle.dumps(shared[10:12])
    assert len(few) < 300
    assert pickle.loads(few) == NAMES[10:12]
    assert pickle.loads(pickle.dumps(shared_list([]))) == []


def test_the_memory_outlives_the_process_that_made_it():
    """And is gone with the last one that has it, though nobody could tidy up."""
    parent = start_python(
        """
        import os, signal
        from headrace.dropins.shared_sequence import shared_list
        shared = shared_list(f"item {i}" for i in range(1000))
        ended, open_while_alive = os.pipe()
        if os.fork() == 0:
            os.close(open_while_alive)
            os.read(ended, 1)
            print(shared[999], flush=True)
            os._exit(0)
        maps = open("/proc/self/maps").read()
        print("ready", "memfd" in maps, "/dev/shm/" in maps, flush=True)
        signal.pause()
        """
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "ready True False\n"
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert parent.stdout.read().split() == ["item", "999"]
    assert parent.stderr is not None
    parent.stdout.close()
    parent.stderr.close()


# --- where memory is short ---

WITHOUT_ROOM = """
mount -t tmpfs -o size=64k tmpfs /dev/shm && head -c 65536 /dev/zero > /dev/shm/full
exec "$@"
"""

SHARE = """
import sys
from archive_workers import described, in_processes
from headrace.dropins.shared_sequence import shared_list
if __name__ == "__main__":
    try:
        open("/dev/shm/more", "wb", buffering=0).write(b"x" * 4096)
    except OSError as error:
        print(error.strerror)
    shared = shared_list("x" * 1000 + str(i) for i in range(1000))
    print(all(in_processes(method, described, shared)[0][0] == shared for method in ("fork", "spawn")))
"""


def test_a_full_shared_memory_folder_does_not_matter(tmp_path):
    unshare = ["unshare", *([] if os.geteuid() == 0 else ["-r"]), "-m"]
    if subprocess.run([*unshare, "sh", "-c", "mount -t tmpfs tmpfs /dev/shm"], capture_output=True).returncode:
        pytest.skip("this system lets nobody mount a /dev/shm of their own (unshare -rm)")
    script = tmp_path / "share.py"
    script.write_text(SHARE)
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    command = [*unshare, "sh", "-c", WITHOUT_ROOM, "sh", sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, timeout=60)
    assert (done.stdout.splitlines(), done.stderr) == (["No space left on device", "True"], "")


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        (resource.RLIMIT_FSIZE, 1 << 20, r"it is full after 1,048,576 bytes: File too large\. Check free memory"),
        (resource.RLIMIT_AS, None, r"bytes could not be mapped: Cannot allocate memory\. Check free memory"),
        (
            resource.RLIMIT_NOFILE,
            3,
            r"an anonymous file \(memfd_create of Linux\) could not be made: Too many open files",
        ),
    ],
)
def test_limits_of_the_system_are_named(limit, value, message):
    def work() -> bytes:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        allowed = pages * resource.getpagesize() + (1 << 24) if value is None else value
        resource.setrlimit(limit, (allowed, allowed))
        with pytest.raises(SharedMemoryError, match=message):
            shared_list("x" * 1000 for _ in range(20_000))
        return b"named"

    assert in_fork(work)() == b"named"


def test_systems_without_anonymous_files(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(SharedMemoryError, match=r"an anonymous file \(memfd_create of Linux\) could not be made"):
        shared_list(["a"])


def test_nothing_is_open_once_it_is_dropped():
    before = len(os.listdir("/proc/self/fd"))
    shared = shared_list(NAMES)
    part = shared[5:]
    del shared
    assert part[0] == NAMES[5]
    del part
    assert len(os.listdir("/proc/self/fd")) == before


def test_import_brings_no_torch():
    code, out, error = run_python("import sys, headrace.dropins.shared_sequence; print('torch' in sys.modules)")
    assert (code, out, error) == (0, "False\n", "")
