"""Sources of one encoded image (a path, bytes in memory, or a binary file) and their errors."""

from __future__ import annotations

import contextlib
import io
import os
from typing import Protocol, TypeAlias

from headrace._core import Code
from headrace.data import attempts_text, with_retries
from headrace.errors import HeadraceError, LimitError, NotFoundError, ReadError, SampleError, UsageError
from headrace.loader import error_at


class BinaryFile(Protocol):
    """Any object with `read`, such as `open(path, "rb")`, `io.BytesIO`, or an archive member."""

    def read(self, size: int, /) -> bytes: ...


ImageSource: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryFile


def path_of(path: str | os.PathLike[str]) -> bytes:
    """Encode a path for the file system. Unlike in `os`, bytes are an image's content, never a path."""
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise UsageError(f"expected a path, got one with a zero byte: {path!r}; give an image's own bytes as bytes")
    return encoded


def read_path(path: str | os.PathLike[str]) -> bytes:
    """Read the file's bytes. Raises ReadError."""

    def read() -> bytes:
        with open(path, "rb") as file:
            return file.read()

    try:
        return with_retries(read)
    except OSError as error:
        why = f"{error}{attempts_text(error)}"
        raise ReadError(f"{os.fsdecode(path)}: {why}; is the file still there, and readable?") from error


def content_of(source: bytes | bytearray | memoryview | BinaryFile, max_bytes: int) -> memoryview:
    """Return the encoded image, without a copy if it is already in memory.

    A file is read from its start to its end, as in Pillow; an unseekable file from its current position. Raises
    UsageError for anything but an image source, LimitError beyond `max_bytes`, and the errors of `read`.
    """
    try:
        view = memoryview(source)  # type: ignore[arg-type]  # what has no buffer says so
    except TypeError:
        view = memoryview(_read(source, max_bytes))  # type: ignore[arg-type]  # `_read` checks
    if view.ndim != 1 or view.itemsize != 1:
        raise UsageError(
            f"expected the bytes of an encoded image, got an array of shape {view.shape}, format {view.format!r}; "
            "decoded pixels need no decoding"
        )
    if view.nbytes > max_bytes:
        key, shard = origin_of(source)
        why = (
            f"{view.nbytes:,} bytes or more, above max_file_bytes={max_bytes}; raise it with "
            "limits=headrace.Limits(...) if you trust the file"
        )
        raise LimitError(why, key=key, shard=shard, offset=None, field="image")
    return view if view.c_contiguous else memoryview(bytes(view))


def origin_of(source: ImageSource) -> tuple[str, str]:
    """Return the source's key and location for error messages."""
    if isinstance(source, str | os.PathLike):
        return os.fsdecode(source), os.path.abspath(os.fsdecode(source))
    try:
        return f"{memoryview(source).nbytes:,} bytes", "in memory"  # type: ignore[arg-type]  # as in `content_of`
    except TypeError:
        name = getattr(source, "name", None)
        kind = type(source).__name__
        return (name if isinstance(name, str) else kind), f"a file object, {kind}"


def _read(file: BinaryFile, max_bytes: int) -> bytes:
    """Read a file completely, but at most one byte beyond the limit. Handles short reads of unbuffered files."""
    if not hasattr(file, "read"):
        raise UsageError(
            "expected a path, the bytes of an image, or a binary file with read(), got "
            f"{type(file).__module__}.{type(file).__qualname__}"
        )
    with contextlib.suppress(AttributeError, io.UnsupportedOperation):
        file.seek(0)  # type: ignore[attr-defined]  # not every file has it
    parts: list[bytes] = []
    left = max_bytes + 1
    while left > 0 and (part := file.read(left)):
        if not isinstance(part, bytes | bytearray | memoryview):
            raise UsageError(f"expected read() to give bytes, got {type(part).__name__}; open the file in mode 'rb'")
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def error_for(source: ImageSource, code: int, why: str) -> HeadraceError:
    """Return the exception for a failure of this source. Its `key` is the path or a description."""
    key, shard = origin_of(source)
    if code == Code.IO and isinstance(source, str | os.PathLike) and _is_missing(source):
        return NotFoundError(f"expected an image at {shard}, got nothing under that name; check the path")
    return error_at(code, why, key=key, shard=shard, offset=None, field="image")


def at_item(error: HeadraceError, item: int) -> HeadraceError:
    """Return a copy of the error with the item's index in `sources` added."""
    if isinstance(error, SampleError):
        why = f"sources[{item}]: {error.why}"
        return type(error)(why, key=error.key, shard=error.shard, offset=error.offset, field=error.field)
    return type(error)(f"sources[{item}]: {error}")


def _is_missing(path: str | os.PathLike[str]) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
