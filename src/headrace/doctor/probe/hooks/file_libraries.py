"""Hooks on libraries that read files and archives, and on waits for other threads and processes.

Outside a batch, a hook only adds one call. Within a batch, a file opened for reading bytes is an io.BufferedReader with
a timed `read`; its descriptor, mmap, pickle and numpy's reads are unchanged. Reads of text, and of C libraries by path,
are not timed: they are part of their caller. Paths of all files opened for reading are counted (`opened`), including
io.open, which pathlib and zipfile use.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import pathlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Callable

from ..batch_production import OpenedFiles
from ..patches import Builtin, Function, stand_in
from ..stages import CallTimer, Stages, timed, timed_by_type

TimedCall = tuple[Any, ...]
"""Dotted function of a module, category of its stage, and label, or None for the class name of a method's object.

Calls are timed whole, unless a fourth item is another decorator: `timed_reads` or `each_timed`.
"""
SMALL_BYTES = 4096
"""Minimum size of a timed read. Parsers read headers byte by byte, and the clock would cost more than the read."""
_CHANGING = frozenset("wxa+")
_NOT_READING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_DIRECTORY | os.O_PATH


def timed_reads(stages: Stages, stage: int) -> Callable[[Any], Any]:
    """Return a decorator for `read(size)`, or `read(amt=size)`, that counts it as a stage, unless it is small."""
    enter = stages.enter

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def read(self: Any, *args: Any, **kwargs: Any) -> Any:
            size = args[0] if args else kwargs.get("amt")
            is_small = type(size) is int and 0 <= size < SMALL_BYTES
            account = None if is_small else enter(stage)
            if account is None:
                return original(self, *args, **kwargs)
            try:
                return original(self, *args, **kwargs)
            finally:
                account.leave()

        return read

    return make


def each_timed(stages: Stages, stage: int) -> Callable[[Any], Any]:
    """Return a decorator that times a stream by item, not by `next`, which a tar's scan calls per member."""

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def stream(*args: Any, **kwargs: Any) -> Iterator[Any]:
            members = iter(original(*args, **kwargs))
            while True:
                account = stages.enter(stage)
                try:
                    member = next(members)
                except StopIteration:
                    return
                finally:
                    if account is not None:
                        account.leave()
                yield member

        return stream

    return make


FILE_CALLS: dict[str, list[TimedCall]] = {
    "tarfile": [  # the first look-up in a process reads every header into the list of names
        ("open", "scan", "tarfile open"),
        ("TarFile.open", "scan", "tarfile open"),
        ("TarFile.__init__", "scan", "tarfile open"),
        ("TarFile.getmembers", "scan", "tarfile headers"),
        ("TarFile.getmember", "lookup", "tarfile member"),
        ("TarFile.extractfile", "lookup", "tarfile member"),
        ("TarFile.__iter__", "scan", "tarfile headers", each_timed),
        ("ExFileObject.read", "read", "tarfile", timed_reads),
    ],
    "zipfile": [  # opening reads the directory at the file's end; reading a member inflates it
        ("ZipFile.__init__", "scan", "zipfile directory"),
        ("ZipFile.open", "lookup", "zipfile member"),
        ("ZipFile.read", "read", "zipfile"),
        ("ZipExtFile.read", "read", "zipfile", timed_reads),
    ],
    # A read decompresses whole chunks, so a sample may cost many times its own bytes.
    "h5py._hl.files": [("make_fid", "scan", "h5py open")],
    "h5py._hl.group": [("Group.__getitem__", "lookup", "h5py group")],
    "h5py._hl.dataset": [("Dataset.__getitem__", "read", "h5py"), ("Dataset.read_direct", "read", "h5py")],
    "numpy": [
        *((name, "read", f"numpy {name}") for name in ("fromfile", "load")),
        *((name, "parse", f"numpy.{name}") for name in ("genfromtxt", "loadtxt")),
    ],
    "json": [("loads", "parse", "json")],  # which `load` calls, too
    "csv": [("DictReader.__next__", "parse", "csv.DictReader")],
    "pandas.io.parsers.readers": [(name, "parse", f"pandas.{name}") for name in ("read_csv", "read_table")],
    "torch.serialization": [("load", "read", "torch.load")],
    # The usual ways for programs to wait for other threads and processes.
    "concurrent.futures._base": [("Future.result", "wait", "future"), ("wait", "wait", "future")],
    "multiprocessing.pool": [("ApplyResult.get", "wait", "multiprocessing pool")],
    "fcntl": [("flock", "wait", "flock"), ("lockf", "wait", "lockf")],
    # Headrace's drop-ins for dataset code, with the same stages as other libraries.
    "headrace.dropins.image_reader": [
        ("decode_image", "decode", "headrace.decode_image"),
        ("ImageReader.__call__", "decode", "headrace.ImageReader"),
        ("read_images", "decode", "headrace.read_images"),
    ],
    "headrace.dropins.indexed_archive": [
        ("IndexedArchive.read", "read", None),
        ("IndexedArchive.getmember", "lookup", None),
        ("IndexedArchive.__contains__", "lookup", None),
        ("IndexedArchive._open", "scan", None),
    ],
    "headrace.dropins.indexed_tar": [  # open members read on request
        ("IndexedTar.extractfile", "lookup", "IndexedTar"),
        ("IndexedTar._read_range", "read", "IndexedTar"),
    ],
    "headrace.dropins.indexed_zip": [
        ("IndexedZip.extractfile", "read", "IndexedZip"),
        ("IndexedZip.open", "read", "IndexedZip"),
    ],
}
"""Calls that are stages, by the module that defines them."""


def time_calls(timer: CallTimer, calls: list[TimedCall], module: ModuleType) -> None:
    """Count calls of a module's functions as stages. Versions may lack some; if all are missing, note it."""
    is_known = False
    for path, category, label, *decorator in calls:
        if label is None:
            make = timed_by_type(timer, category)
        else:
            make = (decorator[0] if decorator else timed)(timer.stages, timer.stage(category, label))
        is_known |= timer.patches.replace(module, path, make)
    if calls and not is_known:
        timer.patches.unknown(f"{module.__name__}.{calls[0][0]}", "its calls were")


def counted(
    stages: Stages, opened: OpenedFiles, argument: str, reads: Callable[[Any, Any], bool] = lambda args, kwargs: True
) -> Callable[[Function], Function]:
    """Return a decorator that counts the path `argument` of an open in a batch if `reads(args, kwargs)`."""
    add = opened.add

    def make(original: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            if stages.is_counting and reads(args, kwargs):
                add(args[0] if args else kwargs.get(argument))
            return original(*args, **kwargs)

        return stand_in(original, call)

    return make


def install_files(timer: CallTimer, opened: OpenedFiles, _: ModuleType) -> None:
    """Hook Python's file opening. Called with a torch module, so processes without torch are unaffected."""
    patches, stages = timer.patches, timer.stages
    patches.replace(builtins, "open", lambda original: Builtin(original, _opening(timer, opened, original)))
    patches.replace(io, "open", counted(stages, opened, "file", is_reading))
    patches.replace(os, "open", counted(stages, opened, "path", reads_descriptor))
    time_calls(timer, [(f"Path.{name}", "read", "file") for name in ("read_bytes", "read_text")], pathlib)
    time_calls(timer, [(name, "read", f"os.{name}") for name in ("pread", "preadv")], os)


def is_reading(args: Any, kwargs: Any) -> bool:
    """Return True if a call of `open` with these arguments only reads."""
    mode = args[1] if len(args) > 1 else kwargs.get("mode", "r")
    return mode == "rb" or mode == "r" or (type(mode) is str and _CHANGING.isdisjoint(mode))


def reads_descriptor(args: Any, kwargs: Any) -> bool:
    """Return True if a call of `os.open` with these arguments only reads."""
    flags = args[1] if len(args) > 1 else kwargs.get("flags", 0)
    return type(flags) is int and not flags & _NOT_READING and kwargs.get("dir_fd") is None


def _opening(timer: CallTimer, opened: OpenedFiles, original: Function) -> Function:
    stages, stage, add = timer.stages, timer.stage("read", "file"), opened.add
    make = timed_reads(stages, stage)

    class BufferedReader(io.BufferedReader):
        read = make(io.BufferedReader.read)
        readinto = make(io.BufferedReader.readinto)

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
            return BufferedReader(raw, _buffer_bytes(raw))
        return file

    return open_


def _buffer_bytes(raw: Any) -> int:
    """Return the buffer size that `open` itself uses."""
    block: int = getattr(raw, "_blksize", io.DEFAULT_BUFFER_SIZE)
    if sys.version_info >= (3, 14):
        return max(min(block, 8 << 20), io.DEFAULT_BUFFER_SIZE)
    return block if block > 1 else io.DEFAULT_BUFFER_SIZE


def install_tarfile(timer: CallTimer, opened: OpenedFiles, tarfile: Any) -> None:
    """Count members, and files that tarfile opens by its alias of `open`, which it bound before the hook."""
    timer.patches.replace(tarfile, "bltn_open", counted(timer.stages, opened, "file", is_reading))

    def noted(original: Function) -> Function:
        def extractfile(archive: Any, member: Any) -> Any:
            if timer.stages.is_counting:
                opened.add(f"{archive.name}/{getattr(member, 'name', member)}")
            return original(archive, member)

        return stand_in(original, extractfile)

    timer.patches.replace(tarfile, "TarFile.extractfile", noted)


def install_hdf5(timer: CallTimer, opened: OpenedFiles, files: Any) -> None:
    """Count files that h5py opens for reading, its default mode."""

    def reads(args: Any, kwargs: Any) -> bool:
        return (args[1] if len(args) > 1 else kwargs.get("mode")) in ("r", None)

    timer.patches.replace(files, "make_fid", counted(timer.stages, opened, "name", reads))
