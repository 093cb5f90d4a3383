"""Find out what `open` was given, refuse arguments that it has no use for, and open it.

Samples in memory are known by their type (`_in_memory`), files by their first bytes (`_at_paths`). Each answers with an
`OpenableSource`, of which nothing has been opened yet.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from headrace.data.archives.archive_index import ArchiveKind
from headrace.data.archives.archive_table import choose_columns, open_archives
from headrace.data.archives.tar_index import TAR
from headrace.data.archives.zip_index import ZIP
from headrace.data.byte_columns import BytesLike
from headrace.data.class_names import Classes, keep_classes
from headrace.data.dataset import Dataset
from headrace.data.manifest import open_manifest
from headrace.data.manifest.manifest_table import rows_in_folder
from headrace.data.open_arguments import OpenArguments, Path, shown
from headrace.data.remote.addresses import is_remote
from headrace.data.remote.listing import Stores
from headrace.data.sources.arrow_tables import is_saved_dataset, open_memory_table, open_saved_dataset, table_kind
from headrace.data.sources.coco import open_coco
from headrace.data.sources.file_kind import ROW_KINDS, FileKind, is_image, kind_of, refuse_compressed
from headrace.data.sources.image_folders import open_folder, open_matched
from headrace.data.sources.memory_samples import table_of_columns, table_of_paths, table_of_records, table_of_rows
from headrace.data.sources.path_root import FolderRoot, Root, open_root
from headrace.data.storage.open_file import FilePath, StoredPath, file_name
from headrace.data.storage.paths import local_path, resolve_paths
from headrace.data.table import PathRoot, SampleTable
from headrace.errors import DatasetError, UsageError

Where: TypeAlias = Path | Sequence[Any] | Mapping[str, Any] | Iterable[Mapping[str, Any]]

_TAR_NAME = re.compile(r"\.(tar|tgz|tbz2?|txz)\b", re.IGNORECASE)
_OF_STORES = ("store_options", "store")
_LOOKED_AT = 8
"""Images of many that are looked at: enough to notice a mistake."""
_EXPECTED = "a path, a pattern or a list of paths, or samples in memory"


@dataclass(frozen=True)
class OpenableSource:
    """Source that was found, but not opened yet."""

    subject: str
    """Name in messages: "list.csv"."""
    what: str
    """Kind in messages: "a manifest"."""
    takes: tuple[str, ...]
    """Names of the arguments that mean something for it."""
    open: Callable[[], SampleTable]
    labelled: bool = False
    """Whether `classes=` names classes of a column of labels, rather than class folders."""


def open_dataset(
    where: Where,
    *,
    classes: Classes | None = None,
    root: Root | None = None,
    columns: Sequence[str] | None = None,
    cache: Path | None = None,
    stage: Path | None = None,
    length: int | None = None,
    store_options: Mapping[str, Any] | None = None,
    store: Any = None,
) -> Dataset:
    """Open the samples at `where`, without reading one of them.

    `where` is one of:
    - a folder of class folders (columns `image`, `label`), or a folder tree with images directly in it (`image`);
    - tars or zips: one, a glob (`shards/*.tar`), a brace list (`train-{000..009}.tar`), or a list of them. Members that
      share a stem (the name up to its first dot) are one sample, and each extension is a column; `image`, `label` and
      `text` stand for the usual ones;
    - a manifest (`.csv`, `.tsv`, `.txt`, `.jsonl`, `.odgt`, `.parquet`, `.arrow`), several of one format, or a folder
      of them: a sample a row, with columns of paths, values and, of parquet and Arrow, bytes or `{bytes, path}` as the
      Hugging Face Hub has images. An image field takes a column of texts as paths, any other field as values;
    - a mapping such as `{"image": "images/", "mask": "masks/*_mask.png"}`: folders or patterns whose files belong
      together by their stems;
    - COCO's annotations (`.json`): a sample an image, with lists of captions, or of boxes and labels;
    - a folder that Hugging Face datasets' `save_to_disk` wrote;
    - images: a pattern (`photos/*.jpg`), or a list of their paths (column `image`);
    - samples in memory: a list of (path, label), as torchvision's `samples` are; a dict of columns, which are lists or
      arrays of numbers, texts, paths or bytes; a list of dicts; or an iterable of dicts, which is read to its end;
    - a pandas or polars DataFrame, a pyarrow Table, or a `datasets.Dataset`, whose Arrow data is read in place.

    Tars and zips, and the files that a manifest or COCO's annotations name below `root=`, may lie in stores:
    `s3://bucket/shards/*.tar`, `gs://…`, `az://container/…`, `https://host/…` (no patterns, but brace lists).
    Credentials come from the environment, as obstore finds them, or from `store_options`. Only headers are read until
    samples are; indices lie in the cache folder.

    Files are known by their first bytes, and text manifests by their suffix. Arguments that mean nothing for what is
    opened are refused.

    `classes`: take first-level folder names as classes; None: only for a folder without images directly in it. A list
    of names keeps the samples of these classes alone, numbered in that order; then also where a column `label` has the
    classes, or, of whole numbers, has these names.
    `root`: the folder that the paths in a manifest, in annotations or in memory lead into, and not out of, or archives
    that hold the files; None: paths are relative to the manifest's own folder (those in memory to the current one), or
    absolute.
    `columns`: names for a manifest without a header, or for rows in memory; of columns that have names, those to take.
    Of archives, `json.KEY` is what the `.json` members have under that key.
    `cache`: folder for the indices of archives and manifests; None: next to each, or in the default cache folder where
    that is not writable.
    `length`: how many samples an iterable gives that does not say; another number is an error.
    `stage`: folder on a faster file system, such as `/dev/shm/NAME`, that everything is copied into first, unless it is
    there already; of several processes one copies and the others wait. The samples and their identity stay the same, so
    a state that was saved without it goes on with it.

    `store_options`: what obstore's store of that kind takes, such as `endpoint` or `region`, and `anonymous`,
    `profile`. `store`: an obstore store for the bucket instead.

    Raises UsageError, NotFoundError, EmptyDatasetError, DatasetError (damaged, compressed, no archive) or ReadError;
    with `stage` also WriteError (it would not fit, or cannot be written).
    """
    given = OpenArguments(
        classes=classes,
        root=root,
        columns=columns,
        cache=cache,
        stage=stage,
        length=length,
        store_options=store_options,
        store=store,
    )
    source = find_source(where, given)  # what is wrong is reported before anything is copied
    if stage is not None:
        from headrace.data.staging.staged_dataset import stage_dataset

        where, root = stage_dataset(where, root=root, to=stage)
        given = replace(given, root=root, stage=None)
        source = find_source(where, given)
    if source.labelled and given.class_names is not None:
        return Dataset(*keep_classes(source.open(), given.class_names))
    return Dataset(source.open())


def find_source(where: Where, given: OpenArguments) -> OpenableSource:
    """Return what `where` is, as far as can be told without opening it.

    Raises UsageError for an argument that means nothing for it; NotFoundError or DatasetError for what is missing, or
    cannot be opened.
    """
    given.check()
    parts = where if isinstance(where, list | tuple) else [where]
    source = _in_stores(parts, given) if any(map(is_remote, parts)) else _in_memory(where, given)
    if source is None:
        source = _at_paths(where, given)
    given.expect_only(source.takes, source.subject, source.what)
    if source.labelled and isinstance(given.classes, bool):
        raise UsageError(
            f"classes: expected a list of the names of classes, got {given.classes}: {source.subject} is "
            f"{source.what}, whose classes are those of its column 'label'. Leave it out to take all"
        )
    return source


# --- samples in memory, by their type ---


def _in_memory(where: Any, given: OpenArguments) -> OpenableSource | None:
    """Return samples in memory; None where `where` names files."""
    table = table_kind(where)
    if table is not None:
        return _held(table, "a table in memory", given, partial(open_memory_table, where, columns=given.columns))
    if isinstance(where, np.ndarray) and where.ndim == 1:
        where = where.tolist()
    if isinstance(where, Mapping):
        return _mapping(where, given)
    if isinstance(where, list | tuple):
        return _list(where, given)
    if isinstance(where, str | os.PathLike | BytesLike) or (
        not hasattr(where, "__iter__") and not hasattr(where, "__getitem__")
    ):
        return None
    return _iterable(where, given)


def _mapping(where: Mapping[str, Any], given: OpenArguments) -> OpenableSource:
    """Return folders or patterns by column, or the columns themselves."""
    if all(isinstance(each, str | os.PathLike) for each in where.values()):
        paths = {name: _path(path) for name, path in where.items()}
        return OpenableSource("what is opened", "a mapping of folders", ("stage",), partial(open_matched, paths))
    return _held("what is opened", "columns in memory", given, partial(table_of_columns, where, given.columns))


def _list(where: Sequence[Any], given: OpenArguments) -> OpenableSource | None:
    """Return a list of samples, by its first item; None for paths of archives or manifests."""
    if not where:
        raise UsageError("expected the paths of tars or zips, got an empty list")
    first, subject = where[0], "what is opened"
    if isinstance(first, Mapping):
        return _held(subject, "dicts in memory", given, partial(table_of_records, where, given.columns))
    if isinstance(first, tuple | list):
        return _held(subject, "rows in memory", given, partial(table_of_rows, where, given.columns))
    if isinstance(first, BytesLike):
        here = FolderRoot(os.getcwd())
        return OpenableSource(
            subject, "images' bytes in memory", (), lambda: table_of_columns({"image": where}, None, root=here)
        )
    if not isinstance(first, str | os.PathLike):
        return None
    path = _path(first)
    # Images, rather than archives or manifests; of those below a root nothing can be told yet.
    if is_image(os.path.abspath(path)) or (given.root is not None and not os.path.isfile(path)):
        if given.root is None:
            _expect_images([_path(path) for path in _spread(where)])
        source = f"{len(where):,} paths in memory"
        return _held(subject, "a list of images", given, partial(table_of_paths, where, source=source), bare=True)
    return None


def _iterable(where: Any, given: OpenArguments) -> OpenableSource:
    name = f"the {type(where).__name__}"
    count = len(where) if hasattr(where, "__len__") else given.length
    if count is None:
        raise UsageError(
            f"length: expected how many samples {name} gives, since it does not say, got none. State it as length=, or "
            f"give a list"
        )
    records = where if hasattr(where, "__iter__") else (where[place] for place in range(count))
    length = count if given.length is None else given.length
    return _held(name, "an iterable", given, partial(table_of_records, records, given.columns, length=length), "length")


def _held(
    subject: str, what: str, given: OpenArguments, make: Callable[..., SampleTable], *more: str, bare: bool = False
) -> OpenableSource:
    """Return samples in memory, whose paths may lead into a root. `bare`: the only column is that of images."""

    def make_table() -> SampleTable:
        return make(root=_root([os.path.abspath("memory")], given))

    takes = ("root", *_more_of_root(given), *(() if bare else ("classes", "columns")), *more)
    return OpenableSource(subject, what, takes, make_table, labelled=True)


def _more_of_root(given: OpenArguments) -> tuple[str, ...]:
    """Return `cache` where `root=` is archives, which have indices, and what a root in a store takes."""
    roots = list(given.root) if isinstance(given.root, list | tuple) else [given.root]
    if is_remote(roots[0]):
        return _OF_STORES
    if len(roots) == 1 and (roots[0] is None or os.path.isdir(_path(roots[0]))):
        return ()
    return ("cache",)


# --- what lies in stores ---


def _in_stores(parts: Sequence[Any], given: OpenArguments) -> OpenableSource:
    """Return archives at addresses: the first is looked at, others with its suffix are taken for the same."""
    local = next((part for part in parts if not is_remote(part)), None)
    if local is not None:
        raise UsageError(f"expected addresses in stores alone, as others are, got {shown(local)}. Open them apart")
    stores = Stores(given.store_options, given.store)
    paths = [path for part in parts for path in stores.resolve(part)]
    first = kind_of(paths[0])
    for path in paths[1:]:
        if _suffix(path) != _suffix(paths[0]) and kind_of(path).kind != first.kind:
            raise UsageError(f"expected files of one kind, got {first.words}, {paths[0]}, and {path}. Open them apart")
    if first.kind not in ("tar", "zip"):
        raise DatasetError(
            f"{paths[0]}: expected tars or zips in a store, got {first.words}. Download it, or mount the bucket as a "
            f"folder"
        )
    return replace(_archives(paths, first, given), takes=("classes", "columns", "cache", *_OF_STORES))


def _suffix(path: StoredPath) -> str:
    return os.path.splitext(path.name)[1].lower()


# --- what lies at paths, by first bytes ---


def _at_paths(where: Any, given: OpenArguments) -> OpenableSource:
    parts = where if isinstance(where, list | tuple) else [where]
    paths = [path for part in parts for path in resolve_paths(_path(part))]
    if len(paths) == 1 and os.path.isdir(paths[0]) and not isinstance(where, list | tuple):
        return _folder(paths[0], given)
    first = kind_of(paths[0])
    if first.kind == "image":
        _expect_images(_spread(paths))
        return _images(paths)
    for path in paths[1:]:
        kind = kind_of(path)
        if kind.kind != first.kind:
            raise UsageError(
                f"expected files of one kind, got {first.words}, {paths[0]}, and {kind.words}, {path}. Open them apart"
            )
    return _files(paths, first, given)


def _folder(path: str, given: OpenArguments) -> OpenableSource:
    name = os.path.basename(path)
    if is_saved_dataset(path):
        what = "a saved dataset"
        return OpenableSource(name, what, ("stage", "classes"), partial(open_saved_dataset, path), labelled=True)
    rows = rows_in_folder(path)
    if rows:
        return _files(rows, kind_of(rows[0]), given)
    return OpenableSource(name, "a folder", ("stage", "classes"), partial(open_folder, path, classes=given.classes))


def _images(paths: Sequence[str]) -> OpenableSource:
    """Return images that a pattern names, or a single one; keys are relative to their common folder."""
    folder = os.path.commonpath([os.path.dirname(path) for path in paths])
    names = [os.path.relpath(path, folder) for path in paths]
    source = f"{len(paths):,} images in {os.path.basename(folder) or folder}/"
    root = FolderRoot(folder)
    make_table = partial(table_of_paths, names, root=root, source=source)
    return OpenableSource(os.path.basename(paths[0]), "an image", (), make_table)


def _files(paths: Sequence[str], kind: FileKind, given: OpenArguments) -> OpenableSource:
    """Return files of one kind, at absolute paths."""
    name, cache = os.path.basename(paths[0]), given.cache_folder
    if kind.kind in ROW_KINDS:
        takes = ("stage", "root", "columns", "cache", "classes", *(_OF_STORES if is_remote(given.root) else ()))

        def open_rows() -> SampleTable:
            return open_manifest(paths, root=_root(paths, given), columns=given.columns, cache=cache)

        return OpenableSource(name, "a manifest", takes, open_rows, labelled=True)
    if kind.kind == "json":
        if len(paths) > 1:
            raise UsageError(f"expected one file of annotations, got {len(paths):,}. Join them, or open each")
        coco_takes = ("stage", "root", *_more_of_root(given))
        what = "a file of COCO's annotations"
        return OpenableSource(name, what, coco_takes, lambda: open_coco(paths[0], _root(paths, given)))
    if kind.kind in ("tar", "zip"):
        return _archives(paths, kind, given)
    if kind.kind == "compressed" and _TAR_NAME.search(name):
        refuse_compressed(paths[0])
    file = f" {name}" if kind.kind == "compressed" else ""
    raise DatasetError(
        f"{paths[0]}: expected a folder, tars, zips, a manifest or images, got {kind.words}. {kind.advice}{file}"
    )


def _archives(paths: Sequence[FilePath], kind: FileKind, given: OpenArguments) -> OpenableSource:
    """Return tars or zips."""
    archives: ArchiveKind[Any] = ZIP if kind.kind == "zip" else TAR

    def open_chosen() -> SampleTable:
        table = open_archives(archives, paths, classes=given.classes, cache=given.cache_folder)
        return table if given.columns is None else choose_columns(table, given.columns)

    takes = ("stage", "classes", "columns", "cache")
    return OpenableSource(file_name(paths[0]), f"{kind.words} of samples", takes, open_chosen)


def _root(manifests: Sequence[str], given: OpenArguments) -> PathRoot:
    folders = {os.path.dirname(path) for path in manifests}
    if given.root is None and len(folders) > 1:
        return FolderRoot(os.path.commonpath(folders), is_common=True)
    stores = Stores(given.store_options, given.store)
    return open_root(given.root, manifest=manifests[0], cache=given.cache_folder, stores=stores)


def _expect_images(paths: Sequence[str]) -> None:
    """Raise UsageError for another kind of dataset among them. A damaged or missing image is a bad sample."""
    for path in map(os.path.abspath, paths):
        kind = kind_of(path) if os.path.isfile(path) else None
        if kind is not None and kind.kind not in ("image", "other"):
            raise UsageError(f"expected images alone, as the first is, got {kind.words}, {path}. Open them apart")


def _spread(items: Sequence[Any]) -> list[Any]:
    """Return a few of them, with the first and the last."""
    return [items[place] for place in sorted({round(at) for at in np.linspace(0, len(items) - 1, _LOOKED_AT)})]


def _path(path: object) -> str:
    return local_path(path, _EXPECTED)
