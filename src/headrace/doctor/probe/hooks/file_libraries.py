"""Hooks on libraries that read files and archives, and on waits for other threads and processes.

Outside of a batch nothing but one more call happens. Within one, a file opened for reading bytes is an
io.BufferedReader whose `read` is timed; its descriptor, mmap, pickle, numpy's reads and all else are those of an
io.BufferedReader. Text is not timed, nor what C libraries read by a path: that is a part of whatever asks for it. The
paths are counted (`opened`) of all that is opened to be read: io.open is what pathlib and zipfile open by.
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

from ..opened_files import OpenedFiles
from ..patches import Builtin, Function, stand_in
from ..stages import CallTimer, Stages

TimedCall = tuple[str, str, "str | None"]
"""A function of a module, dotted, the category of its stage, and its label: None for the class of a method's object."""
FILE_CALLS: dict[str, list[TimedCall]] = {
    "tarfile": [  # names are looked up in a list, which the first look-up in a process fills by reading every header
        ("open", "scan", "tarfile open"),
        ("TarFile.open", "scan", "tarfile open"),
        ("TarFile.__init__", "scan", "tarfile open"),
        ("TarFile.getmembers", "scan", "tarfile headers"),
        ("TarFile.getmember", "lookup", "tarfile member"),
        ("TarFile.extractfile", "lookup", "tarfile member"),
    ],
    "zipfile": [  # the directory at a file's end is read when it is opened; a member is inflated as it is read
        ("ZipFile.__init__", "scan", "zipfile directory"),
        ("ZipFile.open", "lookup", "zipfile member"),
        ("ZipFile.read", "read", "zipfile"),
    ],
    # A read decompresses whole chunks, so that a sample may cost many times its own bytes.
    "h5py._hl.files": [("make_fid", "scan", "h5py open")],
    "h5py._hl.group": [("Group.__getitem__", "lookup", "h5py group")],
    "h5py._hl.dataset": [("Dataset.__getitem__", "read", "h5py"), ("Dataset.read_direct", "read", "h5py")],
    # The classes of its C build take no patch and no subclass, and a stand-in for its environment would be refused
    # wherever lmdb itself is given one: there, only the lines of the user's code show it. Its cffi build is Python.
    "lmdb": [
        (f"{owner}.{name}", "lookup", "lmdb") for name in ("get", "getmulti") for owner in ("Transaction", "Cursor")
    ],
    "numpy": [(name, "read", f"numpy {name}") for name in ("fromfile", "genfromtxt", "load", "loadtxt")],
    "torch.serialization": [("load", "read", "torch.load")],
    # What programs most often wait with for other threads and processes.
    "concurrent.futures._base": [("Future.result", "wait", "future"), ("wait", "wait", "future")],
    "multiprocessing.pool": [("ApplyResult.get", "wait", "multiprocessing pool")],
    "fcntl": [("flock", "wait", "flock"), ("lockf", "wait", "lockf")],
    # Headrace's own drop-ins for a dataset's code: one decode, one look-up, one read, as other libraries' are.
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
    "headrace.dropins.indexed_tar": [  # open members read as they are asked
        ("IndexedTar.extractfile", "lookup", "IndexedTar"),
        ("IndexedTar._read_range", "read", "IndexedTar"),
    ],
    "headrace.dropins.indexed_zip": [
        ("IndexedZip.extractfile", "read", "IndexedZip"),
        ("IndexedZip.open", "read", "IndexedZip"),
    ],
}
"""Calls that are stages, by the module that defines them."""
SMALL_BYTES = 4096
"""A read of less is a part of whatever asks for it: parsers read headers by the byte, and a clock costs more."""
_CHANGING = frozenset("wxa+")
_NOT_READING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_DIRECTORY | os.O_PATH


def time_calls(timer: CallTimer, calls: list[TimedCall], module: ModuleType) -> None:
    """Count calls of a module's functions as stages. Versions lack one or the other; without any nothing is seen."""
    is_known = False
    for path, category, label in calls:
        *outer, name = path.split(".")
        owner: Any = module
        for part in outer:
            owner = getattr(owner, part, None)
        if not hasattr(owner, name) or owner is None:
            continue
        is_known = True
        if label is None:
            timer.time_by_type(owner, name, category)
        else:
            timer.time(owner, name, category, label)
    if calls and not is_known:
        timer.patches.unknown(f"{module.__name__}.{calls[0][0]}", "its calls were")


def counted(
    stages: Stages, opened: OpenedFiles, argument: str, reads: Callable[[Any, Any], bool] = lambda args, kwargs: True
) -> Callable[[Function], Function]:
    """Return what makes a function that counts the path that it opens, and does what it did.

    The path is its first argument, called `argument`; it counts where `reads(args, kwargs)`, while a batch is produced.
    """
    add = opened.add

    def make(original: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            if stages.is_counting and reads(args, kwargs):
                add(args[0] if args else kwargs.get(argument))
            return original(*args, **kwargs)

        return stand_in(original, call)

    return make


def timed_reads(stages: Stages, stage: int) -> Callable[[Any], Any]:
    """Return what makes a `read(size)` that counts as a stage, unless it is small."""
    enter = stages.enter

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def read(self: Any, *size: Any) -> Any:
            if size and type(size[0]) is int and 0 <= size[0] < SMALL_BYTES:
                return original(self, *size)
            account = enter(stage)
            if account is None:
                return original(self, *size)
            try:
                return original(self, *size)
            finally:
                account.leave()

        return read

    return make


def install_files(timer: CallTimer, opened: OpenedFiles, _: ModuleType) -> None:
    """Hook how Python opens files. Called with a module of torch, so that processes without it are left alone."""
    patches, stages = timer.patches, timer.stages
    patches.replace(builtins, "open", lambda original: Builtin(original, _opening(timer, opened, original)))
    patches.replace(io, "open", counted(stages, opened, "file", is_reading))
    patches.replace(os, "open", counted(stages, opened, "path", reads_descriptor))
    timer.time(pathlib.Path, "read_bytes", "read", "file")
    timer.time(pathlib.Path, "read_text", "read", "file")
    for name in ("pread", "preadv"):
        timer.time(os, name, "read", f"os.{name}")


def is_reading(args: Any, kwargs: Any) -> bool:
    """Tell whether a call of `open` with these only reads."""
    mode = args[1] if len(args) > 1 else kwargs.get("mode", "r")
    return mode == "rb" or mode == "r" or (type(mode) is str and _CHANGING.isdisjoint(mode))


def reads_descriptor(args: Any, kwargs: Any) -> bool:
    """Tell whether a call of `os.open` with these only reads."""
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
    """Return the buffer that `open` itself takes."""
    block: int = getattr(raw, "_blksize", io.DEFAULT_BUFFER_SIZE)
    if sys.version_info >= (3, 14):
        return max(min(block, 8 << 20), io.DEFAULT_BUFFER_SIZE)
    return block if block > 1 else io.DEFAULT_BUFFER_SIZE


def install_tarfile(timer: CallTimer, opened: OpenedFiles, tarfile: Any) -> None:
    """Hook what tarfile opens, iterates and reads."""
    # Its own name for `open`, which it took before ours was there.
    timer.patches.replace(tarfile, "bltn_open", counted(timer.stages, opened, "file", is_reading))
    headers = each_timed(timer.stages, timer.stage("scan", "tarfile headers"))
    timer.patches.replace(tarfile.TarFile, "__iter__", headers)
    timer.patches.replace(tarfile.ExFileObject, "read", timed_reads(timer.stages, timer.stage("read", "tarfile")))


def each_timed(stages: Stages, stage: int) -> Callable[[Any], Any]:
    """Time a stream item by item: a tar's headers, not by a hook on `next`, which a scan calls for each member."""

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


def install_zipfile(timer: CallTimer, zipfile: Any) -> None:
    """Hook reads of a member."""
    timer.patches.replace(zipfile.ZipExtFile, "read", timed_reads(timer.stages, timer.stage("read", "zipfile")))


def install_hdf5(timer: CallTimer, opened: OpenedFiles, files: Any) -> None:
    """Count files that h5py opens to read, as it does where no mode is given."""

    def reads(args: Any, kwargs: Any) -> bool:
        return (args[1] if len(args) > 1 else kwargs.get("mode")) in ("r", None)

    timer.patches.replace(files, "make_fid", counted(timer.stages, opened, "name", reads))
