"""Reading again in Python: what may pass, what stays, after which pauses, and with a lost descriptor opened anew."""

from __future__ import annotations

import errno
import os
from itertools import pairwise
from pathlib import Path

import pytest
from memory_window import OFFSET, PATH, MemoryWindow, memory_window

import headrace.data as data
from headrace._core import RETRY_WAITS_S, may_pass
from headrace.data.storage import open_file
from headrace.data.storage.open_file import OpenFile, read_file, with_retries
from headrace.errors import ReadError

PASSING = [errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.ENETDOWN, errno.EREMOTEIO, errno.ENOTCONN]
LASTING = [errno.ENOENT, errno.EACCES, errno.EISDIR, errno.EPERM, errno.EBADF, errno.EINVAL, errno.EMFILE, errno.ELOOP]
ATTEMPTS = 1 + len(RETRY_WAITS_S)


@pytest.fixture(autouse=True)
def pauses(monkeypatch) -> list[float]:
    """Which were asked for; none is made."""
    asked: list[float] = []
    monkeypatch.setattr(open_file, "pause", asked.append)
    return asked


class Fails:
    """Raises these errors one after another, then returns."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self, *_: object) -> str:
        self.calls += 1
        if self.errors:
            code = self.errors.pop(0)
            raise OSError(code, os.strerror(code))
        return "read"


@pytest.mark.parametrize("code", PASSING, ids=errno.errorcode.get)
def test_what_may_pass_is_tried_again(pauses, code):
    read = Fails(code, code)
    assert with_retries(read) == "read"
    assert (read.calls, pauses) == (3, list(RETRY_WAITS_S[:2]))


@pytest.mark.parametrize("code", PASSING, ids=errno.errorcode.get)
def test_what_does_not_pass_is_raised_after_the_last_attempt(pauses, code):
    read = Fails(*[code] * 100)
    with pytest.raises(OSError, match=os.strerror(code)):
        with_retries(read)
    assert (read.calls, pauses) == (ATTEMPTS, list(RETRY_WAITS_S))


@pytest.mark.parametrize("code", LASTING, ids=errno.errorcode.get)
def test_what_lasts_is_raised_at_once(pauses, code):
    for read, calls in ((Fails(code), 1), (Fails(errno.EIO, code), 2)):
        with pytest.raises(OSError, match=os.strerror(code)):
            with_retries(read)
        assert read.calls == calls
    assert len(pauses) == 1


def test_pauses_grow():
    assert RETRY_WAITS_S[0] == 0.05
    assert [later / sooner for sooner, later in pairwise(RETRY_WAITS_S)] == pytest.approx([4] * 3)


def test_the_core_knows_the_same_errors():
    assert all(map(may_pass, PASSING))
    assert not any(map(may_pass, [0, *LASTING]))


@pytest.mark.parametrize("code", [errno.ESTALE, errno.ENOTCONN, errno.ESHUTDOWN], ids=errno.errorcode.get)
def test_a_lost_descriptor_is_opened_again(code):
    reopen = Fails(errno.EIO)  # which may fail as well
    assert with_retries(Fails(code), reopen=reopen) == "read"
    assert reopen.calls == 1
    assert with_retries(Fails(errno.EIO), reopen=reopen) == "read"
    assert reopen.calls == 1, "the descriptor was not lost"


def test_a_file_that_is_gone_cannot_be_opened_again():
    with pytest.raises(FileNotFoundError):
        with_retries(Fails(errno.ESTALE), reopen=Fails(errno.ENOENT))


# --- real files ---


def test_a_read_that_fails_for_good(pauses):
    file = OpenFile(PATH.encode())
    with pytest.raises(
        ReadError, match=rf"{PATH} at byte 0: could not be read: Input/output error, at each of 5 attempts;"
    ):
        file.read(0, 10)
    assert pauses == list(RETRY_WAITS_S)
    with pytest.raises(
        ReadError, match=r"Input/output error, at each of 5 attempts; check its permissions and the disk"
    ):
        read_file(PATH.encode())


def test_a_read_that_fails_at_first(monkeypatch):
    with memory_window() as window:
        opened = OpensAt(2, window)
        monkeypatch.setattr(open_file, "pause", opened)
        assert OpenFile(PATH.encode()).read(OFFSET, 5) == b"there"
        assert opened.pauses == 2


class OpensAt:
    """A pause that opens the window when it is made for the nth time."""

    def __init__(self, nth: int, window: MemoryWindow) -> None:
        self.nth, self.window = nth, window
        self.pauses = 0

    def __call__(self, _: float) -> None:
        self.pauses += 1
        if self.pauses == self.nth:
            self.window.open(b"there")


def test_a_missing_file_is_no_matter_of_patience(tmp_path, pauses):
    for read in (lambda: OpenFile(os.fsencode(tmp_path / "a")), lambda: read_file(os.fsencode(tmp_path / "a"))):
        with pytest.raises(ReadError, match="could not be read: No such file or directory; it is not there, or"):
            read()
    assert pauses == []


def test_a_stale_handle_is_replaced_under_its_number(tmp_path, monkeypatch):
    """As after a server has given the file another handle: other threads go on with the same descriptor."""
    path = tmp_path / "a"
    path.write_bytes(b"old")
    file = OpenFile(os.fsencode(path))
    number = file._handle
    path.unlink()
    path.write_bytes(b"new")
    pread, stale = os.pread, Fails(errno.ESTALE)

    def fails_once(*args: int) -> bytes:
        stale()
        return pread(*args)

    assert file.read(0, 3) == b"old"
    monkeypatch.setattr(os, "pread", fails_once)
    assert file.read(0, 3) == b"new"
    assert file._handle == number
    assert not os.get_inheritable(number)


def test_a_dataset_reads_again(tmp_path, monkeypatch, pauses):
    (tmp_path / "1.jpg").write_bytes(b"x")
    ds = data.open(tmp_path)
    failing = Fails(errno.EIO)
    opens = open

    def fails_once(*args: object, **options: object) -> object:
        failing()
        return opens(*args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr("builtins.open", fails_once)
    assert ds[0]["image"] == b"x"
    assert pauses == [RETRY_WAITS_S[0]]
    monkeypatch.undo()
    Path(ds.where("image", 0)[0]).unlink()
    with pytest.raises(ReadError, match="it is not there, or no longer"):
        ds.read("image", 0)
