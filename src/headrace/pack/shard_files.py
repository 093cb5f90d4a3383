"""Files of a pack: tars of samples, a JSON document for each, and the lock of a run."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import tarfile
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from headrace.data import UnwritableError, finish_partial_file, partial_file, writing
from headrace.errors import HeadraceError, ReadError, WriteError
from headrace.pack.members import PackMember, SampleReader, key_of

FORMAT = "headrace pack 1"
PLAN = "pack.json"
_CHECK = "check"
Ints = np.ndarray[Any, np.dtype[np.int64]]


def shard_name(shard: int) -> str:
    return f"shard-{shard:06d}.tar"


def read_document(path: Path) -> dict[str, Any]:
    """Return a JSON document of a pack. Raises ReadError if it is missing, damaged, or of another format."""
    try:
        found = json.loads(path.read_bytes())
        if found.pop(_CHECK) != _check(found):
            raise ValueError("its content has changed")
        if found["format"] != FORMAT:
            raise ValueError(f"expected {FORMAT!r}, got {found['format']!r}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ReadError(f"{path}: expected a document of headrace pack: {why}") from error
    return dict(found)


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON document, which has its name only once it is complete and synced. Raises WriteError."""
    document = {"format": FORMAT, **document}
    data = json.dumps({**document, _CHECK: _check(document)}).encode()

    def write(file: BinaryIO) -> None:
        file.write(data)

    _write(path, write)


def read_entry(tar: Path) -> dict[str, Any]:
    """Return the document of a shard. Raises ReadError."""
    try:
        return read_document(tar.with_suffix(".json"))
    except ReadError as error:
        raise ReadError(f"{error}; delete {tar.name} and run pack again") from error


def _check(document: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(document, sort_keys=True).encode())


def _write(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Write a file unless another run has written it in the meantime. Raises WriteError."""
    try:
        with partial_file(str(path)) as partial:
            if not path.exists():
                finish_partial_file(partial, str(path), write)
                _sync_folder(path.parent)
    except UnwritableError as error:
        raise WriteError(f"{path}: {error}") from error


def write_shard(
    reader: SampleReader, order: Ints, tar: Path, pool: ThreadPoolExecutor, tick: Callable[[int, int], None]
) -> None:
    """Write one shard and its entry. Neither has its name before it is complete and synced.

    `tick` is called with the samples done and the bytes written. Raises WriteError, HeadraceError for a bad sample.
    """
    keys: list[str] = []
    checks: list[int] = []
    dropped: list[tuple[str, str]] = []
    seen: Counter[str] = Counter()

    def write(file: BinaryIO) -> None:
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
        write_document(
            tar.with_suffix(".json"),
            {
                "keys": keys,
                "bytes": hashed.bytes,
                "sha256": hashed.digest.hexdigest(),
                "crc32": checks,
                "dropped": dropped,
            },
        )

    _write(tar, write)


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
    indices = iter(order.tolist())
    try:
        for index in indices:
            ahead.append((index, pool.submit(reader.try_members, index)))
            if len(ahead) > 2 * pool._max_workers + 4:
                first, future = ahead.popleft()
                yield first, future.result()
        while ahead:
            first, future = ahead.popleft()
            yield first, future.result()
    finally:
        for _, future in ahead:
            future.cancel()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(to: Path, number: int, parts: int) -> Iterator[None]:
    """Hold the lock of one part. The kernel frees it when the process ends. Raises WriteError if another run has it."""
    name = to / f".lock-{number}-of-{parts}"
    with writing(os.fsencode(name)):
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise WriteError(
                f"{to}: another run is writing part {number} of {parts}; wait for it, or use --shard I/N"
            ) from error
        yield
    finally:
        os.close(descriptor)
