"""`MadeStep`: one made step, with its messages between an actor and the trainer."""

from __future__ import annotations

import builtins
import io
import pickle
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.errors import SampleError, UsageError
from headrace.loader.assembly import Cancelled
from headrace.loader.bad_samples import BadSamples
from headrace.loader.batch_memory import BatchMemory
from headrace.loader.batch_values import SMALL_BYTES, PlainArray, memory_order
from headrace.loader.map_workers.messages import MapFailure
from headrace.loader.recipe import Batch, Recipe
from headrace.loader.stats import StageStats, total_stages
from headrace.loader.step_maker import StepMaker
from headrace.system import Closed

ALIGNMENT = 64
"""Alignment of arrays in a batch's memory, in bytes: a cache line, and more than any type of numbers needs."""

Parts: TypeAlias = list[Any]
"""Packed step: a pickle, and the bytes of each of its arrays as an array, which Ray moves without pickling."""


@dataclass(frozen=True)
class BadSample:
    """Bad sample of a step. The trainer's pass counts it, and judges the number."""

    sample: int
    error: SampleError
    epoch: int
    position: int


class NotedBadSamples(BadSamples):
    """Bad samples of single steps, without a judgement."""

    def __init__(self) -> None:
        super().__init__(samples=0, max_bad=1.0, quarantine=None)
        self._noted: list[BadSample] = []

    def add(self, sample: int, error: SampleError, *, epoch: int, position: int) -> None:
        with self._lock:
            self._noted.append(BadSample(sample, error.with_traceback(None), epoch, position))

    def drain(self) -> tuple[list[BadSample], Counter[str]]:
        """Return the bad samples and the counts since the last call."""
        with self._lock:
            found = self._noted, self._counts
            self._noted, self._counts = [], Counter()
        return found


@dataclass(frozen=True)
class SourceCounts:
    """Counts of a source of steps since it began."""

    stages: dict[str, StageStats] = field(default_factory=dict)
    retries: int = 0
    cpu_s: float = 0.0
    """CPU time of the actor's process; 0 in the trainer's own process."""
    wall_s: float = 0.0

    def __add__(self, other: SourceCounts) -> SourceCounts:
        stages = total_stages((self.stages, other.stages))
        return SourceCounts(stages, self.retries + other.retries, self.cpu_s + other.cpu_s, self.wall_s + other.wall_s)


@dataclass(frozen=True)
class MadeStep:
    """Step with everything that the pass has to know of it."""

    batch: Batch | None
    """None after an error."""
    samples: int
    nbytes: int
    """Bytes of the batch's images."""
    bad: list[BadSample]
    bad_counts: Counter[str]
    error: BaseException | None
    failure: MapFailure | None = None
    """Error in the form in which an actor sends it."""
    notes: tuple[str, ...] = ()
    """Notes of that error."""
    warned: tuple[tuple[str, str], ...] = ()
    """Warnings as (category, message), in an actor."""
    counts: SourceCounts = SourceCounts()
    """Counts of the actor so far."""

    def pack(self) -> Parts:
        """Return the step as a pickle and the memory of its arrays. An error becomes a MapFailure."""
        step = self
        if self.error is not None:
            notes = tuple(getattr(self.error, "__notes__", ()))
            step = replace(self, error=None, failure=MapFailure.of(0, self.error), notes=notes)
        buffers: list[pickle.PickleBuffer] = []
        data = io.BytesIO()
        _Pickler(data, 5, buffer_callback=buffers.append).dump(step)
        return [data.getvalue(), *(np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers)]

    def raise_error(self, where: str) -> None:
        """Raise the step's error, if any. `where` names the actor."""
        if self.failure is not None:
            error = self.failure.restore()
            for note in (*self.notes, f"In {where}:\n{self.failure.traceback}"):
                error.add_note(note)
            raise error
        if self.error is not None:
            raise self.error


class StepSource:
    """Producer of steps that notes bad samples and errors instead of raising them. One thread uses it."""

    def __init__(self, recipe: Recipe, memory: BatchMemory) -> None:
        self._began = time.perf_counter()
        self._bad = NotedBadSamples()
        self._maker = StepMaker(recipe, memory, self._bad)
        self.cancel, self.close = self._maker.cancel, self._maker.close

    def make(self, epoch: int, step: int) -> MadeStep:
        """Return a step, or its error. Raises Cancelled or Closed."""
        batch, samples, nbytes, error = None, 0, 0, None
        try:
            decoded, batch = self._maker.make(epoch, step)
            samples, nbytes = len(decoded), decoded.nbytes
        except (Cancelled, Closed):
            raise
        except Exception as caught:
            error = caught
        return MadeStep(batch, samples, nbytes, *self._bad.drain(), error)

    def counts(self) -> SourceCounts:
        return SourceCounts(self._maker.stages(), self._maker.retries, 0.0, time.perf_counter() - self._began)


def unpack(parts: Parts, memory: BatchMemory) -> MadeStep:
    """Restore a step. Large arrays lie in one block of `memory`: Ray's own memory is read-only, and shared."""
    data, *buffers = parts
    ends = np.cumsum([_aligned(buffer.nbytes) if _is_large(buffer) else 0 for buffer in buffers], dtype=int).tolist()
    block = memory.acquire(ends[-1]) if ends and ends[-1] else np.empty(0, np.uint8)
    copies: list[Any] = []
    for buffer, end in zip(buffers, ends, strict=True):
        if not _is_large(buffer):
            copies.append(bytearray(buffer))
            continue
        start = end - _aligned(buffer.nbytes)
        copy = block[start : start + buffer.nbytes]
        np.copyto(copy, buffer)
        copies.append(copy)
    step: MadeStep = pickle.loads(data, buffers=copies)
    return step


def warning_class(name: str) -> type[Warning]:
    """Return Python's warning category of this name; UserWarning for others."""
    found = getattr(builtins, name, UserWarning)
    return found if isinstance(found, type) and issubclass(found, Warning) else UserWarning


def unpicklable(error: Exception) -> UsageError:
    """Return the error for a batch that cannot travel."""
    return UsageError(
        f"workers: expected batches of values that can be pickled, got some that cannot ({type(error).__name__}: "
        f"{error}); return arrays, tensors, numbers, text, or lists and dicts of these from map= and batch_map="
    )


def _is_large(buffer: NDArray[np.uint8]) -> bool:
    return buffer.nbytes >= SMALL_BYTES


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Pickle tensors, and arrays of any memory order, by their bytes in memory order."""
        plain = PlainArray.of(value)
        if plain is None or (plain.tensor is None and plain.array.flags.c_contiguous):
            return NotImplemented
        order = memory_order(plain.array.strides)
        back: Sequence[int] = np.argsort(order).tolist()
        return _restore, (np.ascontiguousarray(plain.array.transpose(order)), tuple(back), plain.tensor)


def _restore(array: NDArray[Any], back: tuple[int, ...], tensor: str | None) -> Any:
    if tensor is None:
        return array.transpose(back)
    import torch

    # Pinned memory is a tensor's: its allocator has to learn of copies from it, so that it does not reuse it early.
    owner: Any = array
    while owner is not None and not isinstance(owner, torch.Tensor):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    if owner is None:
        found = PlainArray(array, tensor).restore()
    else:
        start = array.__array_interface__["data"][0] - owner.data_ptr()
        found = owner[start : start + array.nbytes].view(getattr(torch, tensor)).view(array.shape)
    return found.permute(back)
