"""Folders of images: class folders, folder trees, and folders matched by file stems."""

from __future__ import annotations

import fnmatch
import glob
import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.data.class_names import Classes, renumbering
from headrace.data.columns import Column, FileColumn, ValueColumn
from headrace.data.location import ColumnFiles
from headrace.data.remote.listing import Listing, Stores
from headrace.data.remote.object_columns import NamedObjects, ObjectColumn, SeenObjects
from headrace.data.remote.remote_file import ObjectPath
from headrace.data.sources.file_kind import IMAGE_EXTENSIONS, is_image_name, media_advice
from headrace.data.storage.paths import is_folder, is_regular, walk_folders
from headrace.data.storage.sidecar import INDEX_SUFFIXES
from headrace.data.storage.strings import StringColumn
from headrace.data.table import SampleTable
from headrace.errors import DatasetError, EmptyDatasetError, NotFoundError, UsageError, warn_caller
from headrace.stores import show_address

_NAMES_IN_MESSAGE = 5


@dataclass(frozen=True)
class _Folder:
    """Visited folder: its relative path, and the concatenated relative paths of its images with their lengths."""

    path: bytes
    blob: bytes
    lengths: npt.NDArray[np.int64]
    listed: npt.NDArray[np.int64] | None = None
    """Index of each image in a listing."""

    @property
    def top(self) -> bytes:
        return self.path.partition(b"/")[0]


def open_folder(root: str, *, classes: Classes | None) -> SampleTable:
    """Return the images in `root` in torchvision's order: by folder path, then by name, both bytewise.

    `classes`: True: first-level folders are classes, and images next to them are skipped; False: there are no classes;
    None: True unless more images than folders are directly in `root`. A list names the class folders in order, and
    images in other folders are skipped.
    """
    skipped: Counter[str] = Counter()
    others: Counter[str] = Counter()
    walked = list(_walk(os.fsencode(root), skipped, others))
    _, paths, label = _sorted_images(root, walked, classes, skipped, others)
    column = FileColumn(ColumnFiles(root, paths, archives=False))
    return _table(f"folder {os.path.basename(root) or root}/", paths, column, label, skipped)


def open_prefix(listing: Listing, *, classes: Classes | None) -> SampleTable:
    """Return the images in a prefix, as `open_folder` does for a folder, pinned to the listed content."""
    skipped: Counter[str] = Counter()
    others: Counter[str] = Counter()
    root, prefix = str(listing.prefix), listing.prefix
    folders = _listed_folders(listing, skipped, others)
    folders, paths, label = _sorted_images(root, folders, classes, skipped, others)
    numbers = np.concatenate([folder.listed for folder in folders if folder.listed is not None])
    objects = NamedObjects(Stores(), prefix.store, prefix.key, inside=True, listing=listing.place)
    column = ObjectColumn.of(root, paths, objects, SeenObjects.listed(listing.sizes[numbers], listing.tags[numbers]))
    return _table(f"folder {prefix.name or root}/", paths, column, label, skipped)


def open_objects(paths: Sequence[ObjectPath], stores: Stores, *, addresses: Sequence[str] | None) -> SampleTable:
    """Return objects as images. Sample keys are `addresses`; None: object keys relative to their common prefix."""
    seen = SeenObjects(len(paths))
    for number, path in enumerate(paths):
        if path.pin is not None:
            seen.take(number, path.pin)
    if addresses is not None:
        column = ObjectColumn.of("", StringColumn.from_list(addresses), NamedObjects(stores), seen)
        names = StringColumn.from_list(map(show_address, addresses))
        return SampleTable(f"{len(paths):,} paths in memory", names, {"image": column}, {})
    prefix = posixpath.commonpath([path.key.rpartition("/")[0] for path in paths])
    names = StringColumn.from_list(path.key[len(prefix) + 1 if prefix else 0 :] for path in paths)
    store = paths[0].store
    below = store.address.show(prefix).rstrip("/")
    column = ObjectColumn.of(below, names, NamedObjects(stores, store, prefix, inside=True), seen)
    return SampleTable(f"{len(paths):,} images in {below.rpartition('/')[2]}/", names, {"image": column}, {})


def _sorted_images(
    root: str, folders: list[_Folder], classes: Classes | None, skipped: Counter[str], others: Counter[str]
) -> tuple[list[_Folder], StringColumn, ValueColumn | None]:
    """Return the selected folders in order, their images' paths, and the images' classes."""
    folders = sorted(folders, key=lambda folder: (folder.top, folder.path))
    if not any(len(folder.lengths) for folder in folders):
        got, hint = "an empty folder", "Check the path"
        if others:
            kinds = ", ".join(f"{count:,} {suffix}" for suffix, count in others.most_common(_NAMES_IN_MESSAGE))
            got = f"{others.total():,} other files ({kinds})"
        if ".tar" in others:
            hint = "To open the tars, pass a pattern such as '*.tar' inside it"
        hint = media_advice(others) or hint
        raise EmptyDatasetError(f"{root}: expected images ({', '.join(IMAGE_EXTENSIONS)}), got {got}. {hint}")
    if others:
        skipped["other files"] = others.total()
    if classes is None:
        classes = _has_classes(root, folders)
    label = None
    if classes:
        folders, label = _by_class(root, folders, None if isinstance(classes, bool) else classes, skipped)
    lengths = np.concatenate([folder.lengths for folder in folders])
    paths = StringColumn.from_parts(b"".join(folder.blob for folder in folders), lengths)
    return folders, paths, label


def _has_classes(root: str, folders: Sequence[_Folder]) -> bool:
    """Return True if images are in class folders, but for strays: no more images next to the folders than folders."""
    strays = sum(len(folder.lengths) for folder in folders if folder.path == b"")
    tops = {folder.top for folder in folders if folder.path and len(folder.lengths)}
    if strays and 2 <= len(tops) >= strays:
        warn_caller(
            f"{root}: expected images in class folders only, got {strays:,} beside its {len(tops):,} folders, skipped: "
            "move them away, or pass classes=False for all images without classes"
        )
        return True
    return not strays


def _table(
    source: str, paths: StringColumn, image: Column, label: ValueColumn | None, skipped: Counter[str]
) -> SampleTable:
    columns: dict[str, Column] = {"image": image}
    if label is not None:
        columns["label"] = label
    return SampleTable(source, paths, columns, dict(sorted(skipped.items())))


def _listed_folders(listing: Listing, skipped: Counter[str], others: Counter[str]) -> list[_Folder]:
    """Return the folders of a listing, like `_walk`."""
    images: dict[bytes, list[tuple[bytes, int]]] = {}
    hidden: set[bytes] = set()
    for number, text in enumerate(listing.names):
        key = os.fsencode(text)
        at = 0 if key.startswith(b".") else key.find(b"/.") + 1
        if key.startswith(b".") or at:
            hidden.add(key[: key.find(b"/", at)] if b"/" in key[at:] else key)
            continue
        path, _, name = key.rpartition(b"/")
        found = images.setdefault(path, [])
        if is_image_name(name):
            found.append((key, number))
        else:
            others[os.fsdecode(os.path.splitext(name)[1].lower()) or "without extension"] += 1
    if hidden:
        skipped["hidden entries"] += len(hidden)
    return [
        _Folder(
            path,
            b"".join(key for key, _ in found),
            np.array([len(key) for key, _ in found], np.int64),
            np.array([number for _, number in found], np.int64),
        )
        for path, found in images.items()
    ]


def _walk(root: bytes, skipped: Counter[str], others: Counter[str]) -> Iterator[_Folder]:
    def count_circle() -> None:
        skipped["folder links that lead back"] += 1

    for path, images in walk_folders(root, lambda full: _scan(full, skipped, others), in_circle=count_circle):
        prefix = path + b"/" if path else b""
        images.sort()
        lengths = np.fromiter(map(len, images), np.int64, len(images)) + len(prefix)
        yield _Folder(path, b"".join([prefix + name for name in images]), lengths)


def _scan(full: bytes, skipped: Counter[str], others: Counter[str]) -> tuple[list[bytes], list[bytes]]:
    """Return the names of the subfolders and of the images in one folder."""
    subfolders, images = [], []
    with os.scandir(full) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith(b"."):
                skipped["hidden entries"] += 1
            elif is_folder(entry):
                subfolders.append(name)
            elif not is_image_name(name):
                others[os.fsdecode(os.path.splitext(name)[1].lower()) or "without extension"] += 1
            elif is_regular(entry):
                images.append(name)
            else:
                skipped["broken links and special files"] += 1
    return subfolders, images


def _by_class(
    root: str, folders: list[_Folder], wanted: Sequence[str] | None, skipped: Counter[str]
) -> tuple[list[_Folder], ValueColumn]:
    """Return all selected folders except the root, and each image's class.

    A class is a first-level folder's index by sorted name, or its index in `wanted`, which excludes all others.
    """
    outside = sum(len(folder.lengths) for folder in folders if folder.path == b"")
    if outside:
        skipped["images outside class folders"] = outside
    folders = [folder for folder in folders if folder.path != b""]
    counts: dict[bytes, int] = {}
    for folder in folders:
        counts[folder.top] = counts.get(folder.top, 0) + len(folder.lengths)
    names = tuple(os.fsdecode(name) for name in counts)
    if wanted is not None and not names:
        raise UsageError(f"classes: expected class folders in {root}, got images directly in it. Leave it out")
    if wanted is not None:
        number_of = renumbering(names, wanted, where=root)[:-1]
        others = sum(count for count, number in zip(counts.values(), number_of, strict=True) if number < 0)
        if others:
            skipped["images of other classes"] = others
        kept = {name: int(number) for name, number in zip(counts, number_of, strict=True) if number >= 0}
        folders = [folder for folder in folders if folder.top in kept]
        counts = {name: counts[name] for name in kept}
    else:
        kept = {name: number for number, name in enumerate(counts)}
    empty = [os.fsdecode(name) for name, count in counts.items() if count == 0]
    if not counts:
        raise DatasetError(f"{root}: expected class folders (classes=), got images directly in it. Pass classes=False")
    if empty:
        named = ", ".join(empty[:_NAMES_IN_MESSAGE]) + (", …" if len(empty) > _NAMES_IN_MESSAGE else "")
        raise DatasetError(
            f"{root}: expected images in each class folder, got none in {len(empty):,} of {len(counts):,} ({named}). "
            f"Remove those folders, or pass classes=False"
        )
    labels = np.repeat(list(kept.values()), list(counts.values()))
    return folders, ValueColumn(labels, names if wanted is None else tuple(wanted))


_PART = re.compile(r"\*\*/|\*|\?|\[!?\]?[^\]]*\]")
"""Wildcards of a pattern; a `**` that is only part of a path component is two stars, as in `glob`."""


ALL_FILES = "**/*"


@dataclass(frozen=True)
class StemmedFiles:
    """Files in `root`, in bytewise order of their names."""

    root: str
    name_of: dict[str, str]
    """Relative paths by stem."""


def stemmed_files(where: str) -> StemmedFiles:
    """Return all files in a folder, or those that match a pattern (`masks/*_mask.png`), by stem.

    A stem is the text that the wildcards match, without the extension for a folder or a pattern that ends in `*`.
    Hidden files and folders are skipped.

    Raises NotFoundError, EmptyDatasetError, DatasetError if two files have the same stem, or ReadError for a subfolder
    that cannot be listed.
    """
    root, pattern = split_pattern(where)
    if not os.path.isdir(root):
        got = "a file" if os.path.exists(root) else "nothing"
        raise NotFoundError(f"{root}: expected a folder with the files of {where!r}, got {got}. Check the path")
    if pattern == ALL_FILES:  # a glob would skip unreadable folders, and follow cycles of links
        below = walk_folders(os.fsencode(root), _entries)
        found = [os.fsdecode(os.path.join(path, name)) for path, names in below for name in names]
    else:
        found = glob.glob(pattern, root_dir=root, recursive=True)
    expression, bare = re.compile(_expression(pattern), re.DOTALL), pattern.endswith("*")
    name_of: dict[str, str] = {}
    for name in sorted(found, key=os.fsencode):
        if name.endswith(INDEX_SUFFIXES) or not os.path.isfile(os.path.join(root, name)):
            continue
        match = expression.fullmatch(name)
        assert match is not None, f"{name!r} was found by a glob whose expression is {expression.pattern}"
        stem = "/".join(group.rstrip("/") for group in match.groups() if group)
        if bare:
            stem = os.path.splitext(stem)[0]
        if stem in name_of:
            raise DatasetError(
                f"{root}: expected one file of each stem, got {name_of[stem]!r} and {name!r} for {stem!r}. "
                f"Name one kind by a pattern, such as '*.png'"
            )
        name_of[stem] = name
    if not name_of:
        raise EmptyDatasetError(f"{where}: expected files, got none. Check the path or the pattern")
    return StemmedFiles(root, name_of)


def _entries(folder: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return the names of the subfolders and of all other entries in a folder, without hidden ones."""
    subfolders: list[bytes] = []
    others: list[bytes] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(b"."):
                (subfolders if is_folder(entry) else others).append(entry.name)
    return subfolders, others


def split_pattern(where: str) -> tuple[str, str]:
    """Return the folder that contains all files, and the pattern relative to it."""
    if os.path.isdir(where) or not glob.has_magic(where):
        return os.path.abspath(where), ALL_FILES
    parts = where.split("/")
    plain = next(at for at, part in enumerate(parts) if glob.has_magic(part))
    if parts[-1] == "**":  # the pattern means files, which the added star matches
        parts.append("*")
    return os.path.abspath("/".join(parts[:plain]) or ("/" if where.startswith("/") else ".")), "/".join(parts[plain:])


def _expression(pattern: str) -> str:
    """Return the pattern as a regular expression with a group for each wildcard."""
    text, at = "", 0
    for part in _PART.finditer(pattern):
        text += re.escape(pattern[at : part.start()]) + _group(part[0])
        at = part.end()
    return text + re.escape(pattern[at:])


def _group(wildcard: str) -> str:
    match wildcard:
        case "**/":
            return "((?:[^/]+/)*)"
        case "*":
            return "([^/]*)"
        case "?":
            return "([^/])"
    return "(" + fnmatch.translate(wildcard)[len("(?s:") : -len(r")\Z")] + ")"


_EXAMPLES = 3


def open_matched(columns: Mapping[str, str]) -> SampleTable:
    """Return one sample for each stem in every column, in the first column's order; its key is the stem.

    `columns` maps names to folders or patterns. Raises UsageError, NotFoundError, EmptyDatasetError, ReadError, or
    DatasetError if two files have the same stem, or nothing matches.
    """
    if not columns:
        raise UsageError("expected folders or patterns by the names of columns, got an empty mapping")
    found = {name: stemmed_files(where) for name, where in columns.items()}
    first = next(iter(found.values()))
    shared = set(first.name_of).intersection(*(files.name_of for files in found.values()))
    if not shared:
        some = "; ".join(f"{name}: {', '.join(list(files.name_of)[:_EXAMPLES])}" for name, files in found.items())
        raise DatasetError(
            f"expected files of the same stems for {' and '.join(found)}, got none in common ({some}). "
            f"Give patterns whose wildcards stand for the common part, such as 'masks/*_mask.png'"
        )
    stems = [stem for stem in first.name_of if stem in shared]
    parts: dict[str, Column] = {}
    for name, files in found.items():
        names = StringColumn.from_list(files.name_of[stem] for stem in stems)
        parts[name] = FileColumn(ColumnFiles(files.root, names, archives=False))
    source = ", ".join(f"{name} {where}" for name, where in columns.items())
    left = {f"{name} without a match": len(files.name_of) - len(shared) for name, files in found.items()}
    skipped = {what: count for what, count in left.items() if count}
    return SampleTable(source, StringColumn.from_list(stems), parts, skipped)
