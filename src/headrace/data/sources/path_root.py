"""Roots of the paths in a manifest: a folder, or archives with the files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from headrace.data.archives.archive_columns import MemberPlaces, NamedMemberColumn, archive_files
from headrace.data.archives.archive_index import ArchiveKind
from headrace.data.archives.archive_members import ArchiveMembers
from headrace.data.archives.archive_scans import open_each
from headrace.data.archives.tar_index import TAR
from headrace.data.archives.zip_index import ZIP
from headrace.data.columns import ByteColumn, NamedFileColumn
from headrace.data.location import ColumnFiles
from headrace.data.remote.listing import Stores
from headrace.data.remote.object_columns import NamedObjects, ObjectColumn, holds_addresses
from headrace.data.remote.remote_file import ObjectPath
from headrace.data.sources.file_kind import kind_of, refuse_compressed
from headrace.data.storage.open_file import FilePath
from headrace.data.storage.paths import local_path, resolve_paths, suggest_path
from headrace.data.storage.sidecar import FileIdentity, identify_archive
from headrace.data.storage.strings import Strings
from headrace.data.table import PathRoot
from headrace.errors import ChangedError, DatasetError, NotFoundError, UsageError
from headrace.stores import ObjectStore, is_remote

Root: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_ARCHIVES = re.compile(r"[*?\[{]|\.(tar|zip)$", re.IGNORECASE)
"""Pattern in an address of archives, but not in one of a prefix."""
_EXPECTED = "the path of a folder or an archive, a pattern, or a list of archives as root="


def open_root(root: Root | None, *, manifest: FilePath, cache: str | None, stores: Stores | None = None) -> PathRoot:
    """Return the root of the paths in `manifest` (an absolute path): its own folder, or `root`.

    `cache`: folder for the indices of archives, if given; `stores`: stores of a remote root, and of addresses in the
    paths.

    Raises UsageError, NotFoundError, DatasetError or ReadError.
    """
    stores = Stores() if stores is None else stores
    if root is None:
        return own_root(manifest, stores)
    given = list(root) if isinstance(root, list | tuple) else [root]
    if any(map(is_remote, given)):
        local = next((part for part in given if not is_remote(part)), None)
        if local is not None:
            raise UsageError(f"root: expected archives in stores alone, as others are, got {local!r}. Give one kind")
        if len(given) == 1 and not _ARCHIVES.search(str(given[0])):
            prefix = stores.path(str(given[0]))
            return StoreRoot(prefix.store, prefix.key.rstrip("/"), stores, inside=True)
        return open_archive_root([path for part in given for path in stores.resolve(str(part))], cache)
    paths = [path for part in given for path in resolve_paths(local_path(part, _EXPECTED))]
    if not paths:
        raise UsageError(f"expected {_EXPECTED}, got an empty list")
    if len(paths) == 1 and os.path.isdir(paths[0]):
        return FolderRoot(paths[0], inside=True)
    return open_archive_root(paths, cache)


def own_root(manifest: FilePath, stores: Stores) -> PathRoot:
    """Return the folder, or the prefix in a store, of a manifest."""
    if isinstance(manifest, ObjectPath):
        return StoreRoot(manifest.store, manifest.key.rpartition("/")[0], stores)
    assert isinstance(manifest, str), "objects in stores are of one kind"
    return FolderRoot(os.path.dirname(manifest), stores=stores)


def open_archive_root(paths: Sequence[FilePath], cache: str | None) -> ArchiveRoot:
    """Open archives of one kind. Raises UsageError, NotFoundError, DatasetError or ReadError."""
    for path in paths:
        if not isinstance(path, str):
            continue
        if os.path.isdir(path):
            raise DatasetError(f"root: expected one folder, or archives alone, got the folder {path} among others")
        if not os.path.exists(path):
            raise NotFoundError(f"root: expected a folder or an archive, got nothing at {path}. {suggest_path(path)}")
        if not os.path.isfile(path):
            raise DatasetError(f"root: expected a folder or an archive, got the special file {path}")
    kinds = [kind_of(path) for path in paths]
    for path, kind in zip(paths, kinds, strict=True):
        if kind.kind == "compressed" and isinstance(path, str):
            refuse_compressed(path)
        if kind.kind not in ("tar", "zip"):
            raise DatasetError(f"root: expected a folder, tars or zips, got {kind.words} at {path}. Check the path")
        if kind.kind != kinds[0].kind:
            raise UsageError(
                f"root: expected tars alone or zips alone, got {kinds[0].words}, {paths[0]}, and {kind.words}, {path}. "
                f"Give one kind"
            )
    archives: ArchiveKind[Any] = ZIP if kinds[0].kind == "zip" else TAR

    def open_one(path: FilePath) -> tuple[FileIdentity, ArchiveMembers]:
        identity = identify_archive(path)
        return identity, archives.open_members(path, identity, cache=cache)

    opened = open_each(paths, open_one, cache=cache)
    identities, members = [identity for identity, _ in opened], [each for _, each in opened]
    return ArchiveRoot(paths, cache, identities, archive_files(paths), members, MemberPlaces(members))


def _open_again(paths: Sequence[FilePath], cache: str | None, identities: Sequence[FileIdentity]) -> ArchiveRoot:
    """Open the same archives again. Raises ChangedError, and as opening does."""
    root = open_archive_root(paths, cache)
    for path, known, found in zip(paths, identities, root.identities, strict=True):
        if found != known:
            raise ChangedError(f"{path}: expected the archive that was opened first, got another. Open the list again")
    return root


@dataclass(frozen=True)
class FolderRoot:
    """Files in a folder."""

    folder: str
    inside: bool = False
    """True if paths have to stay in the folder; otherwise absolute paths are allowed."""
    is_common: bool = False
    """True if this is only the common folder of several manifests: paths have to be absolute."""
    stores: Stores = field(default_factory=Stores, compare=False)
    """Stores of addresses among the paths."""

    def column(self, paths: Strings) -> ByteColumn:
        """Return the column of the files at these paths. Raises UsageError for a relative path without a folder."""
        for piece in paths.pieces() if self.is_common else ():
            for path in piece:
                if path and not os.path.isabs(path) and not is_remote(path):
                    raise UsageError(
                        f"root: expected the folder that paths such as {path!r} begin in, got none: they come from "
                        f"files in several folders below {self.folder}. Give it, or open the files of each folder"
                    )
        if not self.inside and holds_addresses(paths):
            return ObjectColumn.of(self.folder, paths, NamedObjects(self.stores))
        return NamedFileColumn(ColumnFiles(self.folder, paths, archives=False, inside=self.inside))

    @property
    def place(self) -> str:
        return "there" if self.is_common else f"below {self.folder}"

    @property
    def advice(self) -> str:
        if self.is_common:
            return "Give the folder that the paths begin in as root="
        how = "Give" if self.inside else "Pass as root="
        return f"{how} the folder that the paths begin in, or archives that hold them"


@dataclass(frozen=True)
class StoreRoot:
    """Objects in a prefix of a store."""

    store: ObjectStore
    prefix: str
    stores: Stores
    inside: bool = False
    """True if paths have to stay in the prefix; otherwise addresses and absolute paths are allowed."""

    def column(self, paths: Strings) -> ByteColumn:
        """Return the column of the objects at these paths."""
        address = self.store.address.show(self.prefix).rstrip("/")
        return ObjectColumn.of(address, paths, NamedObjects(self.stores, self.store, self.prefix, inside=self.inside))

    @property
    def place(self) -> str:
        return f"below {self.store.address.show(self.prefix)}"

    @property
    def advice(self) -> str:
        return f"{'Give' if self.inside else 'Pass as root='} the prefix that the paths begin in"


@dataclass(frozen=True, eq=False)
class ArchiveRoot:
    """Files in archives of one kind."""

    paths: Sequence[FilePath]
    cache: str | None
    identities: Sequence[FileIdentity]
    files: ColumnFiles
    """Files of all columns, so that each archive is opened once."""
    members: Sequence[ArchiveMembers]
    places: MemberPlaces

    def __reduce__(self) -> tuple[Any, ...]:
        """Reopen in another process, which is faster than sending the indices."""
        return _open_again, (self.paths, self.cache, self.identities)

    def column(self, paths: Strings) -> ByteColumn:
        return NamedMemberColumn(self.files, paths, self.members, self.places)

    @property
    def place(self) -> str:
        first, last = self.paths[0], self.paths[-1]
        return f"in {first}" if len(self.paths) == 1 else f"in {len(self.paths):,} archives {first} … {last}"

    @property
    def advice(self) -> str:
        first = next((members.names[0] for members in self.members if len(members)), "")
        return f"The first name there is {first!r}: write paths as there, or give another root="
