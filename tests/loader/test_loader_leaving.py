"""However a pass ends, it leaves no thread, no file and no memory, and nothing hangs."""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import signal
import threading
import warnings
from pathlib import Path

import battery
import numpy as np
import pytest
from loader_data import COUNT, encode, photograph, write_folder, write_tar
from loader_data import load_crops as load
from processes import (
    DEADLINE_S,
    eventually,
    interrupt_when_ready,
    nothing_left,
    open_files,
    own_threads,
    resident_bytes,
    run_python,
)

import headrace as hr
from headrace.loader import position
from headrace.loader.decoding import pillow

MB = 1 << 20


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A tar: its reader keeps a descriptor open."""
    return write_tar(tmp_path_factory.mktemp("leaving") / "photos.tar")


@pytest.fixture(scope="module")
def photos(place):
    return hr.open(place)


@pytest.fixture(autouse=True)
def nothing_is_left(photos):
    with nothing_left():
        yield


def join(thread):
    thread.join(DEADLINE_S)
    assert not thread.is_alive(), "hangs"


# --- in this process ---


def test_closing_leaves_rows_that_were_not_begun(photos):
    """`close` waits for the rows in progress, not for the batch."""
    begun, go_on = threading.Semaphore(0), threading.Event()
    rows = []

    def slow(sample, rng):
        rows.append(1)
        begun.release()
        assert go_on.wait(DEADLINE_S)
        return sample

    iterator = iter(load(photos, map=slow, batch_size=COUNT))
    assert begun.acquire(timeout=DEADLINE_S)
    assert begun.acquire(timeout=DEADLINE_S)
    closing = threading.Thread(target=iterator.close)
    closing.start()
    assert eventually(lambda: iterator._pass._python._cancelled)
    go_on.set()
    join(closing)
    assert len(rows) == 2


def test_dropping_does_not_wait_for_a_map_that_hangs(photos, monkeypatch):
    monkeypatch.setattr(position, "DROP_WAIT_S", 0.05)
    begun, go_on = threading.Event(), threading.Event()

    def hangs(sample, rng):
        begun.set()
        assert go_on.wait(DEADLINE_S)
        return sample

    iterator = iter(load(photos, map=hangs))
    assert begun.wait(DEADLINE_S)
    del iterator
    assert own_threads() != []
    go_on.set()
    assert eventually(lambda: own_threads() == [])


def test_closing_while_pillow_works(tmp_path, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    decode = pillow.decode_picture

    def slow(data, image, limits):
        begun.set()
        assert go_on.wait(DEADLINE_S)
        return decode(data, image, limits)

    monkeypatch.setattr(pillow, "decode_picture", slow)
    for number in range(8):
        (tmp_path / f"{number}.bmp").write_bytes(encode(photograph(number, 30, 20), "BMP"))
    iterator = iter(load(hr.open(tmp_path), fields={"image": hr.Image()}, batch_size=8))
    assert begun.wait(DEADLINE_S)
    closing = threading.Thread(target=iterator.close)
    closing.start()
    assert eventually(lambda: iterator._pass._python._cancelled)
    go_on.set()
    join(closing)
    assert eventually(lambda: own_threads() == [])


def test_memory_that_runs_out_in_pillow_is_no_bad_sample(tmp_path, monkeypatch):
    def fails(data, image, limits):
        raise MemoryError("too much")

    monkeypatch.setattr(pillow, "decode_picture", fails)
    (tmp_path / "a.bmp").write_bytes(encode(photograph(1, 30, 20), "BMP"))
    loader = load(hr.open(tmp_path), fields={"image": hr.Image()})
    with pytest.raises(MemoryError, match="too much"):
        list(loader)
    assert loader.stats().bad == 0


def test_an_error_while_the_feed_starts_reaches_the_consumer(photos, monkeypatch):
    def fails(self, plan):
        raise MemoryError("no room for a batch")

    loader = load(photos)
    monkeypatch.setattr("headrace.loader.assembly.Assembly.start", fails)
    with pytest.raises(MemoryError, match="no room for a batch"):
        list(loader)
    monkeypatch.undo()
    assert len(list(loader)) == COUNT / 4


# --- memory ---


def test_a_consumer_that_keeps_every_batch_is_told_once(photos):
    """Nothing waits for it, nothing is overwritten."""
    loader = load(photos, batch_size=1)
    with pytest.warns(UserWarning, match=r"batches of [\d,]+ bytes each are alive.*clone") as caught:
        held = [batch for _ in range(2) for batch in loader]
    assert len(caught) == 1
    loader.set_epoch(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        battery.assert_equal(battery.kept(held[:COUNT]), battery.kept(load(photos, batch_size=1)), "held batches")


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_a_batch_outlives_its_loader(photos, output):
    loader = load(photos, output=output)
    batch = next(iter(loader))
    expected = battery.plain(batch["image"])
    part = batch["image"][1:]
    del loader, batch
    gc.collect()
    churn = [np.full(part.nbytes, 255, np.uint8) for _ in range(20)]
    np.testing.assert_array_equal(battery.plain(part), expected[1:])
    assert len(churn) == 20


def test_memory_goes_back_with_the_loader(photos):
    def use():
        loader = load(photos, batch_size=20, view=hr.Resize((512, 512)), prefetch=2)
        held = [next(iter(loader))["image"] for _ in range(4)]
        return resident_bytes(), held

    use()
    gc.collect()
    before = resident_bytes()
    at_most, held = use()
    batch = held[0].nbytes
    assert at_most > before + 4 * batch * 0.9
    del held
    gc.collect()
    assert eventually(lambda: resident_bytes() < before + batch / 2)


def test_batch_memory_is_used_again(photos):
    """Addresses come back, so the loader does not allocate as it goes."""
    loader = load(photos, prefetch=2)
    addresses = {batch["image"].ctypes.data for _ in range(3) for batch in loader}
    assert len(addresses) <= 2 + 3


def grows(photos, epochs, batch_size):
    """Bytes of growth over `epochs`, after some to warm up."""
    files, loader = open_files(), load(photos, batch_size=batch_size)

    def take(loader, count):
        for _ in range(count):
            for batch in loader:
                del batch
        gc.collect()

    take(loader, 5)
    before = resident_bytes()
    take(loader, epochs)
    growth = resident_bytes() - before
    del loader  # which has prefetched another epoch, and may hold its file
    assert eventually(lambda: own_threads() == [])
    assert eventually(lambda: open_files() == files)
    return growth


def test_epochs_leave_nothing(photos):
    assert grows(photos, 25, 8) < 4 * MB


@pytest.mark.long
def test_a_hundred_epochs_leave_nothing(tmp_path):
    assert grows(hr.open(write_folder(tmp_path / "photos", 2000)), 100, 64) < 8 * MB


# --- a fork ---


def digest(batches):
    state = hashlib.sha256()
    for batch in batches:
        state.update(batch["image"].tobytes())
    return state.hexdigest().encode()


def test_multiprocessing_by_fork(photos):
    loader = load(photos)
    expected = digest(load(photos))
    iterator = iter(loader)
    next(iterator)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    loader.set_epoch(0)  # the child's pass takes the epoch that this one has begun
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process = context.Process(target=lambda: queue.put(digest(loader)))
        process.start()
    process.join(DEADLINE_S)
    assert process.exitcode == 0
    assert queue.get() == expected
    queue.close()
    process.close()
    iterator.close()


# --- other processes ---

SCRIPT = """
import sys, threading
import headrace as hr

def loader(**options):
    return hr.Loader(sys.argv[1], view=hr.Resize((24, 24)), batch_size=4, threads=2, output="numpy", **options)
"""


@pytest.mark.long
def test_ctrl_c_in_the_users_code(place):
    code, _, error = interrupt_when_ready(
        SCRIPT
        + """
for batch in loader():
    print("ready", flush=True)
    while True:
        threading.Event().wait(0.05)
""",
        place,
    )
    assert code == -signal.SIGINT
    assert error.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.long
def test_ctrl_c_in_next(place):
    """The consumer waits for a map that takes its time."""
    code, out, error = interrupt_when_ready(
        SCRIPT
        + """
at_next = threading.Event()

def slow(sample, rng):
    at_next.wait()
    threading.Event().wait(0.2)  # in which the consumer goes from the event into next()
    print("ready", flush=True)
    threading.Event().wait(0.2)
    return sample

keep = loader(map=slow)
iterator = iter(keep)
try:
    at_next.set()
    next(iterator)
except KeyboardInterrupt:
    print("interrupted", keep.state_dict()["samples"], next(iterator, "ended"))
    raise
""",
        place,
    )
    assert code == -signal.SIGINT
    assert out.rstrip().endswith("interrupted 0 ended")
    assert error.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "body",
    [
        pytest.param("iterator = iter(loader()); next(iterator)", marks=pytest.mark.long),
        pytest.param(
            "keep = loader(); keep.iterator = iter(keep); batch = next(keep.iterator)", marks=pytest.mark.long
        ),
        "import torch; torch_loader = hr.Loader(sys.argv[1], view=hr.Resize(24), batch_size=1); "
        "iterator = iter(torch_loader); batch = next(iterator)",
        "iterator = iter(loader(map=lambda sample, rng: sample)); next(iterator)",
        "for batch in loader(): sys.exit(0)",
        pytest.param("iterator = iter(loader())", marks=pytest.mark.long),
    ],
    ids=["in mid-epoch", "in a cycle", "with tensors", "with map", "sys.exit in the loop", "before the first batch"],
)
@pytest.mark.long
def test_the_interpreter_exits(place, body):
    assert run_python(SCRIPT + body, place) == (0, "", "")


@pytest.mark.parametrize("options", ["", "map=lambda sample, rng: sample"])
@pytest.mark.long
def test_a_fork_exits_as_its_parent_does(place, options):
    """Through the interpreter's own end, not os._exit: what is registered there must not wait for threads elsewhere."""
    body = f"""
import os
iterator = iter(loader({options}))
next(iterator)
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    assert run_python(SCRIPT + body, place, warnings="ignore::DeprecationWarning") == (0, "", "")


def test_an_exception_that_nobody_catches(place):
    code, _, error = run_python(SCRIPT + "for batch in loader(): raise RuntimeError('mine')", place)
    assert code == 1
    assert error.rstrip().endswith("RuntimeError: mine")


def test_a_pass_maps_no_named_shared_memory(photos):
    before = _named_shared_memory()
    iterator = iter(load(photos))
    next(iterator)
    assert _named_shared_memory() <= before
    iterator.close()


def _named_shared_memory() -> set[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[-1] for line in lines if "/dev/shm/" in line}
