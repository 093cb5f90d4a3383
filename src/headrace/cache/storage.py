"""`Store`: bytes by number, cached for later epochs and shared by the processes of a node.

In RAM a cache is one piece of anonymous memory, shared by all processes that request it by the same name. The first
process creates it, and passes its descriptor to the others over a socket in Linux's abstract namespace. The socket is
not a file and ends with its process, so nothing can be left behind, and `/dev/shm` is not used. The memory lives on
with its users.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.cache.claims import Claims
from headrace.cache.spec import CacheIdentity, CacheSpec, CacheStats, size_text
from headrace.data import PARTIAL_SUFFIX, UnwritableError, partial_file
from headrace.errors import SharedMemoryError, UsageError, WriteError, warn_caller
from headrace.system import THREAD_PREFIX, available_bytes, close_at_exit, close_in_forks

if TYPE_CHECKING:
    from typing_extensions import Buffer


_WAIT_S = 5.0
"""Timeout of an answer. The listening thread has no other work."""
_PASSING = (errno.ECONNABORTED, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Temporary errors: the next request may succeed, since this process may have closed some files by then."""
_PAUSE_S = 0.05
_CREDENTIALS = struct.Struct("3i")


class DescriptorServer:
    """Server that passes a descriptor to every process of this user that requests it, until it is closed."""

    def __init__(self, listening: socket.socket, descriptor: int) -> None:
        self._socket = listening
        self._descriptor = descriptor
        self._owner = os.getpid()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=f"{THREAD_PREFIX}cache", daemon=True)
        close_in_forks(self)
        self._thread.start()

    def close(self) -> None:
        if os.getpid() != self._owner:  # the thread belongs to the parent, and must not be woken
            self._socket.close()
            return
        self._closing.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes `accept`
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                asking, _ = self._socket.accept()
            except OSError as error:
                if error.errno not in _PASSING or self._closing.wait(_PAUSE_S):
                    return
                continue
            with asking, suppress(OSError):
                if _peer_user(asking) == os.getuid():
                    socket.send_fds(asking, [b"1"], [self._descriptor])


def shared_descriptor(name: str, make: Callable[[], int]) -> tuple[int, DescriptorServer | None]:
    """Return a descriptor of the memory with that name, and its server if this process created it.

    The caller owns the descriptor. The memory is private to this process if another user has taken the name, its owner
    does not answer, or the system has no such sockets. Raises the errors of `make`.
    """
    address = f"\0headrace-cache-{os.getuid()}-{name}"
    until = time.monotonic() + _WAIT_S
    while True:
        try:
            listening = _listen(address)
        except OSError:
            return make(), None
        if listening is not None:
            try:  # other processes wait in the socket's queue meanwhile
                descriptor = make()
                return descriptor, DescriptorServer(listening, descriptor)
            except BaseException:
                listening.close()
                raise
        found = _ask(address)
        if found is not None:
            return found, None
        if time.monotonic() > until:
            return make(), None
        time.sleep(0.01)  # its owner has bound it and does not listen yet, or has just ended


def _listen(address: str) -> socket.socket | None:
    """Listen at an address; None if another process does. Raises OSError if listening is impossible."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return listening


def _ask(address: str) -> int | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_WAIT_S)
        try:
            asking.connect(address)
            if _peer_user(asking) != os.getuid():
                return None
            _, descriptors, _, _ = socket.recv_fds(asking, 1, 1)
        except OSError:
            return None
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return descriptors[0] if descriptors else None


def _peer_user(connection: socket.socket) -> int:
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(told)[1])


_ANEW = {
    "damaged": "is damaged",
    "other version": "is of another version of Headrace",
    "other key": "is damaged",  # its name contains this key
    "other stamp": "is of files that have changed since",
}


def open_file(spec: CacheSpec, identity: CacheIdentity, *, reuses: bool) -> tuple[int, DescriptorServer | None]:
    """Return a descriptor that the caller owns, and the server that passes it to other processes.

    Raises UsageError (a limit without room for the index, or above the free memory), SharedMemoryError, WriteError.
    Warns if a file has to be made anew.
    """
    index_bytes = _core.cache_bytes(identity.entries, reuses=reuses)
    if spec.limit_bytes <= index_bytes:
        raise UsageError(
            f"cache: expected a limit above the {size_text(index_bytes)} that an index of {identity.entries:,} entries "
            f"takes, got {size_text(spec.limit_bytes)}"
        )
    if spec.folder is None:
        return shared_descriptor(
            f"{identity.name}-{identity.stamp[:8].hex()}-{spec.limit_bytes}", lambda: _in_ram(spec, identity, reuses)
        )
    return _on_disk(spec.folder, identity, reuses), None


def _in_ram(spec: CacheSpec, identity: CacheIdentity, reuses: bool) -> int:
    free = available_bytes()
    if free is not None and spec.limit_bytes > free:
        raise UsageError(
            f"cache: expected a limit within the {size_text(free)} of memory that are free, got "
            f"{size_text(spec.limit_bytes)}; lower it, or cache on a disk: disk:FOLDER:SIZE"
        )
    try:
        descriptor = os.memfd_create("headrace-cache")
    except (AttributeError, OSError) as error:
        raise SharedMemoryError(
            f"no memory for a cache: memfd_create of Linux: {error}; use disk:FOLDER:SIZE"
        ) from error
    try:
        _make(descriptor, identity, reuses)
    except OSError as error:
        os.close(descriptor)
        raise SharedMemoryError(f"no memory for a cache: {error.strerror or error}; lower its limit") from error
    return descriptor


def _on_disk(folder: str, identity: CacheIdentity, reuses: bool) -> int:
    place = os.path.join(folder, f"headrace-{identity.name}.cache")
    try:
        above = os.path.dirname(folder)
        if not os.path.isdir(above):
            raise UsageError(
                f"cache: expected a folder in one that exists, got {folder}, and there is no {above}. Correct the "
                f"path, or make the folder: mkdir -p {above}"
            )
        Path(folder).mkdir(exist_ok=True)
        found, _ = _look(place, identity, reuses)
        if found is not None:
            return found
        with partial_file(place):
            found, why = _look(place, identity, reuses)  # the previous holder of the lock may have made it
            if found is not None:
                return found
            if why is not None:
                warn_caller(f"the cache {place} {why}, and is made anew")
            return _make_at(place, identity, reuses)
    except (OSError, UnwritableError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise WriteError(
            f"the cache {place} cannot be made: {why}; check the folder, its rights and free space"
        ) from error


def _look(place: str, identity: CacheIdentity, reuses: bool) -> tuple[int | None, str | None]:
    """Return the file at `place` if it is ours, or the reason why it is not; (None, None) if there is no file."""
    try:
        descriptor = os.open(place, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None, None
    kind = _core.cache_kind(descriptor, entries=identity.entries, key=identity.key, stamp=identity.stamp, reuses=reuses)
    if kind == "ours":
        return descriptor, None
    os.close(descriptor)
    return None, _ANEW[kind]


def _make_at(place: str, identity: CacheIdentity, reuses: bool) -> int:
    """Create the file in the locked partial file, and rename it once complete. Users of the old file retain it."""
    partial = place + PARTIAL_SUFFIX
    descriptor = os.open(partial, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, 0)
        _make(descriptor, identity, reuses)
        os.replace(partial, place)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _make(descriptor: int, identity: CacheIdentity, reuses: bool) -> None:
    _core.make_cache(descriptor, entries=identity.entries, key=identity.key, stamp=identity.stamp, reuses=reuses)


class Store:
    """Entries 0 to `identity.entries - 1`, each empty or some bytes. Stored entries stay until the cache is made anew.

    With `reuses`, `native.evict` drops entries and their space is used again; an entry takes a multiple of 1,024 bytes.

    Any number of threads and processes use one cache at a time. Forks share it; a pickle reopens it. A damaged entry
    becomes empty and is counted; no call raises because of it. All methods but `close` raise ValueError once it is
    closed.

    Raises UsageError, SharedMemoryError or WriteError if the cache cannot be opened.
    """

    def __init__(self, spec: CacheSpec, identity: CacheIdentity, *, reuses: bool = False) -> None:
        self._spec = spec
        self._identity = identity
        self._reuses = reuses
        descriptor, self._hand_out = open_file(spec, identity, reuses=reuses)
        self._descriptor = descriptor
        try:
            self._native: _core.Store | None = _core.Store(
                descriptor, entries=identity.entries, limit_bytes=spec.limit_bytes, reuses=reuses
            )
        except BaseException:
            os.close(descriptor)
            raise
        if reuses and spec.folder is not None:
            self._native.recover()
        if self._hand_out is not None:
            close_at_exit(self)

    def __len__(self) -> int:
        return self._identity.entries

    def __reduce__(self) -> tuple[Callable[..., Store], tuple[Any, ...]]:
        return partial(Store, reuses=self._reuses), (self._spec, self._identity)

    def __del__(self) -> None:
        if hasattr(self, "_native"):
            self.close()

    @property
    def native(self) -> _core.Store:
        """Native store that the core works with. Raises ValueError once closed."""
        if self._native is None:
            raise ValueError("this cache is closed")
        return self._native

    def claims(self) -> Claims | None:
        """Return a new owner of claims on entries, which the caller closes; None if the system has no such locks."""
        assert self._native is not None
        try:
            return Claims(self._descriptor)
        except OSError:
            return None

    @property
    def limit_bytes(self) -> int:
        return self._spec.limit_bytes

    def get(self, index: int) -> bytes | None:
        """Return the bytes of an entry; None if it is empty."""
        return self.native.get(index)

    def put(self, index: int, data: Buffer) -> bool:
        """Cache bytes, below 4 GiB, under a number.

        Return False if they are not cached: the entry exists already, or there is no room left. All callers must give
        the same bytes for the same number.
        """
        return self.native.put(index, data)

    def get_many(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return the concatenated bytes of many entries, and the length of each; -1 for an empty entry."""
        return self.native.get_many(indices)

    def put_many(self, indices: NDArray[np.int64], data: NDArray[np.uint8], lengths: NDArray[np.int64]) -> int:
        """Cache many entries from concatenated bytes in `data`, and return how many are cached, as in `put`."""
        return self.native.put_many(indices, data, lengths)

    def stats(self) -> CacheStats:
        counts, stopped = self.native.counts(), self.native.stopped
        return CacheStats(
            where=str(self._spec),
            hits=counts["hits"],
            misses=counts["misses"],
            admitted=counts["admitted"],
            damaged=counts["damaged"],
            used_bytes=self.native.used_bytes,
            limit_bytes=self._spec.limit_bytes,
            stopped=None if stopped == 0 else "full" if stopped == _core.CACHE_FULL else os.strerror(stopped),
        )

    def close(self) -> None:
        """Close the cache; RAM is freed with the last store of any process that uses it. May be called twice."""
        if self._hand_out is not None:
            self._hand_out.close()
            self._hand_out = None
        self._native = None
