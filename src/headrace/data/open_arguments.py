"""Arguments of `open`: checks, purposes, and the arguments that each source takes."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from headrace.data.array_columns import Layout
from headrace.data.class_names import Classes
from headrace.data.manifest.manifest_columns import check_names
from headrace.data.remote.listing import Stores
from headrace.data.sources.path_root import FolderRoot, Root, open_root
from headrace.data.storage.open_file import FilePath, folder_of
from headrace.data.storage.paths import local_path
from headrace.data.table import PathRoot, SampleTable
from headrace.errors import UsageError
from headrace.stores import is_remote, show_address

Path: TypeAlias = str | os.PathLike[str]
Stem: TypeAlias = Literal["last-dot"]

ARGUMENT_NEEDS = {
    "classes": "class folders (in a folder, a tar or a zip), or a column called label",
    "root": "a manifest, annotations or paths given in memory, which name files below it",
    "columns": "tars, zips, a manifest, arrays or columns given in memory, of which it names or picks some",
    "cache": "tars, zips or a manifest, whose indices it keeps, or arrays to unpack",
    "stem": "tars or zips, whose members it groups",
    "index": "tars or zips in a store, whose merged index it is",
    "layout": "arrays of images: in memory, .npy, .npz or HDF5",
    "stage": "files that can be copied: a folder, tars or zips, or a manifest with root=",
    "length": "an iterable that does not say how many samples it gives",
    "store_options": "addresses in stores, such as s3://bucket/shards/*.tar",
    "store": "addresses in stores, such as s3://bucket/shards/*.tar",
    "verify": "objects in stores that are read whole, such as images: parts of archives have no checksum",
    "retry_for": "addresses in stores, such as s3://bucket/shards/*.tar",
}
"""Purpose of each argument, in checking order."""
OF_STORES = ("store_options", "store", "retry_for", "verify")
"""Arguments for data in stores, or for sources that name such data."""
_EXPECTED = "a path, a pattern or a list of paths, or samples in memory"
_PIPE, _LIST = "pipe:", "::"
_SHARD = re.compile(r"\.(tar|tgz|zip)\b|^\w+://|^pipe:", re.IGNORECASE)
_ADDRESS = re.compile(r"\w+://[^\s'\"|;<>]+")


@dataclass(frozen=True, kw_only=True)
class OpenArguments:
    """Arguments of `open` other than the source; None: not given."""

    classes: Classes | None = None
    root: Root | None = None
    columns: Sequence[str] | None = None
    cache: Path | None = None
    stem: Stem | None = None
    index: Path | None = None
    layout: Layout | None = None
    stage: Path | None = None
    length: int | None = None
    store_options: Mapping[str, Any] | None = None
    store: Any = None
    retry_for: float | None = None
    verify: bool | None = None

    def check(self) -> None:
        """Raise UsageError for a value that no source takes."""
        classes: Any = self.classes
        expected = "classes: expected True, False or a list of the names of classes"
        if classes is not None and not isinstance(classes, bool):
            if isinstance(classes, str | bytes) or not isinstance(classes, Sequence):
                raise UsageError(f"{expected}, got {shown(classes)}")
            if not classes or not all(isinstance(name, str) for name in classes):
                raise UsageError(f"{expected}, such as ['cat', 'dog'], got {shown(list(classes))}")
            if len(set(classes)) < len(classes):
                twice = next(name for name in classes if list(classes).count(name) > 1)
                raise UsageError(f"{expected} that differ, got {twice!r} more than once")
        if self.columns is not None:
            check_names(self.columns)
        for name, folder in (("cache", self.cache), ("stage", self.stage)):
            if folder is not None:
                local_path(folder, f"a folder as {name}=")
        if self.stem not in (None, "last-dot"):
            raise UsageError(f"stem: expected None or 'last-dot', got {self.stem!r}")
        if self.layout not in (None, "NHWC", "NCHW"):
            raise UsageError(f"layout: expected None, 'NHWC' or 'NCHW', got {self.layout!r}")
        length: object = self.length
        if length is not None and (not isinstance(length, int) or isinstance(length, bool) or length < 1):
            raise UsageError(f"length: expected how many samples the iterable gives, 1 or more, got {length!r}")
        if self.verify is not None and not isinstance(self.verify, bool):
            raise UsageError(f"verify: expected True or False, got {self.verify!r}")
        seconds: object = self.retry_for
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and 0 <= seconds < math.inf):  # type: ignore[operator]
            raise UsageError(f"retry_for: expected a number of seconds, 0 or more, got {seconds!r}")

    def expect_only(self, takes: Sequence[str], subject: str, what: str) -> None:
        """Raise UsageError for an argument that does not apply to the source: the `subject`, which is `what`."""
        for name, needs in ARGUMENT_NEEDS.items():
            value = getattr(self, name)
            if value is not None and name not in takes:
                raise UsageError(
                    f"{name}: expected none, got {shown(value)}: {subject} is {what}. {name}= needs {needs}. "
                    f"Leave it out"
                )

    def stores(self) -> Stores:
        """Return the stores with the arguments for them."""
        return Stores(self.store_options, self.store, retry_for_s=self.retry_for, verify=bool(self.verify))

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Classes to select; None for all."""
        return None if self.classes is None or isinstance(self.classes, bool) else tuple(self.classes)

    @property
    def index_place(self) -> str | None:
        """Address or absolute path of the merged index."""
        if self.index is None or is_remote(self.index):
            return None if self.index is None else str(self.index)
        return os.path.abspath(local_path(self.index, "a path or an address as index="))

    @property
    def cache_folder(self) -> str | None:
        return None if self.cache is None else os.path.abspath(local_path(self.cache, "a folder as cache="))


def shown(value: object) -> str:
    """Return a value for a message, cut if long."""
    text = repr(value)
    return text if len(text) <= 200 else text[:199] + "…"


def path_of(path: object) -> str:
    """Return a path as text. Raises UsageError for anything but a local path."""
    return local_path(path, _EXPECTED)


def root_of(manifests: Sequence[FilePath], given: OpenArguments) -> PathRoot:
    """Return the root of the paths in files of rows: `root=`, or the folder of the files."""
    folders = {folder_of(path) for path in manifests}
    stores = given.stores()
    if given.root is None and len(folders) > 1:
        return FolderRoot(os.path.commonpath(folders), is_common=True, stores=stores)
    return open_root(given.root, manifest=manifests[0], cache=given.cache_folder, stores=stores)


def root_arguments(given: OpenArguments) -> tuple[str, ...]:
    """Return the arguments that apply to paths in `root=`; `cache` for archives, which have indices."""
    roots = list(given.root) if isinstance(given.root, list | tuple) else [given.root]
    if is_remote(roots[0]):
        return ("cache", *OF_STORES)
    if len(roots) == 1 and (roots[0] is None or os.path.isdir(path_of(roots[0]))):
        return OF_STORES
    return ("cache", *OF_STORES)


@dataclass(frozen=True)
class OpenableSource:
    """Source that was detected but not opened yet."""

    subject: str
    """Name in messages: "list.csv"."""
    what: str
    """Kind in messages: "a manifest"."""
    takes: tuple[str, ...]
    """Names of the arguments that apply."""
    open: Callable[[], SampleTable]
    labelled: bool = False
    """True if `classes=` names classes of a label column, rather than class folders."""


def refuse_shard_commands(parts: Sequence[Any]) -> None:
    """Raise UsageError for a `pipe:` command or a `::` list in `parts`. It shows addresses without credentials."""
    texts = [part for part in parts if isinstance(part, str)]
    if joined := [text for text in texts if _is_list(text)]:
        some = ", ".join(repr(show_address(each)) for each in joined[0].split(_LIST) if not each.startswith(_PIPE))
        raise UsageError(f"expected addresses or paths, got shards joined by '::'. Give a list: hr.open([{some}, …])")
    if commands := [text for text in texts if text.startswith(_PIPE)]:
        address = _ADDRESS.search(commands[0])
        such = f": hr.open({show_address(address[0])!r})" if address is not None else ""
        raise UsageError(
            "expected addresses or paths, got a `pipe:` command. Commands are not run here: samples are read at any "
            f"place of a shard. Give the shards' own addresses or paths{such}; credentials, profiles and headers go "
            "into store_options="
        )


def _is_list(text: str) -> bool:
    return _LIST in text and all(map(_SHARD.search, text.split(_LIST))) and not os.path.lexists(text)
