"""Combined reads of all processes of a run: opened files and requests to stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from headrace.doctor.session.producers import FileOpens, OpenedFile, OpenedFolder, RemoteReads, StoreReads

NamedRecord = tuple[Any, dict[int, str]]
"""Record of a process with the names in its file by number."""


def merge_opened(records: Iterable[NamedRecord]) -> FileOpens:
    """Merge the `opened` records of all processes, most opens first.

    Paths with lost names are skipped. A folder is merged into an outer folder that a process counted as a whole.
    """
    files: Counter[str] = Counter()
    folders: list[tuple[str, Sequence[Any]]] = []
    rest = 0
    for record, names in records:
        rest += record.rest
        for name, opens in record.files:  # several names may be one path
            if name in names:
                files[names[name]] += opens
        folders += [(names[name], counts) for name, *counts in record.folders if name in names]
    deep = {path for path, (_, is_deep, *_) in folders if is_deep}
    merged: dict[str, list[Sequence[Any]]] = {}
    for path, counts in folders:
        outermost = min((it for it in deep if path == it or path.startswith(f"{it}/")), key=len, default=path)
        merged.setdefault(outermost, []).append(counts)
    return FileOpens(
        files=[OpenedFile(path, opens) for path, opens in files.most_common()],
        folders=sorted((_folder(path, counts) for path, counts in merged.items()), key=lambda folder: -folder.opens),
        rest=rest,
    )


def _folder(path: str, counts: Sequence[Sequence[Any]]) -> OpenedFolder:
    """Merge the counts of one folder: opens, whether counted as a whole, and endings."""
    opens, deep, ends = zip(*counts, strict=True)
    return OpenedFolder(path, sum(opens), any(deep), sorted(set[str]().union(*ends)))


def merge_remote(records: Iterable[NamedRecord]) -> RemoteReads:
    """Merge the `remote` records of all processes, except stores with lost names."""
    batches = 0
    stores: dict[str, list[Sequence[Any]]] = {}
    for record, names in records:
        batches += record.batches
        for name, *counts in record.stores:
            if name in names:
                stores.setdefault(names[name], []).append(counts)
    merged = sorted((_store(place, counts) for place, counts in stores.items()), key=lambda store: -store.bytes)
    return RemoteReads(batches, merged)


def joined_remote(first: RemoteReads, second: RemoteReads) -> RemoteReads:
    """Join the reads of two nodes."""
    stores = {store.place: store for store in first.stores}
    for store in second.stores:
        same = stores.get(store.place)
        if same is None:
            stores[store.place] = store
            continue
        stores[store.place] = StoreReads(
            store.place,
            requests=same.requests + store.requests,
            failed=same.failed + store.failed,
            bytes=same.bytes + store.bytes,
            first_us=same.first_us + store.first_us,
            latencies=_latencies([same.latencies, store.latencies]),
        )
    return RemoteReads(first.batches + second.batches, sorted(stores.values(), key=lambda store: -store.bytes))


def _store(place: str, counts: Sequence[Sequence[Any]]) -> StoreReads:
    """Merge the processes' counts for one store."""
    requests, failed, sizes, first_us, latencies = zip(*counts, strict=True)
    return StoreReads(place, sum(requests), sum(failed), sum(sizes), sum(first_us), _latencies(latencies))


def _latencies(each: Iterable[Iterable[tuple[int, int]]]) -> list[tuple[int, int]]:
    counted: Counter[int] = Counter()
    for latencies in each:
        for step, count in latencies:
            counted[step] += count
    return sorted(counted.items())
