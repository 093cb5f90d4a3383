"""Sources of `as_dataloader`: the full interface of a loader, and an adapter for loaders that lack some of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Protocol, runtime_checkable

from headrace.errors import StateError, UsageError
from headrace.system import rank_of_process


class Iterates(Protocol):
    """Simplest kind of loader: it has a length, and each iteration runs over one epoch's batches."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...


@runtime_checkable
class LoaderSource(Protocol):
    """Loader with passes that can start at any step. `Loader` is one, and documents each name."""

    @property
    def batch_size(self) -> int: ...
    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def next_step(self) -> int: ...
    @property
    def samples(self) -> int: ...
    @property
    def _next_start(self) -> tuple[int, int]: ...
    @property
    def _positioned(self) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def set_epoch(self, epoch: int, /) -> None: ...
    def seek(self, epoch: int, step: int, /) -> None: ...
    def _state_at(self, epoch: int, step: int, /) -> dict[str, Any]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any], /) -> None: ...


def source_of(loader: LoaderSource | Iterates) -> LoaderSource:
    """Return `loader` itself if it is a LoaderSource, else an adapter. Raises UsageError if it has no length."""
    if isinstance(loader, LoaderSource):
        return loader
    try:
        len(loader)
    except TypeError as error:
        raise UsageError(
            f"as_dataloader: expected a loader with a length, got {type(loader).__name__}: frameworks count an "
            "epoch's steps by it"
        ) from error
    own_source = getattr(loader, "_loader_source", None)  # ThreadDataLoader counts for itself
    return CountedLoader(loader) if own_source is None else own_source()


class CountedLoader:
    """Adapter that counts epochs and steps for a loader that only iterates.

    An abandoned pass counts as its whole epoch. Only a DevicePrefetcher over a source without epochs, which would
    continue, is moved back to the start of the pass. To reach a later step, the adapter loads and drops the batches
    before it. Its state holds the count and the loader's own state, if any. Move the loader only through this adapter.
    """

    def __init__(self, loader: Any) -> None:
        """Take an `Iterates`. Its optional attributes are looked up at use."""
        self._loader = loader
        self._epoch: int = getattr(loader, "epoch", 0)
        self._received = 0
        self._next_step = 0
        self._drop = 0  # batches to drop when the next pass starts
        self._latest: object = None  # the latest pass: closing an older one moves nothing
        self._restart: Mapping[str, Any] | None = None  # the loader's state at the start of the pass broken off
        self._positioned = False
        rank, world_size = getattr(loader, "rank", None), getattr(loader, "world_size", None)
        own = rank is not None and world_size is not None  # else from this process
        self._place = rank_of_process(rank, world_size) if own else rank_of_process()
        self.rank, self.world_size = self._place.rank, self._place.world_size

    @property
    def batch_size(self) -> int:
        """Samples per rank; 1 if the loader has no batch size, as a DataLoader with a batch sampler."""
        return getattr(self._loader, "batch_size", None) or 1

    @property
    def samples(self) -> int:
        """Samples of full batches: the number of repeated samples is unknown here."""
        return len(self) * self.batch_size * self.world_size

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def next_step(self) -> int:
        return self._next_step

    @property
    def _next_start(self) -> tuple[int, int]:
        """Epoch and step at which the next pass starts."""
        goes_back = self._restart is not None and not hasattr(self._loader, "set_epoch")
        if self._received == self._next_step or self._positioned or goes_back:
            return self._epoch, self._next_step
        return self._epoch + 1, 0

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        self._place.check("as_dataloader")
        epoch, step = self._next_start
        if epoch != self._epoch:
            self._drop, self._restart = 0, None
        self._epoch, self._received, self._next_step, self._positioned = epoch, step, 0, False
        drop, self._drop = self._drop, 0
        restart, self._restart = self._restart, None
        if restart is not None and _has_state(self._loader):
            self._loader.load_state_dict(restart)
        if hasattr(self._loader, "set_epoch"):
            self._loader.set_epoch(self._epoch)
        return self._pass(drop)

    def _pass(self, drop: int) -> Iterator[Any]:
        from headrace.device import DevicePrefetcher  # imports torch

        latest = self._latest = object()
        epoch, first_step = self._epoch, self._received
        began = None
        if isinstance(self._loader, DevicePrefetcher) and _has_state(self._loader):
            began = self._loader.state_dict()
        iterator = iter(self._loader)
        try:
            for batch in islice(iterator, drop, None):
                self._received += 1
                if self._received == len(self):
                    self._epoch, self._received = epoch + 1, 0
                yield batch
            if self._epoch == epoch:  # fewer batches were left than counted
                self._epoch, self._received = epoch + 1, 0
        finally:
            close(iterator)
            broken_off = self._latest is latest and self._epoch == epoch and not self._positioned
            if broken_off and began is not None:
                self._restart, self._next_step, self._drop = began, first_step, drop

    def set_epoch(self, epoch: int) -> None:
        """Start the next pass at this epoch. The current epoch starts again, or continues from a restored position."""
        if epoch != self._epoch:
            self.seek(epoch, 0)
        self._positioned = True

    def seek(self, epoch: int, step: int) -> None:
        """Start the next pass at this step of this epoch; within an epoch, no earlier than the next step."""
        self._drop = step if epoch != self._epoch else self._drop + step - self._next_step
        self._epoch, self._received, self._next_step = epoch, step, step
        self._positioned = True

    def _state_at(self, epoch: int, step: int) -> dict[str, Any]:
        raise UsageError(
            f"expected a headrace.Loader, got {type(self._loader).__name__}: it does not know its state at a step that "
            "it is not at. Leave Accelerate's use_stateful_dataloader off, and pass what as_dataloader made to "
            "register_for_checkpointing"
        )

    def state_dict(self) -> dict[str, Any]:
        count = {"epoch": self._epoch, "step": self._received}
        return count | ({"loader": self._loader.state_dict()} if _has_state(self._loader) else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume the next pass where `state` was saved. Raises StateError for anything but a dict from `state_dict`."""
        expected = {"epoch", "step"} | ({"loader"} if _has_state(self._loader) else set())
        if not isinstance(state, Mapping) or set(state) != expected:
            got = sorted(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
            raise StateError(f"state: expected the keys {sorted(expected)}, got {got}; pass the saved dict unchanged")
        self._epoch, self._received, self._next_step = state["epoch"], state["step"], state["step"]
        self._drop, self._restart = state["step"], None
        if _has_state(self._loader):
            self._loader.load_state_dict(state["loader"])
            self._drop = 0
        self._positioned = True


def _has_state(loader: object) -> bool:
    # Not isinstance(), which looks at the class: a wrapper may forward attributes of the loader inside it.
    return hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")


def close(iterator: Iterator[Any]) -> None:
    """End a pass. A DataLoader's iterator has no `close`: its workers end when it is dropped."""
    end = getattr(iterator, "close", None)
    if end is not None:
        end()
