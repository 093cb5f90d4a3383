"""`shared_list`: millions of small items behind a list's interface, in memory that all workers share."""

from __future__ import annotations

import marshal
import mmap
import os
import pathlib
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from typing import Any, Generic, Protocol, TypeVar, overload

from headrace.errors import SharedMemoryError, UsageError

# -- from compat/sharing/unnamed_memory.py: Memory that processes share and that has no name: nothing of it can be
# left behind, and `/dev/shm` is not used.


class UnnamedMemory:
    """Read-only bytes that forked processes inherit and spawned ones are handed, without a copy.

    The kernel frees them with the last process that has them, however it ends. A pickle that is made for anything but
    the start of a process holds a copy of them.
    """

    def __init__(self, descriptor: int) -> None:
        """Maps an anonymous file that is not empty, and owns its descriptor from now on. Raises SharedMemoryError."""
        self.descriptor = descriptor
        size = os.fstat(descriptor).st_size
        # Populated, or what a single worker reads would count as its own (USS) until another one reads it too.
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        try:
            self.view = memoryview(mmap.mmap(descriptor, size, flags=flags, prot=mmap.PROT_READ))
        except OSError as error:
            raise _refused(f"{size:,} bytes could not be mapped", error) from error

    def __del__(self) -> None:
        os.close(self.descriptor)

    def __reduce__(self) -> tuple[Callable[..., UnnamedMemory], tuple[Any, ...]]:
        if get_spawning_popen() is None:
            return _from_bytes, (bytes(self.view),)
        return _from_parent, (reduction.DupFd(self.descriptor), _inode(self.descriptor))


class MemoryWriter:
    """Takes bytes a piece at a time, and gives them as memory in the end."""

    def __init__(self) -> None:
        """Raises SharedMemoryError."""
        self._descriptor: int | None = None
        self.written = 0
        try:
            self._descriptor = os.memfd_create("headrace-shared-list")
        except (AttributeError, OSError) as error:
            raise _refused("an anonymous file (memfd_create of Linux) could not be made", error) from error

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def write(self, data: bytes | memoryview) -> None:
        """Raises SharedMemoryError."""
        assert self._descriptor is not None
        rest = memoryview(data).cast("B")
        try:
            while len(rest):
                count = os.write(self._descriptor, rest)
                rest = rest[count:]
                self.written += count
        except OSError as error:
            raise _refused(f"it is full after {self.written:,} bytes", error) from error

    def finish(self) -> UnnamedMemory:
        """What was written, at least a byte. Raises SharedMemoryError."""
        assert self._descriptor is not None
        descriptor, self._descriptor = self._descriptor, None
        return UnnamedMemory(descriptor)


class _Duplicate(Protocol):
    """A descriptor on its way into a process that is being started."""

    def detach(self) -> int: ...


_received: weakref.WeakValueDictionary[tuple[int, int], UnnamedMemory] = weakref.WeakValueDictionary()
"""What this process was handed, by inode: the same memory may come in several pickles, under one descriptor."""


def _from_parent(duplicate: _Duplicate, inode: tuple[int, int]) -> UnnamedMemory:
    descriptor = duplicate.detach()
    known = _received.get(inode)
    if known is None:
        known = _received[inode] = UnnamedMemory(descriptor)
    elif known.descriptor != descriptor:
        os.close(descriptor)
    return known


def _from_bytes(data: bytes) -> UnnamedMemory:
    writer = MemoryWriter()
    writer.write(data)
    return writer.finish()


def _inode(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _refused(what: str, error: Exception) -> SharedMemoryError:
    why = error.strerror if isinstance(error, OSError) else error
    return SharedMemoryError(
        f"no memory to share between processes: {what}: {why}. Check free memory, the container's memory limit, and "
        f"`ulimit -f -n -v`"
    )


# -- from compat/sharing/shared_sequence.py: `shared_list`: millions of small items behind a list's interface, in
# memory that all workers share.


T = TypeVar("T")

# marshal, and not JSON, keeps tuples, bytes and keys that are no strings, at a third of the time. What it reads is
# memory of this program's own, and this version of the format is the same in every Python since 3.4.
_MARSHAL_VERSION = 4
_LEAVES = frozenset({type(None), bool, int, float, str, bytes})
_ITEMS_PER_WRITE = 4096
_OFFSET_BYTES = 8
_ITEMS_IN_REPR = 3


def shared_list(items: Iterable[T]) -> SharedList[T]:
    """The items as a read-only sequence that forked and spawned workers read without a copy of their own.

    A list of Python objects grows in each forked worker, because reading an object writes its reference count, and is
    pickled into each spawned one. Here items lie as bytes in memory without a name, and become objects when they are
    read, new ones each time.

    `items`: any iterable of None, bool, int, float, str, bytes, and lists, tuples and dicts of these, which come back
    equal and of the same types; or of `pathlib` paths alone, which come back as paths of this system. It is consumed
    as it comes, so a generator's items are never in memory together.

    Raises UsageError (an item of another type) or SharedMemoryError.
    """
    source = iter(items)
    first = list(islice(source, 1))
    of_paths = isinstance(first[0], pathlib.Path) if first else False
    writer, offsets = MemoryWriter(), array("Q", [0])
    for parts in _encoded(chain(first, source), _encode_path if of_paths else _encode):
        writer.write(b"".join(parts))
        offsets.extend(islice(accumulate(map(len, parts), initial=offsets[-1]), 1, None))
    writer.write(memoryview(offsets))
    size = len(offsets) - 1
    del offsets  # before the memory is mapped, so that both are never counted together
    return SharedList(writer.finish(), size, range(size), of_paths=of_paths)


class SharedList(Sequence[T], Generic[T]):
    """A list that cannot be changed, over memory that processes share; made by `shared_list`.

    A slice is a view of the same memory. Equal to a list, or another SharedList, of equal items. Started processes are
    handed the memory itself, under fork, forkserver and spawn; any other pickle (a queue, a file, Ray) holds a copy of
    the content.
    """

    __slots__ = ("_blob", "_ids", "_memory", "_of_paths", "_offsets", "_size")

    def __init__(self, memory: UnnamedMemory, size: int, ids: range, *, of_paths: bool) -> None:
        """Memory: `size` items, marshalled, then the offset of each and of the last one's end. `ids`: those shown."""
        end = len(memory.view) - _OFFSET_BYTES * (size + 1)
        self._memory = memory
        self._size = size
        self._ids = ids
        self._of_paths = of_paths
        self._blob = memory.view[:end]
        self._offsets = memory.view[end:].cast("Q")

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> SharedList[T]: ...

    def __getitem__(self, index: int | slice) -> T | SharedList[T]:
        if isinstance(index, slice):
            return SharedList(self._memory, self._size, self._ids[index], of_paths=self._of_paths)
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

    def __copy__(self) -> SharedList[T]:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> SharedList[T]:
        return self  # nobody can change it, and each item read is a new object

    def __reduce__(self) -> tuple[Callable[..., SharedList[T]], tuple[Any, ...]]:
        if get_spawning_popen() is None and len(self) < self._size:
            return shared_list, (list(self),)  # a copy is of what is shown alone
        return _rebuild, (self._memory, self._size, self._ids, self._of_paths)

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:_ITEMS_IN_REPR]))
        more = ", …" if len(self) > _ITEMS_IN_REPR else ""
        return f"SharedList({len(self):,} items: [{shown}{more}])"

    @property
    def nbytes(self) -> int:
        """Bytes of the shared memory, which all slices and processes have in common."""
        return len(self._memory.view)

    def _item(self, at: int) -> T:
        item: Any = marshal.loads(self._blob[self._offsets[at] : self._offsets[at + 1]])
        return pathlib.Path(item) if self._of_paths else item  # type: ignore[return-value]  # T is Path then


def _rebuild(memory: UnnamedMemory, size: int, ids: range, of_paths: bool) -> SharedList[Any]:
    return SharedList(memory, size, ids, of_paths=of_paths)


def _encoded(items: Iterator[Any], encode: Callable[[Any], bytes]) -> Iterator[list[bytes]]:
    """Some items at a time. Raises UsageError that names the item."""
    number = 0
    while chunk := list(islice(items, _ITEMS_PER_WRITE)):
        parts: list[bytes] = []
        try:
            parts.extend(map(encode, chunk))
        except (TypeError, ValueError, RecursionError) as error:
            what = error if isinstance(error, TypeError) else "lists or dicts nested too deeply, or in a circle"
            raise UsageError(f"shared_list: item {number + len(parts):,}: {what}") from None
        yield parts
        number += len(chunk)


def _encode(item: Any) -> bytes:
    if type(item) is not str:
        _check(item)
    return marshal.dumps(item, _MARSHAL_VERSION)


def _encode_path(item: Any) -> bytes:
    if not isinstance(item, pathlib.Path):
        raise TypeError(f"expected a path, as the first item is one, got {_kind(item)}. Pass str(path) for each path")
    return marshal.dumps(str(item), _MARSHAL_VERSION)


def _check(item: Any) -> None:
    """Raises TypeError unless what marshal makes of it comes back equal and of the same types."""
    kind = type(item)
    if kind in _LEAVES:
        return
    # Exactly these: marshal would take arrays for bytes, and lose what a subclass adds.
    if kind is list or kind is tuple:
        parts: Iterable[Any] = item
    elif kind is dict:
        parts = chain(item, item.values())
    else:
        raise TypeError(_unsuitable(item))
    for part in parts:
        _check(part)


def _unsuitable(item: Any) -> str:
    if isinstance(item, pathlib.PurePath):
        advice = "Pass str(path); only a list of nothing but paths keeps them"
    elif hasattr(item, "tolist"):
        advice = (
            "Pass item.tolist(), or share the array itself: numpy arrays and tensors of numbers need no shared_list"
        )
    else:
        advice = "Pass plain values: a str, a tuple(…) or a dict(…) of what is in it"
    return (
        f"expected None, bool, int, float, str, bytes, or a list, tuple or dict of these, got {_kind(item)}. {advice}"
    )


def _kind(item: Any) -> str:
    return f"{type(item).__module__}.{type(item).__qualname__}".removeprefix("builtins.")
