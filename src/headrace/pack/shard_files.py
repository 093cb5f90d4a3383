"""Files of a pack: tars of samples, and a JSON document for each."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO

from headrace.data import document_bytes, document_name, parse_document
from headrace.errors import DatasetError, HeadraceError
from headrace.pack.members import Ints, PackMember, SampleReader
from headrace.pack.pack_folder import PackFolder

_READ_AT_ONCE = 16


def read_document(folder: PackFolder, name: str) -> dict[str, Any]:
    """Return a JSON document of a pack. Raises NotFoundError, ReadError, or DatasetError if it is damaged."""
    return parse_document(folder.read(name), folder.path(name))


def write_document(folder: PackFolder, name: str, document: Mapping[str, Any]) -> None:
    """Write a JSON document. Raises as `PackFolder.write` does."""
    data = document_bytes(document)

    def write(file: BinaryIO) -> None:
        file.write(data)

    folder.write(name, write)


def read_entry(folder: PackFolder, tar: str) -> dict[str, Any]:
    """Return the document of a shard. Raises ReadError, or DatasetError if it is missing or damaged."""
    try:
        return read_document(folder, document_name(tar))
    except DatasetError as error:
        raise DatasetError(f"{error}; delete {tar} and run pack again") from error


def read_entries(folder: PackFolder, tars: Sequence[str]) -> list[dict[str, Any]]:
    """Return the documents of shards, of which several are read at once. Raises as `read_entry` does."""
    with ThreadPoolExecutor(_READ_AT_ONCE, "headrace-pack") as pool:
        return list(pool.map(lambda tar: read_entry(folder, tar), tars))


def dropped_samples(entries: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Return the key and the reason of each sample left out of these shards."""
    return tuple((key, why) for entry in entries for _, key, why in entry["dropped"])


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
    dropped: list[tuple[int, str, str]] = []
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
                    dropped.append((done - 1, reader.dataset.key(index), str(outcome)))
                    continue
                key = reader.keys[index]
                keys.append(key)
                for suffix, data in outcome:
                    entry = tarfile.TarInfo(key + suffix)
                    entry.size = len(data)
                    archive.addfile(entry, io.BytesIO(data))
                    checks.append(zlib.crc32(data))
        tar_bytes = hashed.bytes
        write_document(
            folder,
            document_name(tar),
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
