"""/proc/self/mem: a real file that fails with EIO where no memory lies, and is read where there is some."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager

PATH = "/proc/self/mem"
OFFSET = 1 << 45
"""Far from where a system of 48-bit addresses puts anything by itself."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FIXED_NOREPLACE = 0x100000  # of linux/mman.h; the module has no name for it


class MemoryWindow:
    """A page of `PATH` at `OFFSET`, which cannot be read until it is opened."""

    is_open = False

    def open(self, content: bytes) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED_NOREPLACE
        at = _libc.mmap(OFFSET, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        assert at == OFFSET, "something lies there"
        ctypes.memmove(at, content, len(content))
        self.is_open = True


@contextmanager
def memory_window() -> Iterator[MemoryWindow]:
    window = MemoryWindow()
    try:
        yield window
    finally:
        if window.is_open:
            _libc.munmap(OFFSET, mmap.PAGESIZE)
