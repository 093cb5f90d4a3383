"""Whether copies fit: figures from made-up kernels, and a file system that is too small."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import source_paths

from headrace.data.staging.source_files import FreeSpace, SourceFile, expect_room, file_system_of
from headrace.errors import WriteError
from headrace.system import mounts

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


def files(*sizes: int) -> list[SourceFile]:
    return [SourceFile(str(at).encode(), b"", size, 0, 0o644) for at, size in enumerate(sizes)]


def test_the_kind_of_a_file_system():
    info = (
        "22 1 0:21 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw,size=64m\n"
        "23 1 259:2 / /data\\040set rw - ext4 /dev/nvme0n1p2 rw\n"
    )
    listed = mounts(lambda _: info, "self")
    assert file_system_of(os.makedev(0, 21), listed) == "tmpfs"
    assert file_system_of(os.makedev(259, 2), listed) == "ext4"
    assert file_system_of(os.makedev(8, 1), listed) is None


@pytest.mark.parametrize(
    ("room", "words"),
    [
        (
            FreeSpace(1 * GB, None, 90 * GB, 0),
            "the copies need 2.0 GB, and the file system, which is memory, has 1.0 GB left",
        ),
        (
            FreeSpace(90 * GB, None, 3 * GB, 2 * GB),
            "the copies need 2.0 GB of memory, of which 3.0 GB are available, and 2.0 GB are left to runs. Stage less",
        ),
        (
            FreeSpace(3 * GB, None, None, 2 * GB),
            "the copies need 2.0 GB, and the file system has 3.0 GB left, of which 2.0 GB are kept free. Free",
        ),
        (
            FreeSpace(90 * GB, 1, None, 0),
            "the copies are 2 files, and the file system takes 1 more. Stage an archive of them",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_figures(room, words):
    with pytest.raises(WriteError, match=rf"^/dev/shm/x: {re.escape(words)}.*Nothing was written$"):
        expect_room(files(GB, GB), 0, room, b"/dev/shm/x")


@given(sizes=st.lists(st.integers(0, 10**6), max_size=9), free=st.integers(0, 10**7), there=st.integers(0, 10**6))
def test_what_is_taken_always_fits(sizes, free, there):
    """Counted once more, in whole pages."""
    need = sum((size + 4095) // 4096 for size in sizes) * 4096 - there
    try:
        expect_room(files(*sizes), there, FreeSpace(free, None, free, 0), b"x")
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
        r".*: the copies need 2\.1 MB, and the file system, which is memory, has 1\.0 MB left\. Make it larger "
        r"\(mount -o remount,size=…; docker run --shm-size=…\), stage less, or stage onto a disk\. "
        r"Nothing was written\n",
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

    monkeypatch.setattr("headrace.data.staging.copying.UNIT_FILES", 4)
    monkeypatch.setattr(os, "pwrite", write)
    with pytest.raises(WriteError, match=r"No space left on device\. Free space there and run it again: what is compl"):
        stage_all(source, to)
    monkeypatch.setattr(os, "pwrite", real)
    report = stage_all(source, to)
    assert report.kept > 0
    assert copies(to) == expected(source)
