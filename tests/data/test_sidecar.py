"""The kept index: what is trusted, where it lies, and what happens when its builder is killed or not alone."""

from __future__ import annotations

import json
import mmap
import os
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import tracemalloc
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from index_checksums import put_together, taken_apart
from safetensors.numpy import load_file

import headrace.data as data
from headrace.data.archives import tar_index
from headrace.data.archives.tar_index import TAR
from headrace.data.storage import safetensors, sidecar
from headrace.dropins.indexed_tar import IndexedTar
from headrace.errors import ChangedError, DatasetError

MEMBERS = {"1.jpg": b"one", "1.cls": b"0", "2.jpg": b"two", "x/3.jpg": b"three"}

# A child that stops in the middle of writing the sidecar, says so, and waits to be killed.
STOP_WHILE_WRITING = """
import sys, time
import headrace.data as data
from headrace.data.storage import safetensors
def write(file, arrays, metadata):
    file.write(b"half of a header")
    file.flush()
    print("writing", flush=True)
    time.sleep(600)
safetensors.write_arrays = write
data.open(sys.argv[1])
"""

# A child that says when it scans, and scans, or fails, once it is told to.
SCAN_WHEN_TOLD = """
import sys
import headrace.data as data
from headrace.dropins.indexed_tar import IndexedTar
from headrace.data.archives import tar_index
build = tar_index.build_tar_index
def told(path):
    print("scanning", flush=True)
    if sys.stdin.readline() == "fail\\n":
        sys.exit(3)
    return build(path)
tar_index.build_tar_index = told
print(data.open(sys.argv[1]).fingerprint, flush=True)
"""


def start(script: str, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, args)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def tell(child: subprocess.Popen[str], word: str) -> None:
    child.stdin.write(word + "\n")
    child.stdin.flush()


def wait_until_blocked(child: subprocess.Popen[str]) -> None:
    """Returns once the kernel lists the child as waiting for a lock; fails if it says anything first."""
    while not any("->" in line and f" {child.pid} " in line for line in Path("/proc/locks").read_text().splitlines()):
        assert not select.select([child.stdout], [], [], 0.01)[0], child.stdout.readline()


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths scanned, in order."""
    seen: list[str] = []
    build = tar_index.build_tar_index

    def counted(path: str) -> tuple[safetensors.Arrays, str]:
        seen.append(path)
        return build(path)

    monkeypatch.setattr(tar_index, "build_tar_index", counted)
    return seen


def is_mapped(array: np.ndarray) -> bool:
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, mmap.mmap)


def test_second_open_scans_nothing(make_tar, scans):
    path = make_tar("a.tar", MEMBERS)
    first, second = data.open(path), data.open(path)
    assert scans == [str(path)]
    assert [second[i] for i in range(3)] == [first[i] for i in range(3)]
    assert first.fingerprint == second.fingerprint
    assert {entry.name for entry in path.parent.iterdir()} == {"a.tar", "a.tar.headrace"}


def test_the_safetensors_library_reads_it(make_tar):
    path = make_tar("a.tar", MEMBERS)
    ds = data.open(path)
    arrays = load_file(f"{path}.headrace")
    assert arrays["names.blob"].tobytes() == "".join(MEMBERS).encode()
    assert arrays["members.size"].tolist() == [3, 1, 3, 5]
    assert arrays["samples.first"].tolist() == [0, 2, 3, 4]
    assert arrays["samples.member"].tolist() == [0, 1, 2, 3]
    assert arrays["samples.extension"].tolist() == [0, 1, 0, 0]
    np.testing.assert_array_equal(arrays["members.offset"][[0, 2, 3]], ds.locate("jpg", np.arange(3)).offset)
    assert arrays["samples.folder_of"].tolist() == [-1, -1, 0]


@pytest.mark.long
def test_hundred_thousand_members_are_mapped_not_loaded(make_tar, scans):
    count = 50_000
    path = make_tar("a.tar", ((f"{i // 2:06d}.{'jpg' if i % 2 else 'cls'}", b"x") for i in range(2 * count)))
    data.open(path)
    tracemalloc.start()
    ds = data.open(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert scans == [str(path)]
    assert len(ds) == count
    assert peak < 32 * count
    jpg, (names,), (samples,) = ds.columns["jpg"], ds.keys.samples.names, ds.keys.samples.samples
    where = [part for joined in jpg.places.joined.values() for part in joined.parts]
    which = [samples.first, samples.member, samples.extension, samples.folder_of]
    assert all(is_mapped(array) for array in (*where, *which, names.blob, names.offsets))
    assert ds.columns["image"].places is jpg.places


def test_changed_tar_is_scanned_again(make_tar, scans):
    path = make_tar("a.tar", MEMBERS)
    data.open(path)
    make_tar("a.tar", MEMBERS | {"2.jpg": b"TWO", "4.jpg": b"four"})
    assert (len(data.open(path)), data.open(path)[1]["jpg"]) == (4, b"TWO")
    make_tar("a.tar", MEMBERS | {"2.jpg": b"twO", "4.jpg": b"four"})  # the same size
    assert data.open(path)[1]["jpg"] == b"twO"
    assert len(scans) == 3


def damaged(change: dict[str, object]) -> bytes:
    header = {"__metadata__": {}, **change}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"short",
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 100) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 3) + b"{x}",
        struct.pack("<Q", 100_000) + b"[" * 100_000,
        damaged({}),
        damaged({"__metadata__": 3}),
        damaged({"a": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}}),
        damaged({"a": {"dtype": "I64", "shape": [-1], "data_offsets": [8, 0]}}),
        damaged({"a": {"dtype": "F8_E4M3", "shape": [0], "data_offsets": [0, 0]}}),
    ],
)
def test_foreign_sidecars_are_rebuilt(make_tar, scans, content):
    path = make_tar("a.tar", MEMBERS)
    Path(f"{path}.headrace").write_bytes(content)
    with pytest.warns(UserWarning, match=r"a\.tar\.headrace: expected the index of .*, got a damaged file"):
        assert data.open(path)[0]["jpg"] == b"one"
    assert data.open(path)[2]["jpg"] == b"three"
    assert len(scans) == 1


def rewrite(path: Path, name: str, values: list[int] | None = None, **metadata: str) -> None:
    """Changes one array or the metadata of a sidecar in place, and leaves all else as it is, checksums right."""
    header, body = taken_apart(path.read_bytes())
    if values is not None:
        start, stop = header[name]["data_offsets"]
        dtype = {"I64": "<i8", "U64": "<u8", "I32": "<i4", "U32": "<u4", "U8": "u1"}[header[name]["dtype"]]
        changed = np.array(values, dtype).tobytes()
        assert len(changed) == stop - start
        body[start:stop] = changed
    header["__metadata__"] |= metadata
    path.write_bytes(put_together(header, body))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "change",
    [
        {"name": "members.offset", "values": [0, 512, 512, 512]},
        {"name": "members.offset", "values": [512, 512, 512, 2**62]},
        {"name": "members.size", "values": [3, 1, 3, 2**63 - 1]},
        {"name": "members.size", "values": [3, 1, 3, -2]},
        {"name": "names.offsets", "values": [0, 10, 5, 15, 22]},
        {"name": "names.offsets", "values": [0, 5, 10, 15, 2**40]},
        {"name": "samples.first", "values": [0, 3, 2, 4]},
        {"name": "samples.first", "values": [0, 2, 2, 4]},
        {"name": "samples.first", "values": [1, 2, 3, 4]},
        {"name": "samples.first", "values": [0, 2, 3, 5]},
        {"name": "samples.member", "values": [0, 1, 2, 4]},
        {"name": "samples.member", "values": [0, 1, 2, -1]},
        {"name": "samples.extension", "values": [0, 1, 0, 2]},
        {"name": "samples.folder_of", "values": [-1, -2, 0]},
        {"name": "samples.folder_of", "values": [-1, -1, 1]},
        {"name": "", "format": "headrace tar index 0"},
        {"name": "", "outline": "{}"},
        {"name": "", "outline": "nonsense"},
        {"name": "", "outline": json.dumps({"extensions": ["jpg", "jpg"], "skipped": {}, "digest": ""})},
        {"name": "", "outline": json.dumps({"extensions": ["jpg"], "skipped": {}, "digest": ""})},
        {"name": "", "outline": json.dumps({"extensions": ["jpg", "cls"], "skipped": {}})},
        {"name": "", "outline": json.dumps({"extensions": ["jpg", "cls"], "skipped": {}, "digest": 3})},
    ],
)
def test_a_sidecar_that_does_not_fit_its_tar_is_rebuilt(make_tar, scans, change):
    path = make_tar("a.tar", MEMBERS)
    data.open(path)
    kept = Path(f"{path}.headrace")
    rewrite(kept, "")
    data.open(path)
    assert len(scans) == 1  # the rewriting alone is accepted
    rewrite(kept, **change)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        data.open(path)
    assert [str(each.message).startswith(f"{kept}: expected the index of {path}, got a damaged") for each in said] == (
        [] if "format" in change else [True]
    )
    assert [data.open(path)[i]["jpg"] for i in range(3)] == [b"one", b"two", b"three"]
    assert len(scans) == 2


@pytest.mark.parametrize("shift", [1, 4])
def test_a_sidecar_whose_arrays_are_not_aligned_is_rebuilt(make_tar, scans, shift):
    path = make_tar("a.tar", MEMBERS)
    sidecar = Path(f"{path}.headrace")
    with IndexedTar(path) as archive:
        names = archive.getnames()
    whole = put_together(*taken_apart(sidecar.read_bytes()))
    size = int.from_bytes(whole[:8], "little")
    shifted = struct.pack("<Q", size + shift) + whole[8 : 8 + size] + b" " * shift
    blank = re.sub(rb'"checksum": "........"', b'"checksum": "00000000"', shifted)
    signed = blank.replace(b'"checksum": "00000000"', b'"checksum": "%08x"' % zlib.crc32(blank))
    sidecar.write_bytes(signed + whole[8 + size :])
    with pytest.warns(UserWarning, match="got a damaged file"):
        archive = IndexedTar(path)
    with archive:
        assert archive.getnames() == names
        assert all(name in archive for name in names)
    assert len(scans) == 2


def test_stale_offsets_in_bounds_are_caught_when_read(make_tar):
    path = make_tar("a.tar", MEMBERS)
    ds = data.open(path)
    (offset,) = ds.columns["jpg"].places.joined["offset"].parts
    at = offset.tolist()
    rewrite(Path(f"{path}.headrace"), "members.offset", [at[2], at[1], at[0], at[3]])
    with pytest.raises(ChangedError, match="the tar header there is not the one that was indexed"):
        data.open(path).read("jpg", 0)


@pytest.mark.long
def test_killed_builder_lets_the_next_one_go_on(make_tar):
    path = make_tar("a.tar", MEMBERS)
    killed = start(STOP_WHILE_WRITING, path)
    assert killed.stdout.readline() == "writing\n"
    waiting = start(SCAN_WHEN_TOLD, path)
    wait_until_blocked(waiting)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    out, _ = waiting.communicate("go\n", timeout=60)
    assert out.splitlines() == ["scanning", data.open(path).fingerprint]
    assert {entry.name for entry in path.parent.iterdir()} == {"a.tar", "a.tar.headrace"}


def test_half_a_sidecar_never_has_its_name(make_tar):
    path = make_tar("a.tar", MEMBERS)
    child = start(STOP_WHILE_WRITING, path)
    assert child.stdout.readline() == "writing\n"
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert {entry.name for entry in path.parent.iterdir()} == {"a.tar", "a.tar.headrace.partial"}
    assert len(data.open(path)) == 3
    assert {entry.name for entry in path.parent.iterdir()} == {"a.tar", "a.tar.headrace"}


@pytest.mark.long
def test_one_process_builds_and_the_others_wait(make_tar):
    path = make_tar("a.tar", MEMBERS)
    builder = start(SCAN_WHEN_TOLD, path)
    assert builder.stdout.readline() == "scanning\n"
    others = [start(SCAN_WHEN_TOLD, path) for _ in range(2)]
    for other in others:
        wait_until_blocked(other)
    tell(builder, "go")
    said = [child.communicate(timeout=60)[0] for child in (builder, *others)]
    assert said == [f"{data.open(path).fingerprint}\n"] * 3


@pytest.mark.long
def test_failed_builder_hands_over_to_the_next(make_tar, own_cache):
    path = make_tar("a.tar", MEMBERS)
    failing = start(SCAN_WHEN_TOLD, path)
    assert failing.stdout.readline() == "scanning\n"
    waiting = start(SCAN_WHEN_TOLD, path)
    wait_until_blocked(waiting)
    failing.communicate("fail\n", timeout=60)
    assert failing.returncode == 3
    assert waiting.communicate("go\n", timeout=60)[0].startswith("scanning\n")
    assert {entry.name for entry in path.parent.iterdir()} == {"a.tar", "a.tar.headrace"}
    assert list(own_cache.iterdir()) == []


def test_remains_of_a_killed_builder_are_written_over(make_tar):
    path = make_tar("a.tar", MEMBERS)
    data.open(path)
    kept = Path(f"{path}.headrace")
    content = kept.read_bytes()
    kept.unlink()
    Path(f"{kept}.partial").write_bytes(b"remains" * 10_000)
    data.open(path)
    assert kept.read_bytes() == content


def test_failed_scan_leaves_nothing(make_tar, tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(b"no tar at all" * 100)
    with pytest.raises(DatasetError):
        data.open(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.tar"]


def test_error_while_writing_leaves_nothing(make_tar, own_cache, monkeypatch):
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    path = make_tar("a.tar", MEMBERS)
    monkeypatch.setattr(safetensors, "write_arrays", full)
    with pytest.warns(UserWarning, match=r"a\.tar cannot be cached.*No space left on device.*Set HEADRACE_CACHE"):
        assert len(data.open(path)) == 3
    assert [entry.name for entry in path.parent.iterdir()] == ["a.tar"]
    assert list(own_cache.iterdir()) == []


@pytest.mark.filterwarnings("ignore:.*got a damaged file:UserWarning")  # at the second opening, which is so
def test_an_index_that_does_not_come_back_is_scanned_again_each_time(make_tar, scans, monkeypatch):
    path = make_tar("a.tar", MEMBERS)
    monkeypatch.setattr(safetensors, "write_arrays", lambda file, *_: file.write(b"what a broken disk makes of it"))
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"a\.tar cannot be cached.*what was written there does not come back"):
            assert len(data.open(path)) == 3
    assert len(scans) == 6  # beside the tar, in the cache folder, and for itself alone


@pytest.fixture
def read_only_tar(make_tar):
    """A tar in a folder that only root may write; pytest's own folders are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        path = make_tar("a.tar", MEMBERS).rename(Path(folder) / "a.tar")
        os.chmod(path, 0o644)
        os.chmod(folder, 0o555)
        yield path
        os.chmod(folder, 0o755)


@pytest.fixture
def open_cache():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


def test_read_only_folder_falls_back_to_the_cache(read_only_tar, open_cache, as_nobody, monkeypatch, scans):
    monkeypatch.setenv("HEADRACE_CACHE", str(open_cache / "deeper"))
    with as_nobody():
        data.open(read_only_tar)
        ds = data.open(read_only_tar)
        kept = [entry.name for entry in (open_cache / "deeper").iterdir()]
    assert (len(scans), len(ds)) == (1, 3)
    assert [entry.name for entry in read_only_tar.parent.iterdir()] == ["a.tar"]
    assert len(kept) == 1
    assert kept[0].startswith("a.tar.")
    assert kept[0].endswith(".headrace")


def test_nowhere_to_keep_it_warns(read_only_tar, as_nobody, monkeypatch):
    monkeypatch.setenv("HEADRACE_CACHE", str(read_only_tar.parent / "cache"))
    with as_nobody(), pytest.warns(UserWarning, match="cannot be cached, so each start scans .*Permission denied"):
        assert len(data.open(read_only_tar)) == 3


def test_cache_argument_is_the_only_place(make_tar, tmp_path, own_cache):
    path = make_tar("a.tar", MEMBERS)
    data.open(path, cache=tmp_path / "mine")
    assert {entry.name for entry in tmp_path.iterdir()} == {"a.tar", "mine"}
    assert len(list((tmp_path / "mine").iterdir())) == 1
    assert list(own_cache.iterdir()) == []


def test_cache_argument_must_be_writable(make_tar, tmp_path):
    path = make_tar("a.tar", MEMBERS)
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(
        DatasetError, match=r"cannot cache the index of .* in the cache folder given: .*Name one that is writ"
    ):
        data.open(path, cache=tmp_path / "file")


def test_cache_folder_follows_the_environment(monkeypatch):
    monkeypatch.setenv("HEADRACE_CACHE", "/somewhere/own")
    assert sidecar.cache_folder() == "/somewhere/own"
    monkeypatch.delenv("HEADRACE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert sidecar.cache_folder() == "/xdg/headrace"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert sidecar.cache_folder() == "/home/someone/.cache/headrace"


def test_no_descriptor_is_left_open(make_tar):
    path = make_tar("a.tar", MEMBERS)
    before = len(os.listdir("/proc/self/fd"))
    indices = [TAR.open_index(str(path), cache=None) for _ in range(5)]
    assert len(os.listdir("/proc/self/fd")) - before <= len(indices)  # a map holds at most its own duplicate
    del indices
    assert len(os.listdir("/proc/self/fd")) == before
