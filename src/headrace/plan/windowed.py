"""`Windowed`: a shuffle with local reads. It shuffles blocks of neighbours, and samples within windows of blocks.

An epoch is cut into windows of many blocks each, and a block into samples that are contiguous in storage. The loader
therefore reads large ranges, each once per epoch, and needs at most a window of them at a time.

Batches take from several lanes of that order at once. Each lane is a part of the epoch with its own windows. A rank
with whole lanes as its part of a batch reads no other rank's blocks, and the batches are the same at every world size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from headrace import _core
from headrace.data import ByteColumn, Dataset
from headrace.errors import UsageError
from headrace.foreign_arguments import KnownArguments
from headrace.plan.order import check_int
from headrace.plan.step_views import Ints

DEFAULT_BLOCK_BYTES = 8 << 20
DEFAULT_BLOCK_SAMPLES = 64
"""Samples of a block if the dataset does not know their lengths, as for files of a folder."""
DEFAULT_WINDOW_BLOCKS = 128
DEFAULT_LANES = 8
"""Default number of lanes: the number of ranks on most nodes."""
MOST_LANES = 1 << 20

MOST_BLOCK_SAMPLES = 1 << 31
MOST_WINDOW_BLOCKS = 1 << 20
MOST_BLOCK_BYTES = 1 << 40

_MEASURED = 4096
"""Number of samples, evenly spread, that the mean length is measured on."""

_MOST_RUNS = 32
"""Runs of positions up to which each run is looked up window by window; more runs count as scattered."""
_BLOCK_ORDER, _WITHIN = 0, 1
"""Streams of an epoch's key: the order of blocks, and the order of samples within windows."""


@dataclass(frozen=True, kw_only=True)
class Windowed(KnownArguments):
    """Shuffled order with large reads: samples are shuffled within windows of shuffled blocks.

    `block_samples`  number of neighbouring samples of the dataset in a block
    `block_bytes`    the same in bytes: as many samples as take about that much, by the dataset's mean. Give one of the
                     two; default: about 8 MB, or 64 samples if the dataset does not know the lengths of its samples
    `window_blocks`  blocks that a batch is mixed from, over all lanes: the amount that memory has to hold
    `lanes`          parts of the epoch that a batch takes equally from, each with its own windows. A rank reads
                     only its own blocks if the number of ranks divides `lanes`: use a multiple of the maximum number of
                     ranks of the run

    Larger windows mix better, larger blocks read faster.
    """

    block_samples: int | None = None
    block_bytes: int | None = None
    window_blocks: int = DEFAULT_WINDOW_BLOCKS
    lanes: int = DEFAULT_LANES

    def __post_init__(self) -> None:
        if self.block_samples is not None and self.block_bytes is not None:
            raise UsageError(
                f"Windowed: expected block_samples or block_bytes, got {self.block_samples!r} and "
                f"{self.block_bytes!r}; leave one out"
            )
        if self.block_samples is not None:
            check_int("block_samples", self.block_samples, 1, MOST_BLOCK_SAMPLES, "it is the samples of a block")
        if self.block_bytes is not None:
            check_int("block_bytes", self.block_bytes, 1, MOST_BLOCK_BYTES, "4 to 16 MB suit most stores")
        check_int("window_blocks", self.window_blocks, 1, MOST_WINDOW_BLOCKS, "it is the blocks of a window")
        check_int("lanes", self.lanes, 1, MOST_LANES, "8 suit up to 8 ranks")

    def check(self, *, shuffle: bool, grouped_by: str | None, replaces: str | None) -> None:
        """Raise UsageError if samples are not shuffled, or in an order that windows cannot be cut from.

        `grouped_by` names the argument that groups samples into batches, `replaces` the one that draws with
        replacement.
        """
        if not shuffle:
            raise UsageError(
                "order: expected shuffle=True with a windowed order, got shuffle=False, which reads in storage order; "
                "pass shuffle=True, or leave order out"
            )
        if grouped_by is not None:
            raise UsageError(
                f"order: expected batches cut from a windowed order as it comes, got {grouped_by}, whose batches come "
                "in an order of their own from all over the dataset; leave one out"
            )
        if replaces is not None:
            raise UsageError(
                f"order: expected samples that come in turn with a windowed order, got {replaces}, which draws each "
                "from the whole dataset; leave one out, or take balanced=hr.RepeatFactor(…), repeats= or hr.mix(…)"
            )

    def resolve(self, dataset: Dataset) -> WindowShape:
        """Return the samples per block and blocks per window. Reads lengths held by the dataset, no files."""
        return WindowShape(block=self._block(dataset), blocks=self.window_blocks, lanes=self.lanes)

    def resolve_samples(self) -> WindowShape:
        """Return the shape if only the number of samples is known. Raises UsageError for `block_bytes`."""
        if self.block_bytes is not None:
            raise UsageError(
                f"order: expected a Windowed with block_samples=, since the bytes of samples are not known here, got "
                f"block_bytes={self.block_bytes}"
            )
        block = DEFAULT_BLOCK_SAMPLES if self.block_samples is None else self.block_samples
        return WindowShape(block=block, blocks=self.window_blocks, lanes=self.lanes)

    def _block(self, dataset: Dataset) -> int:
        if self.block_samples is not None:
            return self.block_samples
        mean = mean_sample_bytes(dataset)
        if mean is None and self.block_bytes is not None:
            raise UsageError(
                f"block_bytes: expected a dataset that holds the lengths of its samples, such as a tar, got "
                f"{dataset!r}; pass block_samples="
            )
        if mean is None:
            return DEFAULT_BLOCK_SAMPLES
        wanted = DEFAULT_BLOCK_BYTES if self.block_bytes is None else self.block_bytes
        block = min(max(1, wanted // mean), MOST_BLOCK_SAMPLES)
        rows = max((each.unit_rows or 1 for each in _byte_columns(dataset)), default=1)
        return block if 2 * block < rows else max(1, round(block / rows)) * rows  # whole chunks, if these are alike


ShuffleOrder: TypeAlias = Literal["global", "windowed"] | Windowed


def windowed_of(order: ShuffleOrder) -> Windowed | None:
    """Return the windowed order for the argument `order`; None for the global order."""
    if isinstance(order, Windowed):
        return order
    if order not in ("global", "windowed"):
        raise UsageError(
            f"order: expected 'global', 'windowed' or hr.Windowed(…), got {order!r}; shuffle= says whether to shuffle"
        )
    return Windowed() if order == "windowed" else None


def mean_sample_bytes(dataset: Dataset, columns: Sequence[str] | None = None) -> int | None:
    """Return the mean bytes of a sample in storage, over its columns of bytes; None if no column knows lengths.

    `columns`: names of those that count; None: all.

    It is the mean of the dataset as opened, so that selections have the blocks of the whole dataset.
    """
    count = len(dataset.table)
    if count == 0:
        return None
    ids = np.arange(min(count, _MEASURED), dtype=np.int64) * count // min(count, _MEASURED)
    total, known = 0, False
    for column in _byte_columns(dataset) if columns is None else map(dataset.table.bytes_of, columns):
        length = column.stored_bytes(ids)
        if length is not None:
            total, known = total + int(np.maximum(length, 0).sum()), True
    return max(1, total // len(ids)) if known else None


def _byte_columns(dataset: Dataset) -> list[ByteColumn]:
    return [dataset.table.bytes_of(name) for name, kind in dataset.fields.items() if kind == "bytes"]


@dataclass(frozen=True, kw_only=True)
class WindowShape:
    """Samples of a block, maximum blocks that a batch is mixed from, and lanes."""

    block: int
    blocks: int
    lanes: int = 1

    @property
    def lane_blocks(self) -> int:
        """Maximum blocks of one lane's window."""
        return max(1, self.blocks // self.lanes)

    def __str__(self) -> str:
        """Return a Loader's argument for the same shape; part of a state."""
        return f"order Windowed(block_samples={self.block}, window_blocks={self.blocks}, lanes={self.lanes})"


class Lanes:
    """Places of a windowed order that batches take. Each lane has a range of them, and gives a part of each batch.

    The parts equal the parts of `lanes` ranks, also of short batches. They therefore agree with the ranks'
    own parts if lanes are a multiple of the ranks.
    """

    def __init__(self, count: int, *, batch: int, lanes: int) -> None:
        """Cut `count` places for global batches of `batch`. Lanes beyond `batch` are empty."""
        starts = [-(-lane * batch // lanes) for lane in range(lanes + 1)]
        self._batch, self._steps, self._is_one = batch, count // batch, lanes == 1
        self._starts = np.array(starts, np.int64)
        self._rests = np.array([count % batch * start // batch for start in starts], np.int64)
        self._edges = np.array([count * start // batch for start in starts], np.int64)

    def places_of(self, positions: Ints) -> Ints:
        """Return the place in the windowed order of each position of the epoch."""
        if self._is_one:
            return positions
        steps, offsets = np.divmod(positions, self._batch)
        in_whole = self._in_part(self._starts, offsets, steps)
        if not len(positions) or int(steps.max()) < self._steps:
            return in_whole
        return np.where(steps < self._steps, in_whole, self._in_part(self._rests, offsets, steps))

    def _in_part(self, starts: Ints, offsets: Ints, steps: Ints) -> Ints:
        """Return places of offsets in batches whose lanes begin at `starts`."""
        lane = np.searchsorted(starts[1:-1], offsets, side="right")
        places: Ints = (
            self._edges[lane] + steps * (self._starts[lane + 1] - self._starts[lane]) + offsets - starts[lane]
        )
        return places

    def takes(self, start: int, stop: int) -> list[LanePart]:
        """Return the lane parts that [start, stop) of each full batch takes."""
        found = []
        for first, end, base in zip(self._starts[:-1].tolist(), self._starts[1:].tolist(), self._edges, strict=False):
            low, high = max(start, first), min(stop, end)
            if low < high:
                found.append(LanePart(int(base) + low - first, high - low, end - first))
        return found


class LanePart(NamedTuple):
    """Places of one lane that a rank takes: at step k, `samples` of them from `first` + k * `stride` on."""

    first: int
    samples: int
    stride: int


@dataclass(frozen=True, kw_only=True)
class WindowedEpoch:
    """Windowed order of one epoch of `count` samples: the sample at each position, and the inverse, by arithmetic.

    A block's turn is its place in the shuffled order of blocks; window w has consecutive turns. All windows have the
    same number of blocks, or one less. The last block of the dataset may be short, wherever its turn is, which shifts
    the positions after it. The arithmetic uses whole blocks, and adds and removes `_lack` at the edges.
    """

    count: int
    shape: WindowShape
    key: int

    @cached_property
    def blocks(self) -> int:
        return -(-self.count // self.shape.block)

    @cached_property
    def windows(self) -> int:
        return -(-self.blocks // self.shape.lane_blocks)

    def samples_at(self, positions: Ints) -> Ints:
        """Return the samples at these positions of the epoch."""
        runs = 1 + np.flatnonzero(np.diff(positions) != 1)
        if len(runs) >= _MOST_RUNS or not len(positions):
            return self._samples_anywhere(positions)
        # Lanes of a batch, each nearly always in one window: half the time.
        edges = [0, *runs.tolist(), len(positions)]
        samples = np.empty_like(positions)
        for first, stop, number in zip(edges[:-1], edges[1:], self.window_at(positions[edges[:-1]]), strict=True):
            run, window = positions[first:stop], _window(self, int(number))
            inside = int(run[-1]) < window.stop
            samples[first:stop] = self._in_window(window, run) if inside else self._samples_anywhere(run)
        return samples

    def _samples_anywhere(self, positions: Ints) -> Ints:
        block = self.shape.block
        whole = positions + self._lack * (positions >= self._after_short)
        windows = self._windows_of_turns(whole // block)
        first, sizes = self._first_turn(windows), self._sizes(windows)
        places = _core.permute_each(sizes, self._within, windows, whole - first * block)
        if self._lack:
            places += self._lack * ((windows == self._short_window) & (places >= self._short_end))
        turns, offsets = np.divmod(places, block)
        return _core.permute(self.blocks, self._block_order, first + turns) * block + offsets

    def window_at(self, positions: Ints) -> Ints:
        """Return the window of each position of the epoch."""
        return self._windows_of_turns((positions + self._lack * (positions >= self._after_short)) // self.shape.block)

    def bounds(self, windows: Ints) -> tuple[Ints, Ints]:
        """Return the half-open range of positions of each window."""
        starts = self._first_turn(windows) * self.shape.block - self._lack * (windows > self._short_window)
        return starts, starts + self._sizes(windows)

    def _in_window(self, window: _Window, positions: Ints) -> Ints:
        """Return the samples at positions that are all in one window."""
        places = _core.permute(window.stop - window.start, window.key, positions - window.start)
        if window.is_short:
            places += self._lack * (places >= self._short_end)
        turns, offsets = np.divmod(places, self.shape.block)
        samples: Ints = window.blocks[turns] * self.shape.block + offsets
        return samples

    def _turns_of(self, blocks: Ints) -> Ints:
        return _core.permute(self.blocks, self._block_order, blocks, inverse=True)

    def _first_turn(self, windows: Ints) -> Ints:
        narrow, wider = self._widths
        return windows * narrow + np.minimum(windows, wider)

    def _windows_of_turns(self, turns: Ints) -> Ints:
        narrow, wider = self._widths
        # The first `wider` windows have one block more.
        return np.maximum(turns // (narrow + 1), (turns - wider) // narrow)

    def _sizes(self, windows: Ints) -> Ints:
        """Return the number of samples in each window."""
        narrow, wider = self._widths
        sizes: Ints = (narrow + (windows < wider)) * self.shape.block - self._lack * (windows == self._short_window)
        return sizes

    @cached_property
    def _widths(self) -> tuple[int, int]:
        """Minimum blocks of a window, and the number of windows with one more."""
        return divmod(self.blocks, self.windows)

    @cached_property
    def _block_order(self) -> int:
        return _core.hash64(self.key, _BLOCK_ORDER)

    @cached_property
    def _within(self) -> int:
        return _core.hash64(self.key, _WITHIN)

    @cached_property
    def _lack(self) -> int:
        """Samples that the dataset's last block lacks."""
        return self.blocks * self.shape.block - self.count

    @cached_property
    def _short_turn(self) -> int:
        return int(self._turns_of(np.array([self.blocks - 1], np.int64))[0])

    @cached_property
    def _short_window(self) -> int:
        return int(self._windows_of_turns(np.array([self._short_turn], np.int64))[0])

    @cached_property
    def _short_end(self) -> int:
        """Place in its window at which the short block ends."""
        first = int(self._first_turn(np.array([self._short_window], np.int64))[0])
        return (self._short_turn - first + 1) * self.shape.block - self._lack

    @cached_property
    def _after_short(self) -> int:
        """First position after the window of the short block."""
        window = np.array([self._short_window + 1], np.int64)
        return int(self._first_turn(window)[0]) * self.shape.block - self._lack


class _Window(NamedTuple):
    """One window, for all of its batches."""

    start: int
    stop: int
    """End of the half-open range of positions."""
    key: int
    """Key of the permutation within the window."""
    blocks: Ints
    """Blocks in the order of their turns."""
    is_short: bool
    """True if the window has the dataset's last block, and this block is short."""


@lru_cache(maxsize=64)
def _window(epoch: WindowedEpoch, window: int) -> _Window:
    turns = epoch._first_turn(np.array([window, window + 1], np.int64))
    blocks = _core.permute(epoch.blocks, epoch._block_order, np.arange(*turns, dtype=np.int64))
    blocks.setflags(write=False)
    start, stop = (int(edge[0]) for edge in epoch.bounds(np.array([window], np.int64)))
    is_short = epoch._lack > 0 and window == epoch._short_window
    return _Window(start, stop, _core.hash64(epoch._within, window), blocks, is_short)


@lru_cache(maxsize=16)
def windowed_epoch(count: int, shape: WindowShape, key: int) -> WindowedEpoch:
    """Return the windowed order of the epoch with this key; the same object for each of its steps."""
    return WindowedEpoch(count=count, shape=shape, key=key)


@lru_cache(maxsize=16)
def lanes_of(count: int, batch: int, lanes: int) -> Lanes:
    """Return the lanes of an epoch; the same object for each of its steps."""
    return Lanes(count, batch=batch, lanes=lanes)
