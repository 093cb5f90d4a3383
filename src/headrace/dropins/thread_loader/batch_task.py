"""Batch in progress. Threads load its parts in parallel, and the last thread collates and pins the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data._utils.collate import collate, collate_tensor_fn, default_collate_fn_map

from headrace.device import NO_LEAF, map_leaves
from headrace.dropins.random_sources import enter, present_sample
from headrace.dropins.thread_loader.epoch_order import Draw
from headrace.dropins.thread_loader.fetching import EndOfData, Fetcher
from headrace.loader import ProcessBlocks

_MISSING = object()


class BatchTask:
    """Task of loading one batch. Call `claim` and `complete` with the workers' lock held, `load` and `collate` without.

    After a failure no further part is started. The batch's error is that of its first failed part, independent of
    timing and the same as in DataLoader.
    """

    def __init__(self, fetcher: Fetcher, draw: Draw, *, step: int, pin: Callable[[Any], Any] | None) -> None:
        self.draw = draw
        self.step = step
        self.done = False
        """True once `result` may be called; set with the workers' lock held."""
        self._fetcher = fetcher
        self._pin = pin
        self._parts = fetcher.parts(draw.indices)
        self._loaded: list[Any] = [_MISSING] * len(self._parts)
        self._claimed = 0
        self._in_progress = 0
        self._failed_row = len(self._parts)
        self._error: BaseException | None = None
        self._batch: Any = None

    @property
    def claimable(self) -> bool:
        """True if a part is left to start. An empty batch has one part, so that a thread collates it."""
        return self._claimed < max(1, len(self._parts)) and self._error is None and not self._fetcher.cancelled

    @property
    def cancelled(self) -> bool:
        """True if the batch is no longer needed and may never be done."""
        return self._fetcher.cancelled

    def claim(self) -> int:
        """Claim the next part and return its row."""
        row = self._claimed
        self._claimed += 1
        self._in_progress += 1
        return row

    def load(self, row: int) -> BaseException | None:
        """Load one part; return its error, if any, for `complete`."""
        if row >= len(self._parts):
            return None
        part = self._parts[row]
        outer = present_sample()  # may be a loader inside another loader's dataset
        try:
            self._loaded[row] = self._fetcher.load(part, step=self.step, row=row)
        except EndOfData as end:
            return end
        except BaseException as error:
            return placed(error, self._fetcher.where(part, step=self.step, row=row))
        finally:
            enter(outer)
        return None

    def complete(self, row: int, error: BaseException | None) -> bool:
        """Record the end of a part. Return True for the last part: its thread must then collate."""
        if error is not None and (self._error is None or row < self._failed_row):
            self._error, self._failed_row = error, row
        self._in_progress -= 1
        return self._in_progress == 0 and not self.claimable

    def collate(self) -> None:
        """Collate the parts into the batch, unless one has failed."""
        if self._error is not None or self._fetcher.cancelled:
            return
        doing = "collate_fn"
        outer = present_sample()
        try:
            self._batch = self._fetcher.collate(self._loaded, step=self.step)
            if self._pin is not None:
                doing = "pin_memory"
                self._batch = self._pin(self._batch)
        except BaseException as error:
            self._error = placed(error, f"{doing}, batch {self.step}")
        finally:
            enter(outer)
            self._loaded = []

    def run(self) -> None:
        """Load and collate the batch in the calling thread."""
        while self.claimable:
            row = self.claim()
            self.complete(row, self.load(row))
        self.collate()
        self.done = True

    def result(self) -> Any:
        """Return the batch, once. Raises its error, or EndOfData."""
        if self._error is None:
            batch, self._batch = self._batch, None
            return batch
        error, self._error = self._error, None
        try:
            raise error
        finally:
            del error  # its traceback holds this frame: a cycle would keep what the dataset's frames hold

    def under_way(self) -> str:
        """Describe the parts that the batch is waiting for."""
        rows = [row for row in range(min(self._claimed, len(self._loaded))) if self._loaded[row] is _MISSING]
        names = [self._fetcher.where(self._parts[row], step=self.step, row=row) for row in rows[:3]]
        return "; ".join(names) + ("; …" if len(rows) > 3 else "") if rows else f"collate_fn, batch {self.step}"


def placed(error: BaseException, where: str) -> BaseException:
    """Add a note with the sample to the user's exception; its type and traceback are unchanged."""
    if isinstance(error, StopIteration):  # would silently end the consumer's loop (PEP 479)
        stopped = RuntimeError(f"StopIteration raised in {where}")
        stopped.__cause__ = error
        return stopped
    error.add_note(f"in {where}")
    return error


WORTHWHILE_BYTES = 1 << 20
"""Minimum size for pooled blocks; smaller allocations are served by the C library without system calls."""


class CollateMemory:
    """Collation like `default_collate`, with large tensors in pooled blocks.

    A block returns to the pool when the last view of it is gone, so a batch stays valid as long as it is referenced.
    benchmarks/thread_loader.py measures the gain.
    """

    def __init__(self, most_idle: int) -> None:
        """Retain at most `most_idle` blocks for later batches."""
        self._most_idle = most_idle
        self._blocks = ProcessBlocks(most_idle)

    def collate(self, samples: Sequence[Any]) -> Any:
        """Collate samples like `default_collate`; may be called in any thread."""
        functions: dict[Any, Callable[..., Any]] = dict(default_collate_fn_map)
        if functions[torch.Tensor] is collate_tensor_fn:  # else the user replaced it
            functions[torch.Tensor] = self._stack
        return collate(samples, collate_fn_map=functions)

    def __reduce__(self) -> tuple[Any, ...]:
        return CollateMemory, (self._most_idle,)

    def _stack(self, tensors: Sequence[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
        first, count = tensors[0], len(tensors)
        # `nbytes` comes after the check: tensors that are not strided may have none.
        is_large = _plain(first, first) and first.nbytes * count >= WORTHWHILE_BYTES
        if not is_large or not all(_plain(each, first) for each in tensors):
            batch: torch.Tensor = collate_tensor_fn(tensors, collate_fn_map=collate_fn_map)
            return batch
        block = torch.from_numpy(self._blocks.acquire(first.nbytes * count))
        return torch.stack(tuple(tensors), out=block.view(first.dtype).view(count, *first.shape))


def _plain(tensor: torch.Tensor, first: torch.Tensor) -> bool:
    """Return True if stacking the tensor with `first` is a plain copy of bytes."""
    return (
        type(tensor) is torch.Tensor
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and tensor.dtype is first.dtype
        and tensor.shape == first.shape
        and tensor.is_contiguous()
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def pin(batch: Any) -> Any:
    """Pin each tensor of `batch`; types of containers are preserved, dataclasses included.

    Like DataLoader, calls `pin_memory` on objects that have it, containers included; other values are unchanged.
    """
    return map_leaves(batch, lambda _, part: part.pin_memory() if hasattr(part, "pin_memory") else NO_LEAF)
