"""`pack`: cut a dataset into shards, write each of them whole or not at all, and go on where a killed run stopped.

The cut is a pure function of the dataset and the options, so any number of machines can write shards without talking
to each other, and the result has the same bytes as one machine's. A folder of shards holds

    pack.json                 what the shards were made from, where they are cut, and the schema: column to member
    columns.headrace          the samples' keys, and all columns except bytes, with their types
    shard-000000.tar          samples in WebDataset's layout
    shard-000000.json         its samples, its SHA-256, its members' CRC-32, and the samples left out

A shard's JSON file is written and synced before its tar gets its name: a shard is complete once its tar has a name.
In a store, `index.headrace` holds the indices of all shards.
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

import msgspec
import numpy as np

from headrace import _core
from headrace.data import (
    COLUMNS,
    PLAN,
    ByteColumn,
    BytesInMemory,
    BytesListColumn,
    Dataset,
    FileColumn,
    file_bytes,
    shard_name,
    write_columns,
)
from headrace.errors import HeadraceError, NotFoundError, UsageError
from headrace.pack.conversion import ImageConverter, PackOptions
from headrace.pack.members import Ints, PackMember, SampleReader, json_place
from headrace.pack.pack_folder import PackFolder
from headrace.pack.shard_files import dropped_samples, read_document, read_entries, write_document, write_shard
from headrace.stores import is_remote
from headrace.system import default_threads

_TRIED = 64
"""Samples that are converted to estimate a shard's size."""
_READS_PER_CORE = 8
"""Samples in parallel per core if the source is in a store, which most of them wait for."""
_SIZED_AT_ONCE = 1000
_BLOCK = tarfile.BLOCKSIZE
_MARGIN = 1.03
"""Factor on the estimated size, so that hardly any shard is larger than asked."""


@dataclass(frozen=True)
class PackReport:
    """Outcome of `pack`."""

    shards: int
    """Shards of this run's part, written now or before."""
    written: int
    """Shards written by this run."""
    samples: int
    source_bytes: int
    bytes: int
    """Bytes of the tars."""
    dropped: tuple[tuple[str, str], ...]
    """Key and reason of each sample left out."""
    wall_s: float


def pack(
    dataset: Dataset,
    to: str | os.PathLike[str],
    options: PackOptions,
    *,
    part: tuple[int, int] = (0, 1),
    threads: int | None = None,
    tick: Callable[[int, int, int], None] | None = None,
    store_options: Mapping[str, Any] | None = None,
) -> PackReport:
    """Write the shards of a dataset that are not there yet, with their indices.

    `to` is a folder, or an address in a store with `store_options` as in `open`; there, the run of the only part
    writes one merged index. `part`: (i, n) writes every n-th shard from the i-th on. `tick` is called with the number
    of samples done, their total in this part, and the bytes written. Raises UsageError if `to` holds another pack,
    WriteError if it cannot be written or another run is writing this part, ReadError if a store fails, HeadraceError
    for a bad sample unless `drop_bad`.
    """
    number, parts = part
    if not 0 <= number < parts:
        raise UsageError(f"shard: expected i of n with 0 ≤ i < n, got {number} of {parts}")
    begun_s = time.monotonic()
    reader, folder = SampleReader(dataset, ImageConverter(options)), PackFolder.of(to, store_options)
    expect_target(reader, folder)
    with folder.locked(number, parts), sample_pool(reader.dataset, reader.files, threads) as pool:
        plan = found_plan(reader, folder) or write_plan(reader, folder, pool)
        mine = range(number, plan.shards, parts)
        missing = plan.missing(folder, mine)
        total = sum(plan.samples(shard) for shard in mine)
        done, written_bytes = total - sum(plan.samples(shard) for shard in missing), 0
        for shard in missing:

            def show(more: int, written: int, before: tuple[int, int] = (done, written_bytes)) -> None:
                if tick is not None:
                    tick(before[0] + more, total, before[1] + written)

            written_bytes += write_shard(reader, plan.order_of(shard), folder, shard_name(shard), pool, show)
            done += plan.samples(shard)
    if folder.stores is None or parts == 1:
        folder.index([shard_name(shard) for shard in mine], threads=threads)
    return plan.report(folder, mine, written=len(missing), begun_s=begun_s)


def sample_pool(
    dataset: Dataset, columns: Iterable[str], threads: int | None, *, cores: int | None = None
) -> ThreadPoolExecutor:
    """Return the threads that read columns of files and work on them. Default: one per core, several for a store."""
    is_stored = any(dataset.files(name).is_remote for name in columns)
    per_core = _READS_PER_CORE if is_stored else 1
    return ThreadPoolExecutor(threads or (cores or default_threads()) * per_core, "headrace-pack")


@dataclass(frozen=True)
class Estimate:
    """Sizes of all samples, estimated from a few."""

    source: Ints
    """Bytes of each sample's files in the dataset, in the pack's order."""
    sizes: np.ndarray[Any, np.dtype[np.float64]]
    """Expected bytes of each sample in a tar, in the pack's order: its content and the mean of headers and padding."""
    tried: list[int]
    members: list[list[PackMember]]
    """Members of each sample tried; empty for a bad sample."""


@dataclass(frozen=True)
class PackPlan:
    """Order of the samples, and their division into shards."""

    order: Ints
    cuts: list[int]
    """Position in `order` of each shard's first sample, and the end."""
    source_bytes: int

    @property
    def shards(self) -> int:
        return len(self.cuts) - 1

    def samples(self, shard: int) -> int:
        return self.cuts[shard + 1] - self.cuts[shard]

    def order_of(self, shard: int) -> Ints:
        """Return the samples of a shard, by position in the dataset."""
        return self.order[self.cuts[shard] : self.cuts[shard + 1]]

    def missing(self, folder: PackFolder, shards: Sequence[int]) -> list[int]:
        """Return the incomplete ones among `shards`. Raises ReadError."""
        names = folder.names()
        return [shard for shard in shards if shard_name(shard) not in names]

    def report(self, folder: PackFolder, shards: Sequence[int], *, written: int, begun_s: float) -> PackReport:
        """Return the outcome of a run, from the entries of its shards. Raises as `read_entries` does."""
        entries = read_entries(folder, [shard_name(shard) for shard in shards])
        return PackReport(
            shards=len(shards),
            written=written,
            samples=sum(len(entry["keys"]) for entry in entries),
            source_bytes=self.source_bytes,
            bytes=sum(entry["bytes"] for entry in entries),
            dropped=dropped_samples(entries),
            wall_s=time.monotonic() - begun_s,
        )


def _identity(reader: SampleReader) -> dict[str, Any]:
    """Return what all runs that write one pack have in common."""
    options = {name: value for name, value in asdict(reader.converter.options).items() if name != "drop_bad"}
    found: dict[str, Any] = {
        "dataset": reader.dataset.fingerprint,
        "samples": len(reader.dataset),
        "schema": msgspec.to_builtins(reader.schema),
        "json": json_place(reader.schema),
        "options": options,
        "codecs": _core.codec_versions(),
    }
    return dict(json.loads(json.dumps(found)))


def found_plan(reader: SampleReader, folder: PackFolder) -> PackPlan | None:
    """Return the plan in the folder; None if there is none. Raises UsageError for another pack's plan."""
    try:
        found = read_document(folder, PLAN)
    except NotFoundError:
        return None
    wanted = _identity(reader)
    other = [name for name in wanted if found.get(name) != wanted[name]]
    if other:
        raise UsageError(f"{folder} holds a pack with another {', '.join(other)}; choose another folder, or delete it")
    order = sample_order(len(reader.dataset), reader.converter.options.shuffle)
    return PackPlan(order, found["cuts"], found["source_bytes"])


def write_plan(reader: SampleReader, folder: PackFolder, pool: ThreadPoolExecutor) -> PackPlan:
    """Compute the plan and write it, after the values. Two runs compute the same."""
    estimate, identity = estimated(reader, pool), _identity(reader)
    cuts, source_bytes = cut(estimate.sizes, reader.converter.options), int(estimate.source.sum())
    known = hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=16).hexdigest()
    order = sample_order(len(reader.dataset), reader.converter.options.shuffle)
    rows = order if reader.dataset.base_ids is None else reader.dataset.base_ids[order]

    def write(file: BinaryIO) -> None:
        held = (reader.dataset.columns[each.name] for each in reader.values)
        columns = (column.rows(rows) for column in held if not isinstance(column, ByteColumn | BytesListColumn))
        write_columns(file, known, reader.dataset.table.keys.take(rows), columns)

    folder.write(COLUMNS, write, replaces=True)  # without a plan, it is of another run
    write_document(folder, PLAN, {**identity, "id": known, "cuts": cuts, "source_bytes": source_bytes})
    return PackPlan(order, cuts, source_bytes)


def sample_order(samples: int, seed: int | None) -> Ints:
    positions = np.arange(samples, dtype=np.int64)
    return positions if seed is None else _core.permute(samples, _core.hash64(seed, 0), positions)


def estimated(reader: SampleReader, pool: ThreadPoolExecutor) -> Estimate:
    dataset = reader.dataset
    order = sample_order(len(dataset), reader.converter.options.shuffle)
    source = np.zeros(len(order), np.int64)
    for name in reader.files:
        source += _stored_bytes(dataset, name, order, pool)
    tried = sorted({int(at) for at in np.linspace(0, len(order) - 1, _TRIED)}) if len(order) else []
    found = pool.map(reader.try_members, order[tried].tolist(), reader.value_members(order[tried]))
    members = [[] if isinstance(one, HeadraceError) else one for one in found]  # the run reports bad samples
    good = [at for at, one in zip(tried, members, strict=True) if one]
    content = sum(len(member.data) for one in members for member in one)
    overhead = sum(map(_tar_bytes, members)) - content  # headers and padding
    sizes = source.astype(np.float64) * (content / max(1, int(source[good].sum()))) + overhead / max(1, len(good))
    return Estimate(source, sizes, tried, members)


def _stored_bytes(dataset: Dataset, column: str, order: Ints, pool: ThreadPoolExecutor) -> Ints:
    found = dataset.table.bytes_of(column)
    lengths = found.stored_bytes(order if dataset.base_ids is None else dataset.base_ids[order])
    if lengths is None:
        at = dataset.locate(column, order)
        files = found.files if at.files is None else at.files
        parts = np.array_split(at.path_id, len(order) // _SIZED_AT_ONCE + 1)
        sizes = pool.map(lambda part: [file_bytes(files, number) for number in part.tolist()], parts)
        lengths = np.concatenate([np.array(part, np.int64) for part in sizes])
    return np.maximum(lengths, 0)  # without those that are absent


def _tar_bytes(members: Sequence[PackMember]) -> int:
    return sum(_BLOCK + -(-len(member.data) // _BLOCK) * _BLOCK for member in members)


def cut(sizes: np.ndarray[Any, np.dtype[np.float64]], options: PackOptions) -> list[int]:
    """Return where shards begin, and the end. Each is expected to take at most `max_shard_bytes`, or has one sample."""
    room, cuts = options.max_shard_bytes - tarfile.RECORDSIZE, [0]
    ends = np.cumsum(sizes * _MARGIN)
    while cuts[-1] < len(sizes):
        before = ends[cuts[-1] - 1] if cuts[-1] else 0.0
        cuts.append(max(cuts[-1] + 1, int(np.searchsorted(ends, before + room, side="right"))))
    return cuts


def expect_target(reader: SampleReader, folder: PackFolder) -> None:
    """Raise UsageError if the pack cannot be written there, or would be in its own source, or the source in it."""
    folder.expect_writable()
    target = _settled(folder.place)
    for name in reader.files if len(reader.dataset) else ():
        column = reader.dataset.table.bytes_of(name)
        if isinstance(column, BytesInMemory):
            continue
        listed = column.folder if isinstance(column, FileColumn) else None
        first = reader.dataset.where(name, 0)[0]
        if _settled(first).startswith(target) or (listed is not None and target.startswith(_settled(listed))):
            raise UsageError(f"expected a folder apart from the dataset, got {folder} and {listed or first}")


def _settled(place: str) -> str:
    """Return an address, or the path of a folder without links, with a slash at its end."""
    return (place if is_remote(place) else os.path.realpath(place)).rstrip("/") + "/"
