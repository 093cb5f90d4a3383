"""Remedies for files: an index in place of tarfile's scan, and copies on a faster disk."""

from __future__ import annotations

import builtins
import functools
import io
import os
import tarfile
from typing import TYPE_CHECKING, Any, Callable

from ..stages import Builtin
from .loaders import AppliedRemedy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from ..probe import Probe


# -- from doctor/probe/remedies/indexed_tar.py: An index of an archive's members in place of what tarfile does: no
# scan of all headers, no search in a list.
#
# The `TarFile` stays the user's, with its file and its way to read; only the list of its members, and the answer to a
# name, come from headrace's index, which is kept in the session's folder and shared by all processes.


_LINKS = (tarfile.LNKTYPE, tarfile.SYMTYPE)
"""To follow one, older Pythons look it up in their own list of members."""
_INDEX = "_headrace_index"
"""Attribute of a TarFile: what answers in its place; None where that is not certain to answer the same."""


def install_indexed_tar(probe: Probe, _: bool, applied: AppliedRemedy) -> None:
    tars = _Tars(os.path.join(probe.settings.folder, "tars"), applied)
    probe.when_imported("tarfile", tars.watch)


class _Tars:
    def __init__(self, cache: str, applied: AppliedRemedy) -> None:
        self._cache = cache
        self._applied = applied
        self._known: dict[tuple[Any, ...], Any] = {}
        """Indices, by path, size and time of their tars: inherited by a fork, since they are read by offset."""
        self._find, self._fill = applied.guarded(self._find_member), applied.guarded(self._fill_members)

    def watch(self, probe: Probe, module: Any) -> None:
        tar = module.TarFile
        probe.patches.replace(tar, "getmember", self.getmember)
        probe.patches.replace(tar, "getmembers", self.getmembers)
        probe.patches.replace(tar, "__iter__", self.iter)

    def getmember(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def getmember(tar: Any, name: str) -> Any:
            member = self._find(tar, name)
            return original(tar, name) if member is None else member

        return getmember

    def getmembers(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def getmembers(tar: Any) -> Any:
            self._fill(tar)
            return original(tar)

        return getmembers

    def iter(self, original: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        @functools.wraps(original)
        def __iter__(tar: Any) -> Iterator[Any]:  # noqa: N807
            self._fill(tar)
            return original(tar)

        return __iter__

    def _find_member(self, tar: Any, name: str) -> Any:
        """None for what the index does not have under just that name: tarfile then says so in its own way."""
        index = self._index(tar)
        name = name.rstrip("/")
        if index is None or name not in index:
            return None
        member = index.getmember(name)
        if member.name != name or member.type in _LINKS:
            return None
        self._applied.took()
        return tar_info(tar, member)

    def _fill_members(self, tar: Any) -> None:
        """All members, as if every header had been read; nothing where some have been already."""
        if tar._loaded or len(tar.members) > 1:
            return
        index = self._index(tar)
        if index is None:
            return
        tar.members = [tar_info(tar, member) for member in index]
        tar.firstmember = None
        tar.offset = os.fstat(tar.fileobj.fileno()).st_size
        tar._loaded = True
        self._applied.took()

    def _index(self, tar: Any) -> Any:
        if not hasattr(tar, _INDEX):
            setattr(tar, _INDEX, None)  # also while it is made, and where that fails
            setattr(tar, _INDEX, self._indexed(tar))
        return getattr(tar, _INDEX)

    def _indexed(self, tar: Any) -> Any:
        if not _is_plain(tar):
            return None
        status = os.fstat(tar.fileobj.fileno())
        key = (tar.fileobj.name, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if key not in self._known:
            os.makedirs(self._cache, exist_ok=True)
            try:
                index = index_of(tar.fileobj.name, self._cache)
            except ImportError as error:
                self._applied.refused(f"headrace is not installed in the environment of the command ({error})")
                return None
            # Of what lies in several pieces, tarfile knows more than the index does.
            self._known[key] = None if any(member.issparse() for member in index) else index
        return self._known[key]


def index_of(path: str, cache: str) -> Any:
    """Headrace's index of an archive, kept in the folder `cache`. Raises ImportError where it is not installed."""
    from headrace import IndexedTar

    return IndexedTar(path, cache=cache)


def _is_plain(tar: Any) -> bool:
    """Whether tarfile itself has opened a file, not compressed, for reading, and nobody has subclassed anything."""
    raw = getattr(tar.fileobj, "raw", None)
    return bool(
        tar.mode == "r"
        and not tar._extfileobj
        and type(getattr(raw, "name", None)) is str
        and type(tar).__module__ == "tarfile"
        and tar.tarinfo is tarfile.TarInfo
        and tar.encoding.lower() in ("utf-8", "utf8")
        and tar.errors == "surrogateescape"
        and not tar.ignore_zeros
    )


def tar_info(tar: Any, member: Any) -> Any:
    """With all that reading needs. Owner, mode and time are those of a new TarInfo, since the index has none."""
    info = tar.tarinfo(member.name)
    info.size, info.type, info.linkname = member.size, member.type, member.linkname
    info.offset_data = member.offset_data
    info.offset = member.offset_data - tarfile.BLOCKSIZE
    info.tarfile = tar
    return info


# -- from doctor/probe/remedies/staging.py: Files that were copied to memory or to a local disk before the run: who
# opens one for reading is given the copy.


BY_PATH = {
    "cv2": ("imread", "imreadmulti"),
    "torchvision.io.image": ("read_file",),
    "torchvision.io.video": ("read_video",),
    "numpy": ("fromfile", "load", "memmap"),
}
"""Functions that C opens files for, by the path that is their first argument."""


def install_staging(probe: Probe, pairs: list[list[str]], applied: AppliedRemedy) -> None:
    """`pairs` are [source, copy]: files, or folders with all that is in them."""
    redirect = _Redirect(pairs, applied)
    probe.patches.replace(builtins, "open", redirect.opening)
    probe.patches.replace(io, "open", redirect.opening)
    probe.patches.replace(os, "open", redirect.opening_descriptor)
    probe.when_imported("tarfile", redirect.watch_tars)
    probe.when_imported("h5py._hl.files", redirect.watch_hdf5)
    for module, names in BY_PATH.items():
        probe.when_imported(module, functools.partial(_replace, redirect, names))


def _replace(redirect: _Redirect, names: tuple[str, ...], probe: Probe, module: ModuleType) -> None:
    for name in names:
        if not isinstance(getattr(module, name, None), type):  # numpy.memmap is a class, which opens by `open`
            probe.patches.replace(module, name, redirect.reading)


class _Redirect:
    """From paths to those of their copies."""

    def __init__(self, pairs: list[list[str]], applied: AppliedRemedy) -> None:
        self._files = {os.path.abspath(source): copy for source, copy in pairs if not os.path.isdir(copy)}
        self._folders = [
            (os.path.join(os.path.abspath(source), ""), copy) for source, copy in pairs if os.path.isdir(copy)
        ]
        self._applied = applied
        self._find = applied.guarded(self._copy_of)

    def opening(self, original: Callable[..., Any]) -> Builtin:
        def open_(*args: Any, **kwargs: Any) -> Any:
            mode = args[1] if len(args) > 1 else kwargs.get("mode", "r")
            file = args[0] if args else kwargs.get("file")
            is_read = type(mode) is str and not set(mode) & set("wxa+")
            copy = self._find(file) if is_read else None
            if copy is None:
                return original(*args, **kwargs)
            return original(copy, *args[1:], **{name: value for name, value in kwargs.items() if name != "file"})

        return Builtin(original, open_)

    def opening_descriptor(self, original: Callable[..., int]) -> Builtin:
        def open_(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            is_read = not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and kwargs.get("dir_fd") is None
            return original((self._find(path) if is_read else None) or path, flags, *args, **kwargs)

        return Builtin(original, open_)

    def reading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def read(path: Any, *args: Any, **kwargs: Any) -> Any:
            return original(self._find(path) or path, *args, **kwargs)

        return read

    def watch_tars(self, probe: Probe, tarfile: Any) -> None:
        """It has `open` by a name of its own, which was taken before ours was there."""
        probe.patches.replace(tarfile, "bltn_open", self.opening)

    def watch_hdf5(self, probe: Probe, files: Any) -> None:
        def make(original: Callable[..., None]) -> Callable[..., None]:
            @functools.wraps(original)
            def __init__(file: Any, name: Any, mode: str = "r", *args: Any, **kwargs: Any) -> None:  # noqa: N807
                original(file, (self._find(name) if mode == "r" else None) or name, mode, *args, **kwargs)

            return __init__

        probe.patches.replace(files.File, "__init__", make)

    def _copy_of(self, file: Any) -> str | None:
        if not isinstance(file, (str, os.PathLike)):
            return None
        given = os.fspath(file)
        if not isinstance(given, str):
            return None
        path = os.path.abspath(given)
        copy = self._files.get(path) or self._in_folder(path)
        if copy is not None:
            self._applied.took()
        return copy

    def _in_folder(self, path: str) -> str | None:
        """None also for what was not there when the folder was copied."""
        for folder, copy in self._folders:
            if path.startswith(folder):
                inside = os.path.join(copy, path[len(folder) :])
                return inside if os.path.exists(inside) else None
        return None
