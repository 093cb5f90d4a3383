"""The bytes of a text manifest, checked while they are read: UTF-8, without NUL bytes, in lines of bounded length."""

from __future__ import annotations

import codecs
import io
import os

from headrace.errors import DatasetError, ReadError

MAX_LINE_BYTES = 8 << 20
"""Longer lines are no manifest's: memory is bounded by this, whatever the file."""

READ_BYTES = 1 << 20
"""A good size for a buffer over `CheckedText`, which costs something a read."""
_UTF8_MARK = codecs.BOM_UTF8
_MARK_BYTES = 4
_OTHER_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # before UTF-16: it begins with the same two bytes
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


class CheckedText(io.RawIOBase):
    """The file at `path` from its first character on: a byte-order mark of UTF-8 is passed over.

    Reading raises DatasetError, with the line, at what is no text, and ReadError.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._name = os.path.basename(path)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._unfinished = 0  # bytes of the line that the last block ended in
        self.line_ends = 0
        self._start = io.BytesIO()
        try:
            self._file = open(path, "rb", buffering=0)  # noqa: SIM115  # closed by `close`
        except OSError as error:
            raise self._unreadable(error) from error
        try:
            self._begin()
        except BaseException:
            self._file.close()
            raise

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the io module hands a memoryview
        try:
            count = self._start.readinto(buffer) or self._file.readinto(buffer)
        except OSError as error:
            raise self._unreadable(error) from error
        assert count is not None, "no file on a disk is non-blocking"
        self._check(bytes(buffer[:count]))
        return count

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

    @property
    def lines(self) -> int:
        """Lines read so far; one that the file ends in without a line end counts."""
        return self.line_ends + (self._unfinished > 0)

    def _begin(self) -> None:
        start = self._file.read(_MARK_BYTES)
        for mark, encoding in _OTHER_MARKS.items():
            if start.startswith(mark):
                raise DatasetError(
                    f"{self._name}: expected UTF-8, got {encoding} (its byte-order mark). Convert it: "
                    f"iconv -f {encoding} -t UTF-8 {self._name}"
                )
        self._start.write(start.removeprefix(_UTF8_MARK))
        self._start.seek(0)

    def _check(self, block: bytes) -> None:
        """`block` is empty at the end of the file."""
        if b"\0" in block:
            line = self._line_of(block, block.index(b"\0"))
            raise DatasetError(f"{self._name} line {line}: expected text, got a NUL byte. Is it UTF-16, or binary?")
        pending = self._decoder.getstate()[0]
        try:
            if pending or not block or not block.isascii():
                self._decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            at = max(0, error.start - len(pending))
            raise DatasetError(
                f"{self._name} line {self._line_of(block, at)}: expected UTF-8, got the byte "
                f"0x{error.object[error.start]:02x}. Convert it, if it is Latin 1 for example: "
                f"iconv -f LATIN1 -t UTF-8 {self._name}"
            ) from None
        first, last = block.find(b"\n"), block.rfind(b"\n")
        if self._unfinished + (first if first >= 0 else len(block)) > MAX_LINE_BYTES:
            raise DatasetError(
                f"{self._name} line {self.line_ends + 1}: expected at most {MAX_LINE_BYTES:,} bytes a line, got more. "
                f"Is it a manifest?"
            )
        self.line_ends += block.count(b"\n")
        self._unfinished = len(block) - last - 1 if last >= 0 else self._unfinished + len(block)

    def _line_of(self, block: bytes, at: int) -> int:
        return self.line_ends + block.count(b"\n", 0, at) + 1

    def _unreadable(self, error: OSError) -> ReadError:
        return ReadError(f"{self._name}: could not be read: {error.strerror}; check its permissions and the disk")
