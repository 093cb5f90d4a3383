"""A folder of images: listed afresh each time, in a fixed order, without an object a file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.data.class_names import Classes, renumbering
from headrace.data.columns import Column, FileColumn, ValueColumn
from headrace.data.files import Files
from headrace.data.formats import IMAGE_EXTENSIONS, is_image_name
from headrace.data.strings import StringColumn
from headrace.data.table import Table
from headrace.data.walking import walk
from headrace.errors import DatasetError, EmptyDatasetError, UsageError

_NAMES_IN_MESSAGE = 5


@dataclass(frozen=True)
class _Folder:
    """One visited folder: its path relative to the root, and its images' relative paths joined, with their lengths."""

    path: bytes
    blob: bytes
    lengths: npt.NDArray[np.int64]

    @property
    def top(self) -> bytes:
        return self.path.partition(b"/")[0]


def open_folder(root: str, *, classes: Classes | None) -> Table:
    """Images under `root`, in the order of torchvision's ImageFolder: by folder path, then by name, both bytewise.

    `classes`: first-level folders are classes and images beside them are passed over (True), they mean nothing
    (False), or True unless images lie directly in `root` (None); of a list of names, those folders are the classes,
    numbered in that order, and images of others are passed over.
    """
    skipped: Counter[str] = Counter()
    others: Counter[str] = Counter()
    folders = sorted(_walk(os.fsencode(root), skipped, others), key=lambda folder: (folder.top, folder.path))
    if not any(len(folder.lengths) for folder in folders):
        raise EmptyDatasetError(_nothing_there(root, others))
    if sum(others.values()):
        skipped["other files"] = sum(others.values())
    if classes is None:
        classes = not any(folder.path == b"" and len(folder.lengths) for folder in folders)
    label = None
    if classes:
        folders, label = _by_class(root, folders, None if isinstance(classes, bool) else classes, skipped)
    lengths = np.concatenate([folder.lengths for folder in folders])
    paths = StringColumn.from_parts(b"".join(folder.blob for folder in folders), lengths)
    columns: dict[str, Column] = {"image": FileColumn(Files(root, paths, archives=False))}
    if label is not None:
        columns["label"] = label
    source = f"folder {os.path.basename(root) or root}/"
    return Table(source, paths, columns, dict(sorted(skipped.items())))


def _walk(root: bytes, skipped: Counter[str], others: Counter[str]) -> Iterator[_Folder]:
    def count_circle() -> None:
        skipped["folder links that lead back"] += 1

    for path, images in walk(root, lambda full: _scan(full, skipped, others), in_circle=count_circle):
        prefix = path + b"/" if path else b""
        images.sort()
        lengths = np.fromiter(map(len, images), np.int64, len(images)) + len(prefix)
        yield _Folder(path, b"".join([prefix + name for name in images]), lengths)


def _scan(full: bytes, skipped: Counter[str], others: Counter[str]) -> tuple[list[bytes], list[bytes]]:
    """Names of the subfolders and of the images in one folder."""
    subfolders, images = [], []
    with os.scandir(full) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith(b"."):
                skipped["hidden entries"] += 1
            elif entry.is_dir():
                subfolders.append(name)
            elif not is_image_name(name):
                others[os.fsdecode(os.path.splitext(name)[1].lower()) or "without extension"] += 1
            elif entry.is_file():
                images.append(name)
            else:
                skipped["broken links and special files"] += 1
    return subfolders, images


def _by_class(
    root: str, folders: list[_Folder], wanted: Sequence[str] | None, skipped: Counter[str]
) -> tuple[list[_Folder], ValueColumn]:
    """The folders below the first level, and each image's class: its first-level folder's index by sorted name, or in
    `wanted`, of which no others are kept."""
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
    if empty or not counts:
        raise DatasetError(_not_classes(root, empty, len(counts)))
    labels = np.repeat(list(kept.values()), list(counts.values()))
    return folders, ValueColumn(labels, names if wanted is None else tuple(wanted))


def _nothing_there(root: str, others: Counter[str]) -> str:
    expected = f"{root}: expected images ({', '.join(IMAGE_EXTENSIONS)})"
    if not others:
        return f"{expected}, got an empty folder. Check the path"
    kinds = ", ".join(f"{count:,} {suffix}" for suffix, count in others.most_common(_NAMES_IN_MESSAGE))
    hint = "To open the tars, pass a pattern such as '*.tar' inside it" if ".tar" in others else "Check the path"
    return f"{expected}, got {sum(others.values()):,} other files ({kinds}). {hint}"


def _not_classes(root: str, empty: list[str], total: int) -> str:
    if not total:
        return f"{root}: expected class folders (classes=), got images directly in it. Pass classes=False"
    names = ", ".join(empty[:_NAMES_IN_MESSAGE]) + (", …" if len(empty) > _NAMES_IN_MESSAGE else "")
    return (
        f"{root}: expected images in each class folder, got none in {len(empty):,} of {total:,} ({names}). "
        f"Remove those folders, or pass classes=False"
    )
