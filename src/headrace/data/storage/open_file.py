"""A file that is read at given offsets only."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NoReturn, TypeVar

from headrace.data.retrying import attempts_text, patiently
from headrace.errors import ReadError

# Without O_NONBLOCK, opening a FIFO would wait for a writer.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK

T = TypeVar("T")


class OpenFile:
    """An open file without a position, so that threads and forked processes share it without a lock.

    It is closed with the last reference to it, never under a reader's hands: a descriptor's number goes at once to
    whatever is opened next, and a reader that still used it would get that file's bytes.
    """

    def __init__(self, path: bytes) -> None:
        """Raises ReadError."""
        self._descriptor: int | None = None
        self.path = path
        try:
            self._descriptor = patiently(lambda: os.open(path, _FLAGS))
        except OSError as error:
            raise unreadable(path, 0, error) from error

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an open file belongs to its process and cannot be pickled")

    def size(self) -> int:
        """Bytes in the file now. Raises ReadError."""
        return self.status().st_size

    def status(self) -> os.stat_result:
        """What the system says of the file now. Raises ReadError."""
        return self.read_by(os.fstat)

    def read_by(self, read: Callable[[int], T]) -> T:
        """What `read` makes of the descriptor, which it must not keep. Raises ReadError where it raises OSError."""
        try:
            return patiently(lambda: read(self._handle), reopen=self._reopen)
        except OSError as error:
            raise unreadable(self.path, 0, error) from error

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file. Raises ReadError."""
        parts = []
        try:
            # The kernel gives less than 2 GiB at a time.
            while length > 0 and (part := self._read_some(offset, length)):
                parts.append(part)
                offset += len(part)
                length -= len(part)
        except OSError as error:
            raise unreadable(self.path, offset, error) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fills `buffer` as far as the file goes, and returns how many bytes that are. Raises ReadError."""
        done = 0
        try:
            while done < len(buffer) and (got := self._read_some_into(buffer[done:], offset + done)):
                done += got
        except OSError as error:
            raise unreadable(self.path, offset + done, error) from error
        return done

    def _read_some_into(self, buffer: memoryview, offset: int) -> int:
        return patiently(lambda: os.preadv(self._handle, [buffer], offset), reopen=self._reopen)

    def _read_some(self, offset: int, length: int) -> bytes:
        return patiently(lambda: os.pread(self._handle, length, offset), reopen=self._reopen)

    def _reopen(self) -> None:
        """Under the same number, which other threads may be about to read from."""
        descriptor = os.open(self.path, _FLAGS)
        try:
            os.dup2(descriptor, self._handle, inheritable=False)
        finally:
            os.close(descriptor)

    def __str__(self) -> str:
        return path_text(self.path)

    @property
    def _handle(self) -> int:
        assert self._descriptor is not None
        return self._descriptor


def unreadable(path: bytes, offset: int, error: OSError) -> ReadError:
    hint = (
        "it is not there, or no longer: check its path, or open the dataset again"
        if isinstance(error, FileNotFoundError)
        else "check its permissions and the disk"
    )
    why = f"{error.strerror}{attempts_text(error)}"
    return ReadError(f"{path_text(path)} at byte {offset}: could not be read: {why}; {hint}")


def path_text(path: bytes) -> str:
    """As messages have it: names need not be UTF-8."""
    return path.decode("utf-8", "backslashreplace")
