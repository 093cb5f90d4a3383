"""`DevicePrefetcher`: any iterable of batches, ahead of the training step and on its device."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

from headrace.device import feed
from headrace.device.accelerators import resolve
from headrace.device.feed import DROP_WAIT_S, DeviceFeed
from headrace.device.h2d_copy import PrefetchStats, lane_to
from headrace.device.image_conversion import TORCH_DTYPES, AnyImages, Conversion, ImageSelector, NamedImages
from headrace.errors import UsageError
from headrace.fields import DTYPES, DType, Normalize
from headrace.foreign_arguments import KnownArguments
from headrace.system import Closed


def take_on(owner: object, source: object, names: tuple[str, ...]) -> None:
    """Publish `_NAME` of `owner` as NAME, for each of these names that `source` has.

    Frameworks check for a method before they save a run, and a method that exists and then raises would end the run.
    They check in two ways: `hasattr(loader, "state_dict")`, and isinstance with a runtime protocol, as Lightning does,
    which looks at the class and never calls a descriptor. So the class itself must have the methods, or lack them.
    """
    cls, has = type(owner), tuple(name for name in names if hasattr(source, name))
    if (cls, has) not in _classes:
        kept = {name: getattr(cls, name) for name in ("__doc__", "__module__", "__qualname__")}
        _classes[cls, has] = type(cls.__name__, (cls,), kept | {name: getattr(cls, f"_{name}") for name in has})
    owner.__class__ = _classes[cls, has]


_classes: dict[tuple[type[object], tuple[str, ...]], type[object]] = {}


T = TypeVar("T")
State = dict[str, Any]

HANDED_ON = ("set_epoch", "state_dict", "load_state_dict")


class DevicePrefetcher(KnownArguments, Generic[T]):
    """Batches of `iterable` on `device`, taken, copied and converted by a thread while the training step runs.

    A batch is any nesting of dicts, lists, tuples, named tuples and dataclasses with tensors in it; other values pass
    through. On an accelerator with streams (CUDA, XPU, NPU), copies go from pinned memory on a side stream; the batch
    can be used at once on the stream current at the `next` call. On the CPU only converted tensors are copied; the
    source still works ahead.

    `depth`         batches on the device or on their way, ahead of the consumer
    `dtype`, `normalize`  uint8 images become floats on the device, 0…1 or normalised, the same bits as with
                    `headrace.Image(dtype=, normalize=)`; `normalize` alone gives float32
    `channels_last` memory layout of images
    `images`        keys, field names or positions of the images [N, C, H, W]. Default: every tensor [N, 3, H, W] of
                    uint8; tensors of floats only change their layout

    Iterating takes one pass over the source, and ends the previous pass. `len`, `set_epoch`, `state_dict` and
    `load_state_dict` exist if the source has them. The state is the source's own, as of the consumer's latest batch.
    After a pass over such a source is broken off, the next pass continues there. `next` raises an error of the source
    after the batches before it, with its traceback. Raises UsageError for invalid arguments, at the latest with the
    first batch.
    """

    if TYPE_CHECKING:  # each exists if the source has it

        def set_epoch(self, epoch: int) -> None: ...
        def state_dict(self) -> State: ...
        def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    else:

        def __getattr__(self, name):
            if name in HANDED_ON and "source" in vars(self):
                raise AttributeError(
                    f"DevicePrefetcher.{name}: expected a source that has it, got {type(self.source).__name__}, which "
                    "has none"
                )
            raise AttributeError(f"'DevicePrefetcher' object has no attribute {name!r}")

    def __init__(
        self,
        iterable: Iterable[T],
        device: str | torch.device,
        *,
        depth: int = 2,
        dtype: DType | torch.dtype | None = None,
        normalize: Normalize | None = None,
        channels_last: bool = True,
        images: Sequence[str | int] | None = None,
    ) -> None:
        if type(depth) is not int or depth < 1:
            raise UsageError(f"depth: expected an int of at least 1, got {depth!r}")
        if isinstance(images, str):
            raise UsageError(
                f"images: expected a list of keys, field names or positions, got {images!r}; pass [{images!r}]"
            )
        conversion = Conversion(_dtype(dtype, normalize), normalize, channels_last)
        self.source = iterable
        take_on(self, iterable, HANDED_ON)
        self.device = resolve(device)
        self._depth = depth
        self._images: ImageSelector = (
            AnyImages(conversion) if images is None else NamedImages(dict.fromkeys(images, conversion))
        )
        self._feed: DeviceFeed[State | None] | None = None  # of the latest pass
        self._position: _Position | None = None  # of the latest pass, if it may differ from the source's

    def __len__(self) -> int:
        """Return the batches of a pass. Raises TypeError if the source has no length."""
        return len(self.source)  # type: ignore[arg-type]

    def __iter__(self) -> PrefetchIterator[T]:
        self._settle()
        self._position = _Position(self._snapshot())
        return PrefetchIterator(self, self._position)

    def __reduce__(self) -> tuple[Any, ...]:
        # The class before `take_on`: pickle cannot find the present class by its name.
        return _rebuilt, (type(self).__bases__[0], vars(self))

    def __repr__(self) -> str:
        return f"DevicePrefetcher to {self.device}, depth {self._depth}, of {self.source!r}"

    def _set_epoch(self, epoch: int) -> None:
        """Pass the epoch on, and end a pass that was broken off."""
        self._settle()
        self.source.set_epoch(epoch)  # type: ignore[attr-defined]
        self._position = None

    def _state_dict(self) -> State:
        """Return the source's state as of the consumer's latest batch."""
        if self._position is not None and self._position.state is not None:
            return copy.deepcopy(self._position.state)
        state: State = self.source.state_dict()  # type: ignore[attr-defined]
        return state

    def _load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state` was saved, in the next pass. Ends the present pass."""
        self.close()
        self.source.load_state_dict(state)  # type: ignore[attr-defined]
        self._position = None

    def stats(self) -> PrefetchStats | None:
        """Return the statistics of the latest pass so far, in numbers and in words; None before the first pass."""
        return None if self._feed is None else self._feed.stats()

    def close(self) -> None:
        """End the pass under way and wait for its thread. The next `iter` begins another."""
        if self._feed is not None:
            self._feed.close(timeout_s=None)

    def _settle(self) -> None:
        """End the previous pass, and put a stateful source back to where its consumer stopped."""
        self.close()
        position, self._position = self._position, None
        # Not after a whole pass, though the consumer never requested its end, as in `for step in range(len(loader))`.
        # From a state just before the end, torchdata's StatefulDataLoader would continue with an empty pass.
        if position is not None and position.state is not None and not position.at_end:
            self.source.load_state_dict(position.state)  # type: ignore[attr-defined]

    def _snapshot(self) -> State | None:
        """Return the source's state now; None if it has none."""
        if not (hasattr(self.source, "state_dict") and hasattr(self.source, "load_state_dict")):
            return None
        state: State = self.source.state_dict()
        return copy.deepcopy(state)

    def _start(self, position: _Position) -> DeviceFeed[State | None]:
        # Here and not in the feeding thread: DataLoader draws its seed from torch's global generator, and installs the
        # signal handler for killed workers, in the thread that requests its iterator.
        batches = _Batches(feed.begin_iterator(self.source), self._snapshot, self._images, position)
        self._feed = DeviceFeed(batches.take, lane_to(self.device, self._images), self._depth, end=batches.close)
        return self._feed


def _rebuilt(cls: type[DevicePrefetcher[Any]], attributes: dict[str, Any]) -> DevicePrefetcher[Any]:
    new = object.__new__(cls)
    vars(new).update(attributes)
    take_on(new, new.source, HANDED_ON)
    return new


@dataclass
class _Position:
    """Position of one pass's consumer. `state` is the source's as of its last batch; None for a stateless source."""

    state: State | None
    taken: int = 0
    """Batches that the consumer has."""
    given: int = 0
    """Batches that the source has given."""
    ended: bool = False
    """True if the source has no more batches."""

    @property
    def at_end(self) -> bool:
        """True if the pass was complete, and the consumer has all of it."""
        return self.ended and self.taken == self.given


class PrefetchIterator(Iterator[T]):
    """One pass. Ends its thread at the end, on `close`, on an error, or when dropped."""

    def __init__(self, prefetcher: DevicePrefetcher[T], position: _Position) -> None:
        self._prefetcher = prefetcher
        self._position = position
        self._feed = prefetcher._start(position)
        self._open = True
        self._finalizer = weakref.finalize(self, self._feed.close, DROP_WAIT_S)
        self._finalizer.atexit = False  # the feed closes itself at exit

    def __next__(self) -> T:
        if not self._open:
            raise StopIteration
        if self._feed.foreign:
            raise UsageError(
                "expected the process that began this pass, got a fork of it, where its thread does not run; "
                "iterate over the prefetcher anew: a stateful source goes on from the same batch"
            )
        try:
            batch, state = self._feed.take()
        except Closed:
            self.close()
            if self._position.at_end:
                self._position.state = self._prefetcher._snapshot()
            raise StopIteration from None
        except BaseException:  # Ctrl-C too: it must not wait for a source that hangs
            self._open = False
            self._feed.close(DROP_WAIT_S)
            raise
        self._position.state = state
        self._position.taken += 1
        return batch  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the pass: the thread is joined, batches on their way are dropped."""
        self._open = False
        self._finalizer.detach()
        self._feed.close(timeout_s=None)

    def stats(self) -> PrefetchStats:
        """Return the statistics of this pass so far."""
        return self._feed.stats()


class _Batches(Generic[T]):
    """A source's iterator, and the source's state after each batch. Used by the feeding thread only."""

    def __init__(
        self, iterator: Iterator[T], snapshot: Callable[[], State | None], images: ImageSelector, position: _Position
    ) -> None:
        self._iterator = iterator
        self._position = position
        self._failed = False
        self._snapshot = snapshot
        self._images: ImageSelector | None = images  # until the first batch has been checked

    def take(self) -> tuple[T, State | None]:
        try:
            batch = next(self._iterator)
        except StopIteration:
            self._position.ended = True
            raise
        except Exception as error:
            self._failed = True
            lost = feed.lost_worker(self._iterator, error)
            if lost is None:
                raise
            raise lost from error
        if self._images is not None:
            self._images.check(batch)
            self._images = None
        self._position.given += 1
        return batch, self._snapshot()

    def close(self) -> None:
        """Let a generator run its `finally`, and a DataLoader's iterator end the workers of this pass."""
        iterator: Any = self._iterator
        del self._iterator
        self._look_for_the_end(iterator)
        if hasattr(iterator, "close"):
            iterator.close()
        else:
            feed.end_workers(iterator)

    def _look_for_the_end(self, iterator: Iterator[T]) -> None:
        """Request the next batch if the consumer left with all so far: only this shows whether it had the last batch.

        Only for sources with state: a batch that comes instead of the end is dropped, and the state goes back.
        """
        position = self._position
        if position.state is None or self._failed or position.ended or position.taken != position.given:
            return
        try:
            next(iterator)
        except StopIteration:
            position.ended = True
        except Exception:
            return  # the next pass meets the error again
        else:
            position.given += 1


def _dtype(dtype: DType | torch.dtype | None, normalize: Normalize | None) -> DType | None:
    """Return the dtype by name. Raises UsageError for a dtype that images cannot have."""
    names = {kind: name for name, kind in TORCH_DTYPES.items()}
    name = names.get(dtype) if isinstance(dtype, torch.dtype) else dtype
    if dtype is not None and name not in DTYPES:
        raise UsageError(f"dtype: expected one of {', '.join(DTYPES)}, got {dtype}")
    if normalize is None:
        return name  # type: ignore[return-value]  # one of DTYPES
    if name == "uint8":
        raise UsageError('normalize: it gives fractions, got dtype="uint8"; use dtype="float32" or leave it out')
    return "float32" if name is None else name  # type: ignore[return-value]
