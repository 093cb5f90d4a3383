"""`shared_list`: a list of millions of small items in memory that all workers share.

Marshalled items are stored in an anonymous file, followed by the offset of each item and of the end. The file has no
name, so it leaves nothing behind and takes no space in /dev/shm. Unlike JSON, marshal preserves tuples, bytes and
non-string keys, in a third of the time. It reads only memory that this program wrote, in a version of the format
supported since Python 3.4.
"""

from __future__ import annotations

import io
import marshal
import mmap
import os
import pathlib
import sys
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from typing import Any, Generic, TypeVar, overload

from headrace.errors import SharedMemoryError, UsageError

T = TypeVar("T")

_MARSHAL_VERSION = 4
_LEAVES = frozenset({type(None), bool, int, float, str, bytes})
_ITEMS_PER_WRITE = 4096
_OFFSET_BYTES = 8


def shared_list(items: Iterable[T]) -> SharedList[T]:
    """Return the items as a read-only sequence that forked and spawned workers read without their own copy.

    A list of Python objects grows in each forked worker, because reading an object writes its reference count, and is
    pickled into each spawned worker. Here, items are bytes in anonymous memory and become new objects on each read.

    `items`: any iterable of None, bool, int, float, str, bytes, and lists, tuples and dicts of these, which are
    restored with equal values and types; or of only `pathlib` paths, restored as paths of this system. It is consumed
    item by item, so a generator's items are never in memory together.

    Raises UsageError (an item of another type) or SharedMemoryError.
    """
    source = iter(items)
    first = list(islice(source, 1))
    of_paths = bool(first) and isinstance(first[0], pathlib.Path)
    return SharedList(UnnamedMemory.of(_encoded(chain(first, source), of_paths=of_paths)), None, of_paths)


class SharedList(Sequence[T], Generic[T]):
    """Immutable list over memory that processes share, returned by `shared_list`.

    A slice is a view of the same memory. A SharedList equals a list or SharedList of equal items. Child processes
    receive the memory itself, under fork, forkserver and spawn; any other pickle (a queue, a file, Ray) holds a copy of
    the content.
    """

    __slots__ = ("_blob", "_ids", "_memory", "_of_paths", "_offsets")

    def __init__(self, memory: UnnamedMemory, ids: range | None, of_paths: bool) -> None:
        """Wrap the items of the memory with indices `ids`; None: all items."""
        end = int.from_bytes(memory.view[-_OFFSET_BYTES:], sys.byteorder)
        self._memory = memory
        self._of_paths = of_paths
        self._blob, self._offsets = memory.view[:end], memory.view[end:].cast("Q")
        self._ids = range(len(self._offsets) - 1) if ids is None else ids

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> SharedList[T]: ...

    def __getitem__(self, index: int | slice) -> T | SharedList[T]:
        if isinstance(index, slice):
            return SharedList(self._memory, self._ids[index], self._of_paths)
        try:
            at = self._ids[index]
        except IndexError:
            raise IndexError(f"item {index} of {len(self):,}") from None
        return self._item(at)

    def __iter__(self) -> Iterator[T]:
        return map(self._item, self._ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | SharedList):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __deepcopy__(self, memo: dict[int, Any]) -> SharedList[T]:
        return self  # immutable, and each item read is a new object

    def __copy__(self) -> SharedList[T]:
        return self

    def __reduce__(self) -> tuple[Callable[..., SharedList[T]], tuple[Any, ...]]:
        if get_spawning_popen() is None and len(self) < len(self._offsets) - 1:
            return shared_list, (list(self),)  # a copy holds only the slice
        return SharedList, (self._memory, self._ids, self._of_paths)

    def __repr__(self) -> str:
        more = ", …" if len(self) > 3 else ""
        return f"SharedList({len(self):,} items: [{', '.join(map(repr, self[:3]))}{more}])"

    @property
    def nbytes(self) -> int:
        """Bytes of the memory that all slices and processes share."""
        return len(self._memory.view)

    def _item(self, at: int) -> T:
        item: Any = marshal.loads(self._blob[self._offsets[at] : self._offsets[at + 1]])
        return pathlib.Path(item) if self._of_paths else item  # type: ignore[return-value]  # T is Path then


class UnnamedMemory:
    """Read-only anonymous memory that forked processes inherit and spawned processes receive without a copy.

    The kernel frees the memory when the last process that has it ends, even by a crash. Any pickle that does not start
    a process holds a copy of the bytes.
    """

    def __init__(self, descriptor: int) -> None:
        """Map a non-empty anonymous file and take ownership of its descriptor. Raises SharedMemoryError."""
        self.descriptor = descriptor
        size = os.fstat(descriptor).st_size
        # Populated: otherwise pages read by one worker count as its own (USS) until another worker reads them.
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        try:
            self.view = memoryview(mmap.mmap(descriptor, size, flags=flags, prot=mmap.PROT_READ))
        except OSError as error:
            raise _refused(f"{size:,} bytes could not be mapped", error) from error

    @classmethod
    def of(cls, pieces: Iterable[bytes | memoryview]) -> UnnamedMemory:
        """Write the pieces, at least one byte, to memory. Raises SharedMemoryError, and any error of the iterator."""
        try:
            descriptor = os.memfd_create("headrace-shared-list")
        except (AttributeError, OSError) as error:
            raise _refused("an anonymous file (memfd_create of Linux) could not be made", error) from error
        try:
            with io.BufferedWriter(_UnnamedFile(descriptor, "wb", closefd=False)) as file:
                file.writelines(pieces)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(descriptor)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # default: `os` is gone at interpreter exit
        close(self.descriptor)

    def __reduce__(self) -> tuple[Callable[..., UnnamedMemory], tuple[Any, ...]]:
        if get_spawning_popen() is None:
            return UnnamedMemory.of, ([bytes(self.view)],)
        status = os.fstat(self.descriptor)
        return _from_parent, (reduction.DupFd(self.descriptor), (status.st_dev, status.st_ino))


_received: weakref.WeakValueDictionary[tuple[int, int], UnnamedMemory] = weakref.WeakValueDictionary()
"""Memory received by this process, by inode: several pickles may carry the same memory and descriptor."""


def _from_parent(duplicate: Any, inode: tuple[int, int]) -> UnnamedMemory:
    descriptor: int = duplicate.detach()
    known = _received.get(inode)
    if known is None:
        known = _received[inode] = UnnamedMemory(descriptor)
    elif known.descriptor != descriptor:
        os.close(descriptor)
    return known


class _UnnamedFile(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise _refused(f"it is full after {os.fstat(self.fileno()).st_size:,} bytes", error) from error


def _refused(what: str, error: Exception) -> SharedMemoryError:
    why = error.strerror if isinstance(error, OSError) else error
    return SharedMemoryError(
        f"no memory to share between processes: {what}: {why}. Check free memory, the container's memory limit, and "
        f"`ulimit -f -n -v`"
    )


def _encoded(items: Iterator[Any], *, of_paths: bool) -> Iterator[bytes | memoryview]:
    """Yield the encoded items in chunks, then all offsets. Raises UsageError with the item's index."""
    encode, offsets = _encode_path if of_paths else _encode, array("Q", [0])
    while chunk := list(islice(items, _ITEMS_PER_WRITE)):
        parts: list[bytes] = []
        try:
            parts.extend(map(encode, chunk))
        except (TypeError, ValueError, RecursionError) as error:
            what = error if isinstance(error, TypeError) else "lists or dicts nested too deeply, or in a circle"
            raise UsageError(f"shared_list: item {len(offsets) - 1 + len(parts):,}: {what}") from None
        offsets.extend(islice(accumulate(map(len, parts), initial=offsets[-1]), 1, None))
        yield b"".join(parts)
    yield memoryview(offsets)


def _encode(item: Any) -> bytes:
    if type(item) is not str:
        _check(item)
    return marshal.dumps(item, _MARSHAL_VERSION)


def _encode_path(item: Any) -> bytes:
    if not isinstance(item, pathlib.Path):
        raise TypeError(f"expected a path, as the first item is one, got {_kind(item)}. Pass str(path) for each path")
    return marshal.dumps(str(item), _MARSHAL_VERSION)


def _check(item: Any) -> None:
    """Raise TypeError unless marshal preserves the item's values and types."""
    kind = type(item)
    if kind in _LEAVES:
        return
    # Exact types only: marshal would encode arrays as bytes and lose the additions of subclasses.
    if kind is list or kind is tuple:
        parts: Iterable[Any] = item
    elif kind is dict:
        parts = chain(item, item.values())
    elif isinstance(item, pathlib.PurePath):
        raise _unsuitable(item, "Pass str(path); only a list of nothing but paths keeps them")
    elif hasattr(item, "tolist"):
        raise _unsuitable(
            item,
            "Pass item.tolist(), or share the array itself: numpy arrays and tensors of numbers need no shared_list",
        )
    else:
        raise _unsuitable(item, "Pass plain values: a str, a tuple(…) or a dict(…) of what is in it")
    for part in parts:
        _check(part)


def _unsuitable(item: Any, advice: str) -> TypeError:
    return TypeError(
        f"expected None, bool, int, float, str, bytes, or a list, tuple or dict of these, got {_kind(item)}. {advice}"
    )


def _kind(item: Any) -> str:
    return f"{type(item).__module__}.{type(item).__qualname__}".removeprefix("builtins.")
