"""Errors of transport in a loader: tried again and counted where they may pass, raised where not, and never waited for.

The faults are real: /proc/self/mem fails with EIO where no memory lies; and a library that stands before the system
(failing_reads.c) makes reads of real files fail as often as a test says.
"""

from __future__ import annotations

import errno
import gc
import os
import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
from bad_loads import fails
from loader_data import write_folder, write_tar, write_zip
from memory_window import OFFSET, PATH, memory_window
from processes import eventually, own_threads, run_python

import headrace as hr
from headrace import _core
from headrace.data import ColumnFiles, Dataset, RangeColumn, StringColumn
from headrace.data.storage import open_file
from headrace.data.table import SampleTable
from headrace.errors import ReadError

FOREVER_S = 3600.0


def memory_dataset(samples: int = 1) -> Dataset:
    """Samples that all lie at the same place of this process's memory."""
    files = ColumnFiles(os.path.dirname(PATH), StringColumn.from_list([os.path.basename(PATH)]), archives=True)
    places = np.full(samples, OFFSET, np.int64)
    column = RangeColumn(files, np.zeros(samples, np.int32), places, np.full(samples, 5, np.int64), None)
    keys = StringColumn.from_list(f"page {number}" for number in range(samples))
    return Dataset(SampleTable("memory", keys, {"image": column}, {}))


def load(dataset: Dataset, **options: object) -> hr.Loader:
    return hr.Loader(dataset, {"image": hr.Raw()}, **({"batch_size": 1, "output": "numpy", "threads": 1} | options))


@pytest.fixture
def waits(monkeypatch):
    """Sets the pauses of what is loaded next."""
    return lambda *waits_s: monkeypatch.setattr(open_file, "RETRY_PAUSES_S", waits_s)


def test_what_fails_for_good_is_raised_with_its_attempts(waits):
    waits(0.0, 0.0, 0.0)
    loader = load(memory_dataset(), on_error="replace", max_bad=1.0)
    text = f"cannot read {PATH}: Input/output error, at each of 4 attempts"
    fails(ReadError, loader, "sample 'page 0', field 'image'", text)
    assert loader.stats().retries == 3
    assert (loader.stats().bad, loader.stats().replaced) == (0, 0)
    waits()
    fails(ReadError, load(memory_dataset()), f"cannot read {PATH}: Input/output error, at each of 1 attempts")


def test_a_mount_that_is_gone_costs_its_pauses_once(waits):
    """Not once a sample: the run stops anyway."""
    waits(0.0, 0.0, 0.0)
    loader = load(memory_dataset(64), batch_size=64)
    error = fails(ReadError, loader, "sample 'page 0', field 'image'", "at each of 4 attempts")
    assert "as another read" not in str(error)
    assert loader.stats().retries == 3
    loader = load(memory_dataset(64), batch_size=64, threads=2)
    fails(ReadError, loader, "at each of 4 attempts")
    assert loader.stats().retries <= 2 * 3


def test_what_passes_is_read_as_if_nothing_had_been(waits):
    waits(*[0.001] * 30_000)
    with memory_window() as window:
        iterator = iter(load(memory_dataset()))
        assert eventually(lambda: iterator.stats().retries > 0)
        window.open(b"there")
        assert next(iterator)["image"] == [b"there"]
        iterator.close()
    assert f"{iterator.stats().retries:,} times a read failed for a reason that may pass" in str(iterator.stats())


def test_pauses_are_not_waited_for_on_close(waits):
    waits(FOREVER_S)
    for samples in (1, 8):  # a job that has no more samples to take, and one that has
        iterator = iter(load(memory_dataset(samples), threads=2, batch_size=samples))
        assert eventually(lambda: iterator.stats().retries >= 1)  # noqa: B023
        iterator.close()
    assert eventually(lambda: own_threads() == [])


def test_pauses_are_not_waited_for_when_an_iterator_is_dropped(waits):
    waits(FOREVER_S)
    running = [iter(load(memory_dataset()))]
    assert eventually(lambda: running[0].stats().retries == 1)
    running.clear()
    gc.collect()
    assert eventually(lambda: own_threads() == [])


def test_a_consumer_that_waits_is_woken(waits):
    waits(FOREVER_S)
    iterator = iter(load(memory_dataset()))
    taken: list[object] = []
    consumer = threading.Thread(target=lambda: taken.extend(iterator))
    consumer.start()
    assert eventually(lambda: iterator.stats().retries == 1)
    iterator.close()
    consumer.join(timeout=60)
    assert not consumer.is_alive()
    assert taken == []


def test_a_job_that_is_dropped_does_not_wait():
    dataset = memory_dataset()
    engine = _core.Engine(1, retry_waits_s=[FOREVER_S])
    files = dataset.files("image")
    paths = _core.Paths(os.fsencode(files.root), files.names.blob, files.names.offsets, keep_open=True, inside=False)
    at = dataset.locate("image", np.zeros(1, np.int64))
    job = _core.Job(np.zeros(1, np.int64), np.zeros(1, np.uint32), key=0, program=np.zeros((0, 10)))
    job.add_raw(_core.Ranges(paths, at.path_id, at.offset, at.length))
    engine.submit(job)
    assert eventually(lambda: engine.counters()["retry"][1] == 1)
    del job
    engine.close()
    paths.close()


@pytest.mark.parametrize("waits_s", [[-0.1], [float("nan")], [1e10]], ids=str)
def test_pauses_must_be_times(waits_s):
    with pytest.raises(ValueError, match=r"expected times from 0 to 1e9 s"):
        _core.Engine(1, retry_waits_s=waits_s)


# --- reads that fail some times ---


@pytest.fixture(scope="module")
def failing_reads(tmp_path_factory) -> Path:
    """The library that makes them fail."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler, as building Headrace does; none is on PATH")
    library = tmp_path_factory.mktemp("library") / "failing_reads.so"
    source = Path(__file__).parents[1] / "failing_reads.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


PHOTOS = 16


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("places")
    places = {
        "folder": write_folder(root / "photos", PHOTOS),
        "tar": write_tar(root / "photos.tar", PHOTOS),
        "zip": write_zip(root / "photos.zip", PHOTOS),
    }
    for place in places.values():
        hr.open(place)  # the index is there then, and what fails are the loader's reads
    return places


SOURCE = """
import hashlib, sys
import headrace as hr
from headrace.data.storage import open_file as retrying
from headrace.errors import ReadError

retrying.RETRY_PAUSES_S = (0.0, 0.0, 0.0, 0.0)
loader = hr.Loader(hr.open(sys.argv[1]), {"image": hr.Raw()}, batch_size=4, output="numpy", threads=1)
state = hashlib.sha256()
try:
    for batch in loader:
        for content in batch["image"]:
            state.update(content)
    print(state.hexdigest())
except ReadError as error:
    print(error)
print(loader.stats().retries)
"""


@pytest.fixture
def load_with(failing_reads, places, monkeypatch, tmp_path):
    """What a loader of a place reads, or its error, and its retries; where files are opened is written to `opens`."""

    def run(place: str, *faults: tuple[str, str, int, int]) -> tuple[str, int]:
        preloaded = [os.environ.get("LD_PRELOAD"), str(failing_reads)]
        monkeypatch.setenv("LD_PRELOAD", ":".join(filter(None, preloaded)))
        monkeypatch.setenv("FAILING_READS", ";".join(":".join(map(str, fault)) for fault in faults))
        monkeypatch.setenv("FAILING_READS_LOG", str(tmp_path / "opens"))
        code, out, error = run_python(SOURCE, places[place])
        assert code == 0, error
        text, retries = out.splitlines()
        return text, int(retries)

    return run


FAULTS = {
    "folder": [
        ("read", "0003.jpg", errno.EIO, 2),
        ("open", "0005.png", errno.ETIMEDOUT, 1),
        ("read", "0007.png", errno.ESTALE, 3),
    ],
    "tar": [("read", "photos.tar", errno.EREMOTEIO, 4)],
    "zip": [("read", "photos.zip", errno.EAGAIN, 3)],
}


@pytest.mark.parametrize(
    "place", [place if place == "tar" else pytest.param(place, marks=pytest.mark.long) for place in FAULTS]
)
def test_reads_that_fail_some_times(load_with, place):
    expected, none = load_with(place)
    assert none == 0
    got, retries = load_with(place, *FAULTS[place])
    assert got == expected
    assert retries == sum(count for *_, count in FAULTS[place])


@pytest.mark.parametrize("place", ["tar", pytest.param("zip", marks=pytest.mark.long)])
@pytest.mark.long
def test_an_archive_is_opened_again_only_where_its_descriptor_is_lost(load_with, tmp_path, place):
    opens = tmp_path / "opens"
    for code, times in ((errno.EIO, 1), (errno.ESTALE, 4)):
        _, retries = load_with(place, ("read", f"photos.{place}", code, 3))
        assert retries == 3
        assert len(opens.read_text().splitlines()) == times
        opens.unlink()


@pytest.mark.parametrize("call", [pytest.param("open", marks=pytest.mark.long), "read"])
def test_what_goes_on_failing_stops_the_run(load_with, call):
    said, retries = load_with("folder", (call, "0003.jpg", errno.EIO, 1000))
    assert f"cannot {call}" in said
    assert "0003.jpg: Input/output error, at each of 5 attempts; is the file still there, and readable?" in said
    assert retries == 4


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(errno.ENOENT, marks=pytest.mark.long),
        errno.EACCES,
        pytest.param(errno.EMFILE, marks=pytest.mark.long),
    ],
    ids=errno.errorcode.get,
)
@pytest.mark.long
def test_what_lasts_stops_the_run_at_once(load_with, code):
    said, retries = load_with("folder", ("open", "0003.jpg", code, 1))
    assert f"0003.jpg: {os.strerror(code)}; is the file still there, and readable?" in said
    assert retries == 0
