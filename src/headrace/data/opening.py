"""Detect what `open` was given, refuse arguments that do not apply, and open it.

Samples in memory are detected by type (`memory_opening`), files and objects by their first bytes. Either way the result
is an `OpenableSource`, which has opened nothing yet.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from headrace.data.archives.archive_index import ArchiveKind
from headrace.data.archives.archive_table import choose_columns, open_archives
from headrace.data.archives.merged_index import MergedIndex, open_merged_index
from headrace.data.archives.tar_index import TAR
from headrace.data.archives.zip_index import ZIP
from headrace.data.array_columns import Layout
from headrace.data.class_names import Classes, keep_classes
from headrace.data.dataset import Dataset
from headrace.data.described_folders import described_folder, described_prefix, shards_of
from headrace.data.manifest import open_manifest
from headrace.data.manifest.manifest_table import is_beside_rows, rows_among, rows_in_folder
from headrace.data.memory_opening import expect_images, in_memory, spread
from headrace.data.open_arguments import (
    OF_STORES,
    OpenableSource,
    OpenArguments,
    Path,
    Stem,
    path_of,
    refuse_shard_commands,
    root_arguments,
    root_of,
    shown,
)
from headrace.data.remote.listing import Listing, prefix_listing, prefix_path
from headrace.data.remote.remote_file import ObjectPath
from headrace.data.sources.arrow_tables import is_saved_dataset, open_saved_dataset
from headrace.data.sources.coco import open_coco
from headrace.data.sources.file_kind import ROW_KINDS, FileKind, Kind, kind_of, refuse_compressed
from headrace.data.sources.image_folders import open_folder, open_objects, open_prefix
from headrace.data.sources.memory_samples import table_of_paths
from headrace.data.sources.pack_source import INDEX, find_pack, shards_among
from headrace.data.sources.path_root import FolderRoot, Root
from headrace.data.sources.repository_files import files_of_split
from headrace.data.sources.shard_formats import INDEX_NAME, describes_shards
from headrace.data.sources.stored_arrays import open_arrays
from headrace.data.storage.open_file import FilePath, StoredPath, file_name
from headrace.data.storage.paths import resolve_paths
from headrace.data.table import SampleTable
from headrace.errors import DatasetError, NotFoundError, UsageError
from headrace.foreign_arguments import known_arguments
from headrace.stores import HubStore, is_remote, show_address

Where: TypeAlias = Path | Sequence[Any] | Mapping[str, Any] | Iterable[Mapping[str, Any]]

_A_TAR = FileKind("tar", "a tar")
_OF_ARCHIVES = tuple(name for name in OF_STORES if name != "verify")
_TAR_NAME = re.compile(r"\.(tar|tgz|tbz2?|txz)\b", re.IGNORECASE)


@known_arguments("open")
def open(  # noqa: A001  # its public name
    where: Where,
    *,
    classes: Classes | None = None,
    root: Root | None = None,
    columns: Sequence[str] | None = None,
    cache: Path | None = None,
    stem: Stem | None = None,
    index: Path | None = None,
    layout: Layout | None = None,
    stage: Path | None = None,
    length: int | None = None,
    store_options: Mapping[str, Any] | None = None,
    store: Any = None,
    retry_for: float | None = None,
    verify: bool | None = None,
) -> Dataset:
    """Open the samples at `where` without reading any of them.

    `where` is one of:
    - a folder of class folders (columns `image`, `label`), or a folder tree with images directly in it (`image`);
    - tars or zips: one, a glob (`shards/*.tar`), a brace list (`train-{000..009}.tar`), or a list of them. Members that
      share a stem (the name up to its first dot) form one sample, and each extension is a column; `image`, `label` and
      `text` are aliases of the usual extensions;
    - a pack that `headrace pack` wrote: its folder or prefix, or a pattern of its tars. It has the columns, keys and
      classes of its source;
    - a manifest (`.csv`, `.tsv`, `.txt`, `.jsonl`, `.odgt`, `.parquet`, `.arrow`), several of one format, or a folder
      of them: one sample per row, with columns of paths and values. Parquet and Arrow may also have bytes or
      `{bytes, path}`, as the Hugging Face Hub stores images. An image field reads a text column as paths, any other
      field as values;
    - a mapping such as `{"image": "images/", "mask": "masks/*_mask.png"}`: folders or patterns; files match by stem;
    - COCO annotations (`.json`): one sample per image, with lists of captions, or of boxes and labels;
    - a folder that Hugging Face datasets' `save_to_disk` wrote;
    - arrays (`.npz`, HDF5): one sample per row, one column per array; an `.npy` [N, H, W, C] or [N, C, H, W] is the
      column `image`. Image fields read their rows as images;
    - MDS shards of MosaicML Streaming, or LitData's chunks: their folder or prefix, or the `index.json` in it;
    - a LeRobot dataset with images in parquet: its folder or prefix;
    - images: a pattern (`photos/*.jpg`), or a list of paths (column `image`);
    - samples in memory: a list of (path, label), as torchvision's `samples`; a dict of columns, which are lists or
      arrays of numbers, texts, paths or bytes, `.npy` files, or images as arrays [N, H, W], [N, H, W, C] or
      [N, C, H, W]; a list of dicts; or an iterable of dicts, which is read to its end;
    - a pandas or polars DataFrame, a pyarrow Table, or a `datasets.Dataset`, whose Arrow data is read in place.

    Files, patterns and folders of images or rows may be in stores: `s3://bucket/shards/*.tar`, `s3://bucket/train/`,
    `gs://…`, `az://container/…`, `https://host/…` (brace lists, but no patterns). Files that columns name may be in
    stores too. Credentials come from the environment, as obstore finds them, or from `store_options`. Opening reads
    only headers; indices are cached in the cache folder.

    Files are detected by their first bytes, text manifests by their suffix. Arguments that do not apply are refused.

    `classes`: take first-level folder names as classes; None: only for a folder with no more images than folders
    directly in it; such images are skipped, with a warning. A list of names selects the samples of these classes,
    numbered in that order. It also selects classes of a column `label`, or names its whole numbers.
    `root`: folder for the paths in a manifest, in annotations or in memory, which may not lead out of it, or archives
    that hold the files; None: paths are absolute, or relative to the manifest's folder (in memory: to the current one).
    `columns`: names for a manifest without a header, or for rows in memory; for named columns, the columns to take. In
    archives, `json.KEY` is the value of that key in the `.json` members.
    `stem`: "last-dot" for archives with dots in their samples' names (`shot 2.0.jpg`): stems then end at the last.
    `cache`: folder for the indices of archives and manifests; None: next to each, or the default cache folder if
    that is not writable.
    `index`: for archives in stores, the address or path of the merged index that `headrace index --to` wrote. It is
    fetched once per node, and a pattern's listing is the only other request. Raises ChangedError if an archive changed
    since.
    `layout`: "NHWC" or "NCHW", for arrays of images [N, 3, W, 3] or the like, which may be either.
    `length`: number of samples of an iterable without `len`; any other number is an error.
    `stage`: folder on a faster file system, such as `/dev/shm/NAME`. Everything is copied there first unless already
    there; one process copies and the others wait. Samples and their identity stay the same, so a state saved without
    `stage` can be resumed with it.

    `store_options`: options for obstore's store of that kind, such as `endpoint` or `region`, and `anonymous`,
    `profile`. `store`: an obstore store for the bucket instead. `retry_for`: seconds to retry requests that fail for
    transient reasons (default: 300, or 30 if the store has never answered). `verify`: True to compare objects that are
    read whole, such as images, with their MD5, where the store's ETag is one.

    Raises UsageError, NotFoundError, EmptyDatasetError, DatasetError (damaged, compressed, no archive) or ReadError;
    with `stage` also WriteError (it would not fit, or cannot be written).
    """
    given = OpenArguments(
        classes=classes,
        root=root,
        columns=columns,
        cache=cache,
        stem=stem,
        index=index,
        layout=layout,
        stage=stage,
        length=length,
        store_options=store_options,
        store=store,
        retry_for=retry_for,
        verify=verify,
    )
    source = find_source(where, given)  # report errors before anything is copied
    if stage is not None:
        from headrace.data.staging import stage_dataset

        where, root = stage_dataset(where, root=root, to=stage)
        given = replace(given, root=root, stage=None)
        source = find_source(where, given)
    if source.labelled and given.class_names is not None:
        return Dataset(*keep_classes(source.open(), given.class_names))
    return Dataset(source.open())


def find_source(where: Where, given: OpenArguments) -> OpenableSource:
    """Return the source that `where` names, without opening it.

    Raises UsageError for an argument that does not apply; NotFoundError or DatasetError for a source that is missing or
    cannot be opened.
    """
    given.check()
    parts = where if isinstance(where, list | tuple) else [where]
    refuse_shard_commands(parts)
    _refuse_stage_of_stores(parts, given)
    source = _in_stores(where, parts, given) if any(map(is_remote, parts)) else in_memory(where, given)
    if source is None:
        source = _at_paths(where, given)
    given.expect_only(source.takes, source.subject, source.what)
    if source.labelled and isinstance(given.classes, bool):
        raise UsageError(
            f"classes: expected a list of the names of classes, got {given.classes}: {source.subject} is "
            f"{source.what}, whose classes are those of its column 'label'. Leave it out to take all"
        )
    return source


# --- sources in stores ---


def _refuse_stage_of_stores(parts: Sequence[Any], given: OpenArguments) -> None:
    roots = given.root if isinstance(given.root, list | tuple) else [given.root]
    remote = next((str(part) for part in (*parts, *roots) if is_remote(part)), None)
    if given.stage is not None and remote is not None:
        raise UsageError(
            f"stage: expected none, got {shown(given.stage)}: {show_address(remote)} lies in a store, which is read as "
            f"the Loader needs it. Give that cache='disk:FOLDER:SIZE', which keeps what was read, or copy the files "
            f"with the store's own tools and open the copy"
        )


def _in_stores(where: Any, parts: Sequence[Any], given: OpenArguments) -> OpenableSource:
    """Return the source at these addresses: check the first, and assume the same kind for others with its suffix."""
    local = next((part for part in parts if not is_remote(part)), None)
    if local is not None:
        raise UsageError(f"expected addresses in stores alone, as others are, got {shown(local)}. Open them apart")
    stores = given.stores()
    if len(parts) == 1 and (prefix := prefix_path(stores.path(parts[0]))) is not None:
        return _prefix(prefix_listing(prefix, given.cache_folder), given)
    paths: list[ObjectPath] = [path for part in parts for path in stores.resolve(part)]
    if given.index_place is not None:
        return _indexed_archives(paths, open_merged_index(given.index_place, stores, cache=given.cache_folder), given)
    try:
        first = kind_of(paths[0])
    except NotFoundError:
        is_alone = len(parts) == 1 and len(paths) == 1 and not paths[0].store.address.is_web
        listing = prefix_listing(paths[0], given.cache_folder) if is_alone else None
        if listing is None or not len(listing):
            raise
        return _prefix(listing, given)
    for path in paths[1:]:
        if _suffix(path) != _suffix(paths[0]) and kind_of(path).kind != first.kind:
            raise UsageError(f"expected files of one kind, got {first.words}, {paths[0]}, and {path}. Open them apart")
    if first.kind == "image":
        addresses = parts if isinstance(where, list | tuple) and len(paths) == len(parts) else None
        if addresses is None and len({path.store.address for path in paths}) > 1:
            addresses = list(map(str, paths))
        open_images = partial(open_objects, paths, stores, addresses=addresses)
        return OpenableSource(paths[0].name, "an image", OF_STORES, open_images)
    return _without_stage(_files(paths, first, given), first)


def _prefix(listing: Listing, given: OpenArguments) -> OpenableSource:
    """Return the source at a prefix: files of rows, or images."""
    path = listing.prefix
    described = described_prefix(listing, given)
    if described is not None:
        return _without_stage(described)
    shards = listing.files(shards_among, beside=lambda _: False)
    if shards:
        index = listing.files(lambda names: [INDEX] if INDEX in names else [], beside=lambda _: False)
        merged = open_merged_index(str(index[0]), given.stores(), cache=given.cache_folder) if index else None
        if merged is not None:
            merged.pin(shards)
        return _without_stage(_archives(shards, _A_TAR, given, merged, whole=True), _A_TAR)
    rows = listing.files(lambda names: rows_among(str(path), names), beside=is_beside_rows)
    if rows:
        return _without_stage(_files(rows, kind_of(rows[0]), given))
    if not path.key and isinstance(path.store, HubStore):
        names = list(listing.names)
        files = files_of_split(str(path), names)
        if files:
            number_of = {name: number for number, name in enumerate(names)}
            found = [listing.path(number_of[name]) for name in files]
            return _without_stage(_files(found, kind_of(found[0]), given))
    open_table = partial(open_prefix, listing, classes=given.classes)
    return OpenableSource(path.name or str(path), "a folder", ("classes", "cache", *OF_STORES), open_table)


def _without_stage(source: OpenableSource, kind: FileKind | None = None) -> OpenableSource:
    """Return a source in a store, without `stage`."""
    of_stores = OF_STORES if kind is None or kind.kind not in ("tar", "zip") else _OF_ARCHIVES
    takes = (*(name for name in source.takes if name != "stage"), *of_stores)
    return replace(source, takes=tuple(dict.fromkeys(takes)))


def _indexed_archives(paths: Sequence[ObjectPath], merged: MergedIndex, given: OpenArguments) -> OpenableSource:
    merged.pin(paths)
    kind = FileKind("zip", "a zip") if merged.format(paths[0]) == ZIP.format else _A_TAR
    return replace(_archives(paths, kind, given, merged), takes=("classes", "columns", "cache", *_OF_ARCHIVES, "index"))


def _suffix(path: StoredPath) -> str:
    return os.path.splitext(path.name)[1].lower()


# --- sources at paths, detected by first bytes ---


def _at_paths(where: Any, given: OpenArguments) -> OpenableSource:
    parts = where if isinstance(where, list | tuple) else [where]
    paths = [path for part in parts for path in resolve_paths(path_of(part))]
    if len(paths) == 1 and os.path.isdir(paths[0]) and not isinstance(where, list | tuple):
        return _folder(paths[0], given)
    first = kind_of(paths[0])
    if first.kind == "image":
        expect_images(spread(paths))
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
    described = described_folder(path, given)
    if described is not None:
        return described
    if is_saved_dataset(path):
        what = "a saved dataset"
        return OpenableSource(name, what, ("stage", "classes"), partial(open_saved_dataset, path), labelled=True)
    shards = [os.path.join(path, name) for name in shards_among(os.listdir(path))]
    if shards:
        return _archives(shards, _A_TAR, given, whole=True)
    rows = rows_in_folder(path)
    if rows:
        return _files(rows, kind_of(rows[0]), given)
    return OpenableSource(name, "a folder", ("stage", "classes"), partial(open_folder, path, classes=given.classes))


def _images(paths: Sequence[str]) -> OpenableSource:
    """Return the images of a pattern, or a single image; keys are relative to their common folder."""
    folder = os.path.commonpath([os.path.dirname(path) for path in paths])
    names = [os.path.relpath(path, folder) for path in paths]
    source = f"{len(paths):,} images in {os.path.basename(folder) or folder}/"
    root = FolderRoot(folder)
    make_table = partial(table_of_paths, names, root=root, source=source)
    return OpenableSource(os.path.basename(paths[0]), "an image", (), make_table)


def _files(paths: Sequence[FilePath], kind: FileKind, given: OpenArguments) -> OpenableSource:
    """Return the source for files of one kind, at absolute paths."""
    source_of = _SOURCES.get(kind.kind)
    if source_of is not None:
        return source_of(paths, kind, given)
    name = file_name(paths[0])
    if kind.kind == "compressed" and _TAR_NAME.search(name) and isinstance(paths[0], str):
        refuse_compressed(paths[0])
    file = f" {name}" if kind.kind == "compressed" else ""
    raise DatasetError(
        f"{paths[0]}: expected a folder, tars, zips, a manifest or images, got {kind.words}. {kind.advice}{file}"
    )


def _rows(paths: Sequence[FilePath], _: FileKind, given: OpenArguments) -> OpenableSource:
    takes = ("stage", "root", "columns", "cache", "classes", *OF_STORES)

    def open_rows() -> SampleTable:
        root = root_of(paths, given)
        return open_manifest(paths, root=root, columns=given.columns, cache=given.cache_folder)

    return OpenableSource(file_name(paths[0]), "a manifest", takes, open_rows, labelled=True)


def _annotations(paths: Sequence[FilePath], _: FileKind, given: OpenArguments) -> OpenableSource:
    if len(paths) == 1 and file_name(paths[0]) == INDEX_NAME and describes_shards(paths[0]):
        return shards_of(paths[0], given)
    if len(paths) > 1:
        raise UsageError(f"expected one file of annotations, got {len(paths):,}. Join them, or open each")
    takes, what = ("stage", "root", *root_arguments(given)), "a file of COCO's annotations"
    return OpenableSource(file_name(paths[0]), what, takes, lambda: open_coco(paths[0], root_of(paths, given)))


def _arrays(paths: Sequence[FilePath], kind: FileKind, given: OpenArguments) -> OpenableSource:
    path = paths[0]
    if len(paths) > 1 or not isinstance(path, str):
        raise UsageError(
            f"expected one local file of arrays, got {kind.words}, {path}, of {len(paths):,}. Open each alone"
        )

    def open_file() -> SampleTable:
        root = root_of(paths, given)
        return open_arrays(path, given.columns, root=root, cache=given.cache_folder, layout=given.layout)

    takes = ("root", "columns", "cache", "classes", "layout")
    return OpenableSource(file_name(path), kind.words, takes, open_file, labelled=True)


def _archives(
    paths: Sequence[FilePath],
    kind: FileKind,
    given: OpenArguments,
    merged: MergedIndex | None = None,
    *,
    whole: bool = False,
) -> OpenableSource:
    """Return the source for tars or zips; `whole`: they are the shards of a pack, and must be all."""
    archives: ArchiveKind[Any] = ZIP if kind.kind == "zip" else TAR
    pack = find_pack(paths)
    if pack is not None and whole:
        pack.expect_all()

    def open_chosen() -> SampleTable:
        tars = open_archives(
            archives,
            paths,
            classes=given.classes if pack is None else None,
            cache=given.cache_folder,
            merged=merged,
            last_dot=given.stem is not None,
            are_pack=pack is not None,
        )
        table = tars if pack is None else pack.table(tars, cache=given.cache_folder)
        if given.columns is None:
            return table
        return choose_columns(replace(table, columns={**tars.columns, **table.columns}), given.columns)

    takes = ["stage", "classes", "columns", "cache"]
    takes += ["stem"] if pack is None else []
    what = f"{kind.words} of samples" if pack is None else "a pack"
    return OpenableSource(file_name(paths[0]), what, tuple(takes), open_chosen, labelled=pack is not None)


_SOURCES: Mapping[Kind, Callable[[Sequence[FilePath], FileKind, OpenArguments], OpenableSource]] = {
    **dict.fromkeys(ROW_KINDS, _rows),
    "json": _annotations,
    "arrays": _arrays,
    "tar": _archives,
    "zip": _archives,
}
"""Sources of files by kind: a new kind takes a row here, its first bytes in `file_kind`, and a module that opens it."""
