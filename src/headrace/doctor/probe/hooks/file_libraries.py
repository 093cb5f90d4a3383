"""Files that are read while a batch is made: by `open`, pathlib, os, numpy and torch.

Outside of a batch nothing but one more call happens. Within one, a file opened for reading bytes is an
io.BufferedReader whose `read` is timed; its descriptor, mmap, pickle, numpy's reads and all else are those of an
io.BufferedReader. Text is not timed, nor what C libraries read by a path: that is a part of whatever asks for it. The
paths are counted (`opened`) of all that is opened to be read: io.open is what pathlib and zipfile open by.
"""

from __future__ import annotations

import builtins
import io
import os
import pathlib
import sys
from typing import TYPE_CHECKING, Any, Callable

from ..timed import Builtin
from .libraries import reads
from .libraries.paths import counted

if TYPE_CHECKING:
    from types import ModuleType

    from ..probe import Probe

_CHANGING = frozenset("wxa+")
_NOT_READING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_DIRECTORY | os.O_PATH


def install(probe: Probe, _: ModuleType) -> None:
    """Called with a module of torch, so that Python processes without it are left alone."""
    probe.patches.replace(builtins, "open", lambda original: Builtin(original, _opening(probe, original)))
    probe.patches.replace(io, "open", counted(probe, "file", is_reading))
    probe.patches.replace(os, "open", counted(probe, "path", _is_reading_descriptor))
    probe.time_calls(pathlib.Path, "read_bytes", "read", "file")
    probe.time_calls(pathlib.Path, "read_text", "read", "file")
    for name in ("pread", "preadv"):
        probe.time_calls(os, name, "read", f"os.{name}")


def install_numpy(probe: Probe, numpy: Any) -> None:
    for name in ("fromfile", "genfromtxt", "load", "loadtxt"):
        probe.time_calls(numpy, name, "read", f"numpy {name}")


def install_torch(probe: Probe, serialization: Any) -> None:
    probe.time_calls(serialization, "load", "read", "torch.load")


def is_reading(args: Any, kwargs: Any) -> bool:
    """Whether a call of `open` with these only reads."""
    mode = args[1] if len(args) > 1 else kwargs.get("mode", "r")
    return mode == "rb" or mode == "r" or (type(mode) is str and _CHANGING.isdisjoint(mode))


def _is_reading_descriptor(args: Any, kwargs: Any) -> bool:
    """The same of `os.open`."""
    flags = args[1] if len(args) > 1 else kwargs.get("flags", 0)
    return type(flags) is int and not flags & _NOT_READING and kwargs.get("dir_fd") is None


def _opening(probe: Probe, original: Callable[..., Any]) -> Callable[..., Any]:
    stages, stage, add = probe.stages, probe.stage("read", "file"), probe.batches.opened.add
    reader = _reader_class(probe, stage)

    def open_(*args: Any, **kwargs: Any) -> Any:
        if not stages.is_counting:
            return original(*args, **kwargs)
        if is_reading(args, kwargs):
            add(args[0] if args else kwargs.get("file"))
        account = stages.enter(stage)
        try:
            file = original(*args, **kwargs)
        finally:
            if account is not None:
                account.leave()
        is_usual = len(args) < 3 and "buffering" not in kwargs
        if is_usual and type(file) is io.BufferedReader and type(file.raw) is io.FileIO:
            raw: Any = file.detach()
            return reader(raw, _buffer_bytes(raw))
        return file

    return open_


def _reader_class(probe: Probe, stage: int) -> type[io.BufferedReader]:
    make = reads.timed_reads(probe, stage)

    class BufferedReader(io.BufferedReader):
        read = make(io.BufferedReader.read)
        readinto = make(io.BufferedReader.readinto)

    return BufferedReader


def _buffer_bytes(raw: Any) -> int:
    """What `open` itself takes."""
    block: int = getattr(raw, "_blksize", io.DEFAULT_BUFFER_SIZE)
    if sys.version_info >= (3, 14):
        return max(min(block, 8 << 20), io.DEFAULT_BUFFER_SIZE)
    return block if block > 1 else io.DEFAULT_BUFFER_SIZE
