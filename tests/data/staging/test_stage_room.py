"""Whether copies fit: figures from made-up kernels, and a file system that is too small."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import source_paths

from headrace.data.staging import source_files
from headrace.data.staging.source_files import expect_room, is_in_memory
from headrace.errors import WriteError
from headrace.system.resources import ProcessMemory

GB = 10**9
NAMESPACE = ["unshare", *([] if os.geteuid() == 0 else ["-r"]), "-m", "sh", "-c"]
STAGE = """
import sys
from headrace.errors import WriteError
from headrace.data.staging import sources_of, stage
try:
    stage(sources_of([sys.argv[1]]), to=sys.argv[2], reserve_bytes=0)
except WriteError as error:
    print(error)
"""


@contextmanager
def kernel(free: int, free_files: int = 0, available: int | None = None) -> Iterator[None]:
    """A file system with so much room; in memory if `available` is the memory there is."""
    status = SimpleNamespace(f_bavail=free, f_frsize=1, f_files=free_files, f_favail=free_files)
    found = None if available is None else ProcessMemory(available, 100 * GB)
    with (
        patch.object(source_files.os, "statvfs", lambda _: status),
        patch.object(source_files, "memory", lambda: found),
        patch.object(source_files, "is_in_memory", lambda _: available is not None),
    ):
        yield


def test_the_kind_of_a_file_system(tmp_path, monkeypatch):
    device = os.stat(tmp_path).st_dev
    line = f"22 1 {os.major(device)}:{os.minor(device)} / {tmp_path} rw,nosuid shared:4 - %s none rw,size=64m\n"
    other = "23 1 999:2 / /data\\040set rw - tmpfs none rw\n"
    for kind, is_memory in (("tmpfs", True), ("ext4", False)):
        monkeypatch.setattr(source_files, "read_text", lambda _, kind=kind: line % kind + other)
        assert is_in_memory(os.fsencode(tmp_path)) is is_memory
    monkeypatch.setattr(source_files, "read_text", lambda _: other)
    assert not is_in_memory(os.fsencode(tmp_path))


@pytest.mark.parametrize(
    ("found", "reserve", "words"),
    [
        ((1 * GB, 0, 90 * GB), 0, "the copies need 2.0 GB, and the file system, which is memory, has 1.0 GB left"),
        ((90 * GB, 0, 3 * GB), 2 * GB, "2.0 GB, and memory has 3.0 GB left, of which 2.0 GB stay free"),
        ((90 * GB, 0, 11 * GB), None, "2.0 GB, and memory has 11.0 GB left, of which 10.0 GB stay free"),
        ((3 * GB,), 2 * GB, "the copies need 2.0 GB, and the file system has 3.0 GB left, of which 2.0 GB stay free"),
        ((3 * GB,), None, "the copies need 2.0 GB, and the file system has 3.0 GB left, of which 1.1 GB stay free"),
        ((90 * GB, 1), 0, "the copies are 2 files, and the file system takes 1 more. Stage an archive of them"),
    ],
)
def test_what_does_not_fit_is_refused_with_figures(found, reserve, words):
    with kernel(*found), pytest.raises(WriteError, match=rf"^/dev/shm/x: .*{re.escape(words)}.*Nothing was written$"):
        expect_room(b"/dev/shm/x", [GB, GB], 0, reserve_bytes=reserve)


@given(sizes=st.lists(st.integers(0, 10**6), max_size=9), free=st.integers(0, 10**7), there=st.integers(0, 10**6))
def test_what_is_taken_always_fits(sizes, free, there):
    """Counted once more, in whole pages."""
    need = sum((size + 4095) // 4096 for size in sizes) * 4096 - there
    with kernel(free, 0, free):
        try:
            expect_room(b"x", sizes, there, reserve_bytes=0)
        except WriteError:
            assert need > free
        else:
            assert need <= max(free, 0)


def on_small_tmpfs(source: Path, to: Path, before: str) -> str:
    if subprocess.run([*NAMESPACE, "mount -t tmpfs none /mnt"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this system lets nobody mount anything (unshare -m)")
    script = f'mount -t tmpfs -o size=1m none "$2" && {before} "$0" -c "$3" "$1" "$2" && ls -A "$2"'
    env = os.environ | {"PYTHONPATH": os.pathsep.join(source_paths())}
    command = [*NAMESPACE, script, sys.executable, str(source), str(to), STAGE]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_tmpfs_that_is_too_small_is_left_as_it_was(tmp_path, to):
    to.mkdir()
    (tmp_path / "big").write_bytes(bytes(2 << 20))
    said = on_small_tmpfs(tmp_path / "big", to, "")
    assert re.fullmatch(
        r".*: the copies need 2\.1 MB, and the file system, which is memory, has 1\.0 MB left, of which "
        r"0 bytes stay free\. Free space, enlarge it \(mount -o remount,size=…; docker run --shm-size=…\), stage less, "
        r"or onto a disk, or set the reserve: --reserve\. Nothing was written\n",
        said,
    )


def test_a_file_system_that_fills_up_meanwhile(source, to, monkeypatch):
    """What was complete by then is kept."""
    from staged_trees import copies, expected, stage_all

    real, left = os.pwrite, [12]

    def write(descriptor, data, at):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return real(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", write)
    with pytest.raises(WriteError, match=r"No space left on device\. Free space there and run it again: what is compl"):
        stage_all(source, to)
    monkeypatch.setattr(os, "pwrite", real)
    report = stage_all(source, to)
    assert report.kept > 0
    assert copies(to) == expected(source)
