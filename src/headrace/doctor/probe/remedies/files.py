"""An index of an archive's members in place of what tarfile does: no scan of all headers, no search in a list.

The `TarFile` stays the user's, with its file and its way to read; only the list of its members, and the answer to a
name, come from headrace's index, which is kept in the session's folder and shared by all processes.
"""

from __future__ import annotations

import functools
import os
import tarfile
from typing import TYPE_CHECKING, Any, Callable

from .applied import Applied

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..probe import Probe

_LINKS = (tarfile.LNKTYPE, tarfile.SYMTYPE)
"""To follow one, older Pythons look it up in their own list of members."""
_INDEX = "_headrace_index"
"""Attribute of a TarFile: what answers in its place; None where that is not certain to answer the same."""


def install(probe: Probe, _: bool, applied: Applied) -> None:
    tars = _Tars(os.path.join(probe.settings.folder, "tars"), applied)
    probe.when_imported("tarfile", tars.watch)


class _Tars:
    def __init__(self, cache: str, applied: Applied) -> None:
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
