"""Hooks on libraries that read files and archives, and on waits for other threads and processes."""

from __future__ import annotations

import builtins
import functools
import io
import os
import pathlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

from ..stages import Builtin, Stages, stand_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..probe import Probe


# -- from doctor/probe/hooks/libraries/paths.py: Functions that open a file to read it by a path: while a batch is
# made, the path is counted.


PathFunction = Callable[..., Any]


def count_paths(probe: Probe, owner: Any, name: str, argument: str) -> bool:
    """Of `owner.name`, whose first argument, called `argument`, is a path. False where that cannot be done."""
    return probe.patches.replace(owner, name, counted(probe, argument))


def counted(probe: Probe, argument: str, reads: Callable[[Any, Any], bool] = lambda args, kwargs: True) -> PathFunction:
    """Makes a function that counts its path where `reads(args, kwargs)`, and does what it did."""
    stages, add = probe.stages, probe.batches.opened.add

    def make(original: PathFunction) -> PathFunction:
        def call(*args: Any, **kwargs: Any) -> Any:
            if stages.is_counting and reads(args, kwargs):
                add(args[0] if args else kwargs.get(argument))
            return original(*args, **kwargs)

        return stand_in(original, call)

    return make


# -- from doctor/probe/hooks/libraries/reads.py: Reads from file objects.


SMALL_BYTES = 4096
"""A read of less is a part of whatever asks for it: parsers read headers by the byte, and a clock costs more."""


def time_reads(probe: Probe, owner: type, label: str) -> None:
    """Counts `owner.read(size)` as a read."""
    probe.patches.replace(owner, "read", timed_reads(probe, probe.stage("read", label)))


def timed_reads(probe: Probe, stage: int) -> Callable[[Any], Any]:
    enter = probe.stages.enter

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


# -- from doctor/probe/hooks/libraries/files.py: Files that are read while a batch is made: by `open`, pathlib, os,
# numpy and torch.
#
# Outside of a batch nothing but one more call happens. Within one, a file opened for reading bytes is an
# io.BufferedReader whose `read` is timed; its descriptor, mmap, pickle, numpy's reads and all else are those of an
# io.BufferedReader. Text is not timed, nor what C libraries read by a path: that is a part of whatever asks for it.
# The
# paths are counted (`opened`) of all that is opened to be read: io.open is what pathlib and zipfile open by.


_CHANGING = frozenset("wxa+")
_NOT_READING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_DIRECTORY | os.O_PATH


def install_files(probe: Probe, _: ModuleType) -> None:
    """Called with a module of torch, so that Python processes without it are left alone."""
    probe.patches.replace(builtins, "open", lambda original: Builtin(original, _opening(probe, original)))
    probe.patches.replace(io, "open", counted(probe, "file", is_reading))
    probe.patches.replace(os, "open", counted(probe, "path", _reads_descriptor))
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


def _reads_descriptor(args: Any, kwargs: Any) -> bool:
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
    make = timed_reads(probe, stage)

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


# -- from doctor/probe/hooks/libraries/tars.py: tarfile. Names are looked up in a list, which the first look-up in a
# process fills by reading every header.


def install_tarfile(probe: Probe, tarfile: Any) -> None:
    tar = tarfile.TarFile
    # Its own name for `open`, which it took before ours was there.
    probe.patches.replace(tarfile, "bltn_open", counted(probe, "file", is_reading))
    for owner in (tarfile, tar):
        probe.time_calls(owner, "open", "scan", "tarfile open")
    probe.time_calls(tar, "__init__", "scan", "tarfile open")
    probe.time_calls(tar, "getmembers", "scan", "tarfile headers")
    probe.patches.replace(tar, "__iter__", _each_timed(probe.stages, probe.stage("scan", "tarfile headers")))
    probe.time_calls(tar, "getmember", "lookup", "tarfile member")
    probe.time_calls(tar, "extractfile", "lookup", "tarfile member")
    time_reads(probe, tarfile.ExFileObject, "tarfile")


def _each_timed(stages: Stages, stage: int) -> Callable[[Any], Any]:
    """Header by header, as a stream is read. Not by a hook on `next`, which a scan calls for each of its members."""

    def make(original: Any) -> Any:
        @functools.wraps(original)
        def __iter__(tar: Any) -> Iterator[Any]:  # noqa: N807
            members = original(tar)
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

        return __iter__

    return make


# -- from doctor/probe/hooks/libraries/zips.py: zipfile. The directory at a file's end is read when it is opened; a
# member's bytes are inflated as they are read.


def install_zipfile(probe: Probe, zipfile: Any) -> None:
    probe.time_calls(zipfile.ZipFile, "__init__", "scan", "zipfile directory")
    probe.time_calls(zipfile.ZipFile, "open", "lookup", "zipfile member")
    probe.time_calls(zipfile.ZipFile, "read", "read", "zipfile")
    time_reads(probe, zipfile.ZipExtFile, "zipfile")


# -- from doctor/probe/hooks/libraries/hdf5.py: h5py. A read decompresses whole chunks, so that a sample may cost many
# times its own bytes.


def install_hdf5_files(probe: Probe, files: Any) -> None:
    probe.patches.replace(files, "make_fid", counted(probe, "name", _hdf5_reads))
    probe.time_calls(files, "make_fid", "scan", "h5py open")


def _hdf5_reads(args: Any, kwargs: Any) -> bool:
    """h5py reads where no mode is given."""
    return (args[1] if len(args) > 1 else kwargs.get("mode")) in ("r", None)


def install_hdf5_groups(probe: Probe, group: Any) -> None:
    probe.time_calls(group.Group, "__getitem__", "lookup", "h5py group")


def install_hdf5_datasets(probe: Probe, dataset: Any) -> None:
    probe.time_calls(dataset.Dataset, "__getitem__", "read", "h5py")
    probe.time_calls(dataset.Dataset, "read_direct", "read", "h5py")


# -- from doctor/probe/hooks/libraries/lmdb.py: lmdb. The classes of its C build take no patch and no subclass, and a
# stand-in for its environment would be refused
# wherever lmdb itself is given one: there, only the lines of the user's code show it. Its cffi build is Python.


def install_lmdb(probe: Probe, lmdb: Any) -> None:
    for name in ("get", "getmulti"):
        for owner in (lmdb.Transaction, lmdb.Cursor):
            probe.time_calls(owner, name, "lookup", "lmdb")


# -- from doctor/probe/hooks/libraries/drop_ins.py: Headrace's own drop-ins for a dataset's code: one decode, one
# look-up, one read, as other libraries' are.


def install_decoding(probe: Probe, decoding: ModuleType) -> None:
    """Hook headrace.dropins.image_reader."""
    probe.time_calls(decoding, "decode_image", "decode", "headrace.decode_image")


def install_image_reader(probe: Probe, reader: ModuleType) -> None:
    """Hook headrace.dropins.image_reader."""
    probe.time_calls(reader.ImageReader, "__call__", "decode", "headrace.ImageReader")


def install_read_images(probe: Probe, batch: ModuleType) -> None:
    """Hook headrace.dropins.image_reader."""
    probe.time_calls(batch, "read_images", "decode", "headrace.read_images")


def install_indexed_archives(probe: Probe, archive: ModuleType) -> None:
    """Hook headrace.dropins.indexed_archive, the base of IndexedTar and IndexedZip."""
    probe.time_calls_by_type(archive.IndexedArchive, "read", "read")
    for name in ("getmember", "__contains__"):
        probe.time_calls_by_type(archive.IndexedArchive, name, "lookup")
    probe.time_calls_by_type(archive.IndexedArchive, "_open", "scan")


def install_indexed_tar(probe: Probe, tar: ModuleType) -> None:
    """Hook headrace.dropins.indexed_tar, whose open members read as they are asked."""
    probe.time_calls(tar.IndexedTar, "extractfile", "lookup", "IndexedTar")
    probe.time_calls(tar.IndexedTar, "_read_range", "read", "IndexedTar")


def install_indexed_zip(probe: Probe, archive: ModuleType) -> None:
    """Hook headrace.dropins.indexed_zip."""
    probe.time_calls(archive.IndexedZip, "extractfile", "read", "IndexedZip")
    probe.time_calls(archive.IndexedZip, "open", "read", "IndexedZip")


# -- from doctor/probe/hooks/libraries/waits.py: Waiting for other threads and processes, by what programs most often
# wait with.


def install_futures(probe: Probe, futures: Any) -> None:
    probe.time_calls(futures.Future, "result", "wait", "future")
    probe.time_calls(futures, "wait", "wait", "future")


def install_pool(probe: Probe, pool: Any) -> None:
    probe.time_calls(pool.ApplyResult, "get", "wait", "multiprocessing pool")


def install_locks(probe: Probe, fcntl: Any) -> None:
    for name in ("flock", "lockf"):
        probe.time_calls(fcntl, name, "wait", f"{name}")
