"""What cannot be written or read: an error that says what and where, and nothing half under its name."""

from __future__ import annotations

import errno
import gzip
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from made_archives import MTIME, file, noise, ordinary, write_tar, write_zip
from processes import interrupt_when_ready, source_paths
from unpacked_trees import names, tree

from headrace.data.storage.file_writing import write_error
from headrace.errors import (
    ChangedError,
    DamagedMemberError,
    DatasetError,
    NotFoundError,
    ReadError,
    UnsupportedMemberError,
    UsageError,
    WriteError,
)
from headrace.tools.unpack import unpack

NAMESPACE = ["unshare", *([] if os.geteuid() == 0 else ["-r"]), "-m", "sh", "-c"]
ELSEWHERE = "Write into a folder that can be written"
UNPACK = """
import sys
import threading
from headrace.errors import WriteError
from headrace.tools.unpack import unpack
try:
    unpack([sys.argv[1]], to=sys.argv[2])
except WriteError as error:
    print(error)
"""


def on_mounted(mount: str, archive: Path, target: Path) -> str:
    """What is said of unpacking into `target`, on which `mount` puts another file system, and the names there then."""
    if subprocess.run([*NAMESPACE, "mount -t tmpfs none /mnt"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this system lets nobody mount anything (unshare -m)")
    script = f'{mount} && "$0" -c "$3" "$1" "$2" && find "$2" -type f'
    command = [*NAMESPACE, script, sys.executable, str(archive), str(target), UNPACK]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(source_paths())}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", ["w", "w:gz"])
@pytest.mark.long
def test_a_full_disk(tmp_path, target, how):
    target.mkdir()
    path = write_tar(tmp_path / "a.tar", [file(f"{number:02}", noise(100_000)) for number in range(20)], how=how)
    said = on_mounted('mount -t tmpfs -o size=1m none "$2"', path, target).splitlines()
    assert re.search(
        r"target/\d\d: could not be written: No space left on device\. Free space there and run it", said[0]
    )
    assert 5 <= len(said) - 1 <= 10


def test_a_read_only_file_system(tmp_path, target):
    target.mkdir()
    path = write_tar(tmp_path / "a.tar", [file("a", b"x")])
    said = on_mounted('mount -t tmpfs -o ro none "$2"', path, target)
    assert said == f"{target}: could not be locked: Read-only file system. Write into another folder\n"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "No space left on device. Free space there and run it again: what is complete is kept"),
        (errno.EDQUOT, "Disk quota exceeded. Free space, or ask for a larger quota"),
        (errno.EROFS, "Read-only file system. Write into a folder that can be written"),
        (errno.EACCES, "Permission denied. Write into a folder that you may write"),
        (errno.EPERM, "Operation not permitted. The file system does not allow it"),
        (errno.ENAMETOOLONG, "File name too long. The file system does not take names that long"),
        (errno.EFBIG, "File too large. The file system, or ulimit -f, does not allow files that large"),
        (errno.EXDEV, "Invalid cross-device link. Another file system is mounted below the target"),
        (errno.EIO, "Input/output error. Check the disk and run it again"),
    ],
)
def test_what_the_system_says_becomes_what_to_do(number, words):
    error = write_error(b"a/\xff", OSError(number, os.strerror(number)))
    assert isinstance(error, WriteError)
    assert str(error).startswith(f"a/\\xff: could not be written: {words}")


def test_a_target_that_is_a_file(tmp_path, target):
    target.write_bytes(b"x")
    with pytest.raises(
        WriteError, match=r"target: could not be written: Not a directory\. A file is where a folder should be"
    ):
        unpack([write_tar(tmp_path / "a.tar", [])], to=target)


def test_wrong_use(tmp_path, target):
    with pytest.raises(UsageError, match="threads: expected 1 or more, got 0"):
        unpack([tmp_path], to=target, threads=0)
    with pytest.raises(NotFoundError, match="/no/such: expected an archive, got nothing"):
        unpack(["/no/such"], to=target)
    with pytest.raises(DatasetError, match=r"expected an archive, got a folder or a special file\. Name tars"):
        unpack([tmp_path], to=target)
    assert not target.exists()


@pytest.mark.parametrize("content", [b"", b"no archive at all" * 100, b"PK\x03\x04 no zip"])
def test_what_is_no_archive(tmp_path, target, content):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(DatasetError, match=r"/a: .*Check it with `(tar -tf|unzip -t)`"):
        unpack([tmp_path / "a"], to=target)
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("how", ["w", "w:gz"])
@pytest.mark.parametrize("left", [0.2, 0.5, 0.9])
def test_a_tar_that_is_cut_short(tmp_path, target, how, left):
    path = write_tar(
        tmp_path / "a.tar", [file(f"{number}", noise(5_000, seed=number)) for number in range(30)], how=how
    )
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * left)])
    with pytest.raises(DatasetError, match=r"a\.tar: .*Check it with `tar -tf`"):
        unpack([path], to=target)
    for name, entry in tree(target).items():
        assert name == b"." or entry[1] == noise(5_000, seed=int(name))


def test_a_tar_that_becomes_shorter_meanwhile(tmp_path, target):
    path = write_tar(tmp_path / "a.tar", [file(f"{number}", noise(2_000)) for number in range(50)])

    def cut(_: object) -> None:
        os.truncate(path, 20_000)

    with pytest.raises(ChangedError, match=r"a\.tar: it has become shorter"):
        unpack([path], to=target, threads=1, tick=cut)
    assert all(entry[1] == noise(2_000) for name, entry in tree(target).items() if name != b".")


def test_a_compressed_tar_whose_checksum_is_wrong(tmp_path, target):
    """It comes last, when all files have their names."""
    path = write_tar(tmp_path / "a.tar.gz", [file("a", noise(1_000))], how="w:gz")
    raw = bytearray(path.read_bytes())
    raw[-8] ^= 1
    path.write_bytes(raw)
    with pytest.raises(
        DatasetError, match=r"a\.tar\.gz: CRC check failed .* into an empty folder: what was made of this"
    ):
        unpack([path], to=target)
    assert tree(target)[b"a"][1] == noise(1_000)


def test_a_compressed_tar_tells_how_far_it_is(tmp_path, target):
    """It is one piece of work, of which something must be heard before it ends."""
    path = write_tar(tmp_path / "a.tar.gz", [file(f"{number}", noise(100)) for number in range(3)], how="w:gz")
    ticked, opened = threading.Event(), gzip.open

    def open_late(where):
        assert ticked.wait(20)
        return opened(where)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gzip, "open", open_late)
        unpack([path], to=target, threads=1, tick=lambda _: ticked.set())


def test_a_zip_whose_bytes_are_wrong(tmp_path, target):
    path = write_zip(tmp_path / "a.zip", [("a", b"a" * 1000), ("b", noise(1000))], compression=0)
    raw = bytearray(path.read_bytes())
    raw[raw.index(noise(1000)) + 500] ^= 1
    path.write_bytes(raw)
    with pytest.raises(DamagedMemberError, match=r"a\.zip: member 'b': Bad CRC-32 for file 'b'.*unzip -t"):
        unpack([path], to=target, threads=1)
    assert names(target) == ["a"]


def test_a_zip_that_is_encrypted(tmp_path, target):
    path = write_zip(tmp_path / "a.zip", [("a", b"a" * 1000)])
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(raw)
    with pytest.raises(UnsupportedMemberError, match=r"a\.zip: member 'a': it is encrypted, or .*\. Unpack it with"):
        unpack([path], to=target)
    assert names(target) == []


def test_an_archive_that_cannot_be_read(tmp_path, target, monkeypatch):
    path = write_tar(tmp_path / "a.tar", [file(f"{number}", noise(2_000)) for number in range(5)])
    unpack([path], to=tmp_path / "before")  # its index is there

    def failing(*args: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", failing)
    monkeypatch.setattr("headrace.data.storage.open_file.pause", lambda _: None)
    with pytest.raises(ReadError, match=r"a\.tar at byte \d+: could not be read: Input/output error"):
        unpack([path], to=target, threads=2)
    assert names(target) == []


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.long
def test_ctrl_c_ends_it_at_once_and_leaves_nothing_half(tmp_path, target, threads):
    path = write_tar(tmp_path / "a.tar", [file(f"{number}", noise(3_000), mtime=MTIME) for number in range(400)])
    source = """
        import os, sys, time
        from headrace.tools.unpack import unpack
        from headrace.tools.unpack.archives import TarArchive
        pieces = TarArchive.pieces
        def slowly(archive, member):
            if member.name == "20":
                os.write(1, b"going\\n")  # print's lock, held as the interpreter ends, is a fatal error
            if int(member.name) > 20:
                time.sleep(0.05)  # a slow disk
            return pieces(archive, member)
        TarArchive.pieces = slowly
        unpack([sys.argv[1]], to=sys.argv[2], threads=int(sys.argv[3]))
    """
    code, _, said = interrupt_when_ready(source, path, target, threads)
    assert code != 0
    assert said.rstrip().endswith("KeyboardInterrupt")
    found = {name: entry for name, entry in tree(target).items() if name != b"."}
    assert 10 < len(found) < 400
    assert all(entry[:2] == ("file", noise(3_000)) for entry in found.values())


def test_an_error_in_one_thread_ends_the_others(tmp_path, target):
    members = ordinary(files=300)
    path = write_tar(tmp_path / "a.tar", members)
    (target / "data/class0/000.bin").mkdir(parents=True)
    with pytest.raises(WriteError, match=r"data/class0/000\.bin: expected nothing there"):
        unpack([path], to=target, threads=2)
    assert len(names(target)) < 300
