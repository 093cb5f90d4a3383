"""Files of a pack: tars of samples, and a JSON document for each."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO

from headrace.errors import DatasetError, HeadraceError
from headrace.pack.members import Ints, PackMember, SampleReader, key_of
from headrace.pack.pack_folder import PackFolder

FORMAT = "headrace pack 1"
PLAN = "pack.json"
_CHECK = "check"
_READ_AT_ONCE = 16


def shard_name(shard: int) -> str:
    return f"shard-{shard:06d}.tar"


def read_document(folder: PackFolder, name: str) -> dict[str, Any]:
    """Return a JSON document of a pack. Raises NotFoundError, ReadError, or DatasetError if it is damaged."""
    data = folder.read(name)
    try:
        found = json.loads(data)
        if found.pop(_CHECK) != _check(found):
            raise ValueError("its content has changed")
        if found["format"] != FORMAT:
            raise ValueError(f"expected {FORMAT!r}, got {found['format']!r}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DatasetError(f"{folder.path(name)}: expected a document of headrace pack: {error}") from error
    return dict(found)


def write_document(folder: PackFolder, name: str, document: Mapping[str, Any]) -> None:
    """Write a JSON document. Raises as `PackFolder.write` does."""
    document = {"format": FORMAT, **document}
    data = json.dumps({**document, _CHECK: _check(document)}).encode()

    def write(file: BinaryIO) -> None:
        file.write(data)

    folder.write(name, write)


def read_entry(folder: PackFolder, tar: str) -> dict[str, Any]:
    """Return the document of a shard. Raises ReadError, or DatasetError if it is missing or damaged."""
    try:
        return read_document(folder, _document_name(tar))
    except DatasetError as error:
        raise DatasetError(f"{error}; delete {tar} and run pack again") from error


def read_entries(folder: PackFolder, tars: Sequence[str]) -> list[dict[str, Any]]:
    """Return the documents of shards, of which several are read at once. Raises as `read_entry` does."""
    with ThreadPoolExecutor(_READ_AT_ONCE, "headrace-pack") as pool:
        return list(pool.map(lambda tar: read_entry(folder, tar), tars))


def _document_name(tar: str) -> str:
    return tar.removesuffix(".tar") + ".json"


def _check(document: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(document, sort_keys=True).encode())


def write_shard(
    reader: SampleReader,
    order: Ints,
    folder: PackFolder,
    tar: str,
    pool: ThreadPoolExecutor,
    tick: Callable[[int, int], None],
) -> int:
    """Write the shard `tar` after its entry, and return its bytes; 0 if another run has written it.

    `tick` is called with the samples done and the bytes written. Raises as `PackFolder.write` does, and HeadraceError
    for a bad sample.
    """
    keys: list[str] = []
    checks: list[int] = []
    dropped: list[tuple[str, str]] = []
    seen: Counter[str] = Counter()
    tar_bytes = 0

    def write(file: BinaryIO) -> None:
        nonlocal tar_bytes
        hashed = _Hashed(file)
        with tarfile.open(fileobj=hashed, mode="w|", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
            for done, (index, outcome) in enumerate(_converted(reader, order, pool), 1):
                tick(done, hashed.bytes)
                if isinstance(outcome, HeadraceError):
                    if not reader.converter.options.drop_bad:
                        raise HeadraceError(f"{outcome}; drop_bad (--drop-bad) leaves such samples out") from outcome
                    dropped.append((reader.dataset.key(index), str(outcome)))
                    continue
                key = key_of(reader.dataset.key(index))
                seen[key] += 1
                key = key if seen[key] == 1 else f"{key}-{seen[key]}"
                keys.append(key)
                for suffix, data in outcome:
                    entry = tarfile.TarInfo(key + suffix)
                    entry.size = len(data)
                    archive.addfile(entry, io.BytesIO(data))
                    checks.append(zlib.crc32(data))
        tar_bytes = hashed.bytes
        write_document(
            folder,
            _document_name(tar),
            {
                "keys": keys,
                "bytes": tar_bytes,
                "sha256": hashed.digest.hexdigest(),
                "crc32": checks,
                "dropped": dropped,
            },
        )

    folder.write(tar, write)
    return tar_bytes


class _Hashed:
    """Binary file that is written once from its start, with the SHA-256 of its bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.digest, self.bytes = file, hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.bytes += len(data)
        return self._file.write(data)


def _converted(
    reader: SampleReader, order: Ints, pool: ThreadPoolExecutor
) -> Iterator[tuple[int, list[PackMember] | HeadraceError]]:
    """Yield the samples' members in order, with a few more samples in conversion. Raises as `try_members` does."""
    ahead: deque[tuple[int, Future[list[PackMember] | HeadraceError]]] = deque()
    try:
        for index, values in zip(order.tolist(), reader.value_members(order), strict=True):
            ahead.append((index, pool.submit(reader.try_members, index, values)))
            if len(ahead) > 2 * pool._max_workers + 4:
                first, future = ahead.popleft()
                yield first, future.result()
        while ahead:
            first, future = ahead.popleft()
            yield first, future.result()
    finally:
        for _, future in ahead:
            future.cancel()
