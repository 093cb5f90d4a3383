"""What the paths in a manifest are relative to: a folder, or tars that hold the files."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..errors import NotFoundError
from .columns import ByteColumn, FileColumn
from .files import Files
from .paths import nearby, path_text
from .strings import StringColumn
from .table import PathRoot


def open_root(root: str | os.PathLike[str] | None, *, manifest: str) -> PathRoot:
    """Where the paths in `manifest` (an absolute path) lead: below its own folder, or into `root`.

    Raises UsageError, NotFoundError.
    """
    if root is None:
        return FolderRoot(os.path.dirname(manifest), inside=False)
    path = os.path.abspath(path_text(root, "the path of a folder as root="))
    if not os.path.isdir(path):
        raise NotFoundError(f"root: expected a folder, got {path}, which is none. {nearby(path)}")
    return FolderRoot(path, inside=True)


@dataclass(frozen=True)
class FolderRoot:
    """Files below a folder."""

    folder: str
    inside: bool
    """Whether paths have to stay in it; otherwise absolute ones are taken as they are."""

    def column(self, names: StringColumn) -> ByteColumn:
        return FileColumn(Files(self.folder, names, archives=False, inside=self.inside))

    @property
    def advice(self) -> str:
        if self.inside:
            return f"Paths are taken below root={self.folder}: give the folder that they begin in"
        return "Relative paths are taken below the manifest's folder: give the folder that they begin in with root="
