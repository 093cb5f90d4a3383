"""`Claims`: entries of a cache that a process is about to store, for the other processes of the node to wait for.

A claim is a lock on a byte far beyond the end of the file, whose number is the entry's. The kernel drops it when the
process ends, so no claim has to be taken over, and no file has to be cleaned up.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

import numpy as np
from numpy.typing import NDArray

_FIRST = 1 << 62
"""Byte of entry 0."""
_LOCK = struct.Struct("hhqqi4x")
"""`struct flock` of 64-bit Linux: kind, whence, start, length, process."""
_MOST_RUNS = 1024
"""Runs of neighbouring entries that a process may claim. The kernel searches all locks of a file one by one."""


class Claims:
    """Claims of one owner, on the entries of one cache. Used by several threads at a time."""

    def __init__(self, descriptor: int) -> None:
        """Open the file of a cache again, since the locks of one open file do not exclude each other.

        Raises OSError where that is impossible, as on systems other than Linux.
        """
        if not hasattr(fcntl, "F_OFD_SETLK"):
            raise OSError(errno.ENOTSUP, "no locks of open files")
        self._file = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
        self._runs = 0

    def take(self, entries: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Claim entries, and return a flag for each that another owner has claimed.

        Entries beyond a number of runs stay unclaimed: others may then fetch them as well.
        """
        theirs = np.zeros(len(entries), bool)
        for rows in _runs(entries):
            if self._runs >= _MOST_RUNS:
                theirs[rows] = self.theirs(entries[rows])
                continue
            if self._lock(fcntl.F_WRLCK, int(entries[rows[0]]), len(rows)):
                self._runs += 1
                continue
            for row in rows.tolist():  # parts of the run are others'
                if self._lock(fcntl.F_WRLCK, int(entries[row]), 1):
                    self._runs += 1
                else:
                    theirs[row] = True
        return theirs

    def release(self, entries: NDArray[np.int64]) -> None:
        """Drop own claims."""
        for rows in _runs(entries):
            self._lock(fcntl.F_UNLCK, int(entries[rows[0]]), len(rows))
            self._runs = max(0, self._runs - 1)

    def theirs(self, entries: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return a flag for each entry that another owner has claimed."""
        found = [self._lock_of(int(entry)) != fcntl.F_UNLCK for entry in entries.tolist()]
        return np.array(found, bool)

    def close(self) -> None:
        """Drop all claims. May be called twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _lock(self, kind: int, first: int, count: int) -> bool:
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _LOCK.pack(kind, os.SEEK_SET, _FIRST + first, count, 0))
        except OSError as error:
            return error.errno not in (errno.EAGAIN, errno.EACCES)  # without locks, each process fetches for itself
        return True

    def _lock_of(self, entry: int) -> int:
        wanted = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _FIRST + entry, 1, 0)
        try:
            kind: int = _LOCK.unpack(fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, wanted))[0]
        except OSError:
            return fcntl.F_UNLCK
        return kind


def _runs(entries: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the rows of each run of neighbouring entries."""
    order = np.argsort(entries, kind="stable")
    if not len(order):
        return []
    return np.split(order, 1 + np.flatnonzero(np.diff(entries[order]) > 1))
