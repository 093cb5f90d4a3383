"""Remedy for archives: an index in place of tarfile's scan."""

from __future__ import annotations

import os
import tarfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..patches import Function
    from . import InjectedRemedy


_LINKS = (tarfile.LNKTYPE, tarfile.SYMTYPE)
"""Members that older Pythons resolve through their own list of members."""
_INDEX = "_headrace_index"
"""Attribute of a TarFile: its index, or None if the index may answer differently."""


def install_indexed_tar(remedy: InjectedRemedy, _: bool) -> None:
    """Look up an archive's members in an index, instead of scanning all headers and searching a list.

    The `TarFile` remains the user's, with its file and reads. Only the member list and look-ups by name come from
    headrace's index, stored in the session's folder and shared by all processes.
    """
    tars = _Tars(os.path.join(remedy.folder, "tars"), remedy)
    remedy.around("tarfile", "TarFile.getmember", tars.getmember)
    remedy.around("tarfile", "TarFile.getmembers", tars.all_members)
    remedy.around("tarfile", "TarFile.__iter__", tars.all_members)
    # In the parent of workers, as an edited script does: each worker would take half a second for it.
    remedy.when_imported("torch.utils.data.dataloader", lambda _: getattr(remedy.headrace, "IndexedTar", None))


class _Tars:
    def __init__(self, cache: str, remedy: InjectedRemedy) -> None:
        self._cache = cache
        self._remedy = remedy
        self._known: dict[tuple[Any, ...], Any] = {}
        """Indices by path, size and time of their tars. Forks inherit them, since reads use explicit offsets."""
        self._find, self._fill = remedy.guarded(self._find_member), remedy.guarded(self._fill_members)

    def getmember(self, original: Function, tar: Any, name: str) -> Any:
        member = self._find(tar, name)
        return original(tar, name) if member is None else member

    def all_members(self, original: Function, tar: Any) -> Any:
        self._fill(tar)
        return original(tar)

    def _find_member(self, tar: Any, name: str) -> Any:
        """Return None for names that the index lacks, so that tarfile raises its own error."""
        index = self._index(tar)
        name = name.rstrip("/")
        if index is None or name not in index:
            return None
        member = index.getmember(name)
        if member.name != name or member.type in _LINKS:
            return None
        self._remedy.took()
        return tar_info(tar, member)

    def _fill_members(self, tar: Any) -> None:
        """Fill in all members as if every header had been read; do nothing if some are already."""
        if tar._loaded or len(tar.members) > 1:
            return
        index = self._index(tar)
        if index is None:
            return
        tar.members = [tar_info(tar, member) for member in index]
        tar.firstmember = None
        tar.offset = os.fstat(tar.fileobj.fileno()).st_size
        tar._loaded = True
        self._remedy.took()

    def _index(self, tar: Any) -> Any:
        if not hasattr(tar, _INDEX):
            setattr(tar, _INDEX, None)  # also during creation, and after a failure
            setattr(tar, _INDEX, self._indexed(tar))
        return getattr(tar, _INDEX)

    def _indexed(self, tar: Any) -> Any:
        if not _is_plain(tar) or self._remedy.headrace is None:
            return None
        status = os.fstat(tar.fileobj.fileno())
        key = (tar.fileobj.name, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if key not in self._known:
            os.makedirs(self._cache, exist_ok=True)
            index = index_of(tar.fileobj.name, self._cache)
            # For sparse members, tarfile knows more than the index.
            self._known[key] = None if any(member.issparse() for member in index) else index
        return self._known[key]


def index_of(path: str, cache: str) -> Any:
    """Return headrace's index of an archive, cached in the folder `cache`. Raises ImportError without headrace."""
    from headrace import IndexedTar

    return IndexedTar(path, cache=cache)


def _is_plain(tar: Any) -> bool:
    """Return True if tarfile itself opened an uncompressed file for reading, without any subclass."""
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
    """Return a TarInfo with all that reading needs. Owner, mode and time are defaults; the index has none."""
    info = tar.tarinfo(member.name)
    info.size, info.type, info.linkname = member.size, member.type, member.linkname
    info.offset_data = member.offset_data
    info.offset = member.offset_data - tarfile.BLOCKSIZE
    info.tarfile = tar
    return info
