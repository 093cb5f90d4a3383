"""Files read at offsets, with retries of transient failures of a disk, a network or a server."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol, TypeAlias, TypeVar

from headrace._core import RETRY_WAITS_S, loses_descriptor, may_pass, tar_header_check
from headrace.errors import ChangedError, ReadError

T = TypeVar("T")

RETRY_PAUSES_S = RETRY_WAITS_S
"""Pauses before further attempts, as in the core."""
pause = time.sleep

# Without O_NONBLOCK, opening a FIFO would wait for a writer.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_HEADER_BYTES = 512
_ANY_BYTES = 1 << 62


def with_retries(read: Callable[[], T], *, reopen: Callable[[], object] | None = None) -> T:
    """Return the result of `read`, in up to `1 + len(RETRY_PAUSES_S)` attempts; call `reopen` for a lost descriptor.

    Raises OSError: without a retry if it is permanent, such as a missing file, else after the last attempt.
    """
    waits_s = iter(RETRY_PAUSES_S)
    lost = False
    while True:
        try:
            if lost and reopen is not None:
                reopen()
            return read()
        except OSError as error:
            wait_s = next(waits_s, None)
            if wait_s is None or not _may_pass(error):
                raise
            lost = loses_descriptor(error.errno or 0)
        pause(wait_s)


def attempts_text(error: OSError) -> str:
    """Return the part of a message about the attempts that ended with this error; empty for a single attempt."""
    return f", at each of {len(RETRY_PAUSES_S) + 1} attempts" if _may_pass(error) else ""


def _may_pass(error: OSError) -> bool:
    return error.errno is not None and may_pass(error.errno)


class ReadableFile(Protocol):
    """Open file or object without a position, which threads and forked processes share without a lock."""

    path: bytes
    """Path or address, for messages."""

    def size(self) -> int:
        """Return the size in bytes. Raises ReadError."""
        ...

    @property
    def readings(self) -> tuple[ReadableFile, ...]:
        """Files to read in turn until the bytes are valid: an object in a store is read twice."""
        return (self,)

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes; fewer only at the end. Raises ReadError."""
        ...

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` up to the file's end, and return the number of bytes. Raises ReadError."""
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)


class StoredPath(Protocol):
    """Path of an object in a store; a plain string is the path of a local file."""

    @property
    def name(self) -> str:
        """Last part of the key, like a file name."""
        ...

    @property
    def folder(self) -> str:
        """Address of the object's prefix."""
        ...

    def open(self) -> ReadableFile:
        """Open the object, without any request yet."""
        ...

    def content_name(self) -> str | None:
        """Return a hex hash of the address and the content version; None if the store states no version."""
        ...


FilePath: TypeAlias = str | StoredPath
"""Absolute path of a local file, or an object in a store."""


def open_path(path: FilePath) -> ReadableFile:
    """Open a local file or an object. Raises ReadError for a local file."""
    return OpenFile(os.fsencode(path)) if isinstance(path, str) else path.open()


class FileStream(io.RawIOBase):
    """Open file or object with a position, for parsers; `ahead` holds ranges read in advance."""

    def __init__(self, file: ReadableFile, ahead: Sequence[tuple[int, bytes]] = ()) -> None:
        """Start at the first byte. `ahead`: first byte and content of ranges, which are not read again."""
        super().__init__()
        self._file, self._ahead = file, ahead
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at}.get(whence)
        self._at = max(0, (self._file.size() if begin is None else begin) + offset)
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the io module hands a memoryview
        """Fill `buffer` up to the file's end. Raises ReadError."""
        start, stop = self._at, self._at + len(buffer)
        held = next((each for each in self._ahead if each[0] <= start and stop <= each[0] + len(each[1])), None)
        if held is None:
            count = self._file.read_into(memoryview(buffer), start)  # a slice of a bytearray would be a copy
        else:
            buffer[:] = memoryview(held[1])[start - held[0] : stop - held[0]]
            count = len(buffer)
        self._at += count
        return count


def open_stream(path: FilePath) -> io.RawIOBase:
    """Open a local file or an object as a raw stream. Raises OSError for a local file."""
    return open(path, "rb", buffering=0) if isinstance(path, str) else FileStream(path.open())


def file_name(path: FilePath) -> str:
    return os.path.basename(path) if isinstance(path, str) else path.name


def folder_of(path: FilePath) -> str:
    """Return the folder, or the prefix in a store, of a file."""
    return os.path.dirname(path) if isinstance(path, str) else path.folder


class DescriptorOwner:
    """Owner of a file descriptor, which is closed with the last reference to the owner."""

    _descriptor: int | None = None

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    @property
    def _handle(self) -> int:
        assert self._descriptor is not None
        return self._descriptor


class OpenFile(DescriptorOwner):
    """Open file without a position, which threads and forked processes share without a lock.

    It is closed with the last reference to it, never during a read: the system reuses a descriptor's number
    immediately, and a late reader would get another file's bytes.
    """

    def __init__(self, path: bytes) -> None:
        """Open the file at `path`. Raises ReadError."""
        self.path = path
        try:
            self._descriptor = with_retries(lambda: os.open(path, _FLAGS))
        except OSError as error:
            raise read_error(path, 0, error) from error

    def __reduce__(self) -> NoReturn:
        raise TypeError("an open file belongs to its process and cannot be pickled")

    @property
    def readings(self) -> tuple[OpenFile, ...]:
        """Only the file itself: reading a disk again would not help."""
        return (self,)

    def size(self) -> int:
        """Return the file's current size in bytes. Raises ReadError."""
        return self.status().st_size

    def status(self) -> os.stat_result:
        """Return the file's current status. Raises ReadError."""
        return self.read_by(os.fstat)

    def read_by(self, read: Callable[[int], T], *, at: int = 0) -> T:
        """Return `read` of the descriptor, which it must not retain. Raises ReadError if it raises OSError."""
        try:
            return with_retries(lambda: read(self._handle), reopen=self._reopen)
        except OSError as error:
            raise read_error(self.path, at, error) from error

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes; fewer only at the end of the file. Raises ReadError."""
        parts = []
        # The kernel returns less than 2 GiB at a time.
        while length > 0 and (part := self._read_some(offset, length)):
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` up to the file's end, and return the number of bytes. Raises ReadError."""
        done = 0
        while done < len(buffer) and (got := self._read_some_into(buffer[done:], offset + done)):
            done += got
        return done

    def _read_some(self, offset: int, length: int) -> bytes:
        return self.read_by(lambda file: os.pread(file, length, offset), at=offset)

    def _read_some_into(self, buffer: memoryview, offset: int) -> int:
        return self.read_by(lambda file: os.preadv(file, [buffer], offset), at=offset)

    def _reopen(self) -> None:
        """Reopen under the same descriptor number, which other threads may be about to read from."""
        descriptor = os.open(self.path, _FLAGS)
        try:
            os.dup2(descriptor, self._handle, inheritable=False)
        finally:
            os.close(descriptor)

    def __str__(self) -> str:
        return printable_path(self.path)


def read_error(path: bytes, offset: int, error: OSError) -> ReadError:
    hint = (
        "it is not there, or no longer: check its path, or open the dataset again"
        if isinstance(error, FileNotFoundError)
        else "check its permissions and the disk"
    )
    why = f"{error.strerror}{attempts_text(error)}"
    return ReadError(f"{printable_path(path)} at byte {offset}: could not be read: {why}; {hint}")


def unreadable(name: str, error: OSError) -> ReadError:
    """Return the error for a file called `name` in messages."""
    return ReadError(f"{name}: could not be read: {error.strerror}. Check its permissions and the disk")


def printable_path(path: bytes) -> str:
    """Return a path for messages; file names need not be UTF-8."""
    return path.decode("utf-8", "backslashreplace")


def read_file(path: bytes) -> bytes:
    """Return all bytes of a file. Raises ReadError."""

    def read() -> bytes:
        with open(path, "rb", buffering=0) as file:
            return file.readall()

    try:
        return with_retries(read)
    except OSError as error:
        raise read_error(path, 0, error) from error


def read_path(path: FilePath) -> bytes:
    """Return all bytes of a local file or an object. Raises ReadError."""
    return read_file(os.fsencode(path)) if isinstance(path, str) else read_whole(path.open())


def read_whole(file: ReadableFile) -> bytes:
    """Return all bytes of an open file or object. Raises ReadError."""
    return read_file(file.path) if isinstance(file, OpenFile) else file.read(0, _ANY_BYTES)


def read_member(file: ReadableFile, offset: int, length: int, check: int | None, *, skip: int = 0) -> bytes:
    """Return `length` bytes of the data at `offset`, starting at its byte `skip`.

    `check`: expected `tar_header_check` of the tar header before the data; None: unchecked.

    Raises ReadError (transport) or ChangedError (the file is no longer the one that was indexed).
    """
    if check is None:
        return read_exactly(file, offset + skip, length)
    readings = file.readings
    for each in readings:
        if skip == 0 and len(readings) > 1:  # one request to a store: the header validates the response
            both = read_exactly(each, offset - _HEADER_BYTES, _HEADER_BYTES + length)
            header, data = both[:_HEADER_BYTES], both[_HEADER_BYTES:]
        else:  # a file's data is read in one piece, without a copy
            data = read_exactly(each, offset + skip, length)
            header = read_exactly(each, offset - _HEADER_BYTES, _HEADER_BYTES)
        if tar_header_check(header) == check:
            return data
    raise ChangedError(
        f"{file} at byte {offset}: the tar header there is not the one that was indexed: the file has changed. "
        f"Open it again"
    )


def read_exactly(file: ReadableFile, offset: int, length: int) -> bytes:
    """Return `length` bytes at `offset`. Raises ReadError, or ChangedError if there are fewer."""
    data = file.read(offset, length)
    if len(data) < length:
        raise ChangedError(
            f"{file} at byte {offset}: expected {length} bytes, got {len(data)}: the file has become shorter since it "
            f"was indexed. Open it again"
        )
    return data
