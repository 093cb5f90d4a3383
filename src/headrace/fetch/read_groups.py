"""What of a pass is planned together: steps, or windows; and how many bytes of it may be in memory at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice

from headrace.data import Dataset
from headrace.errors import UsageError
from headrace.plan import EpochPlan, ReadGroup, UniformPlan, mean_sample_bytes, reads_by_step
from headrace.system import available_to_rank

_LEAST_BYTES, _MOST_BYTES = 64 << 20, 1 << 30
_MEMORY_SHARE = 8
"""Of the memory that is available, the part that bytes ahead may take."""
_WINDOWS = 2
"""Windows in memory: one of which batches are made, and the next on its way. A part of one is let go of with its last
sample, which is near the window's end."""
_FIRST_SHARE = 16
"""Of the first window, the part whose samples are fetched one by one."""


def groups_of(plan: EpochPlan, epoch: int, first_step: int) -> tuple[Iterator[ReadGroup], int]:
    """Return what is planned together, in turn, and how many of the first of these are requested by themselves.

    Before a window come the first of its steps, sample by sample: the first batch needs a part of each block, and would
    wait for half of the window.
    """
    if not isinstance(plan, UniformPlan):
        return reads_by_step(plan, epoch, first_step), 0
    groups = plan.reads(epoch, first_step)
    if not plan.window_samples:
        return groups, 0
    steps = max(1, plan.window_samples // (_FIRST_SHARE * plan.batch_size))
    first = list(islice(reads_by_step(plan, epoch, first_step), steps))
    return chain(first, groups), len(first)


def memory_limit(dataset: Dataset, plan: EpochPlan) -> int:
    """Return how many bytes of a pass may be in memory or on their way: two windows at least."""
    limit = min(_MOST_BYTES, max(_LEAST_BYTES, (available_to_rank() or 0) // _MEMORY_SHARE))
    return max(limit, _windows_bytes(dataset, plan))


def check_window_memory(dataset: Dataset, columns: Sequence[str], plan: EpochPlan) -> None:
    """Raise UsageError where a plan's windows of remote samples do not fit into the memory that this rank may take.

    Samples count with the mean of the dataset; nothing is checked where it does not know how long they are.
    """
    if not any(dataset.files(column).is_remote for column in columns):
        return
    needed, free = _windows_bytes(dataset, plan), available_to_rank()
    if free is None or needed <= free:
        return
    assert isinstance(plan, UniformPlan)
    assert plan.window is not None
    fits = int(plan.window.blocks * free / needed)
    advice = f"Pass order=hr.Windowed(window_blocks={fits})" if fits else "Lower block_bytes of hr.Windowed(…)"
    raise UsageError(
        f"order: expected windows of remote samples of which two, one in use and one on its way, fit into the "
        f"{free / 1e9:,.1f} GB of memory that are free for this rank, got {plan.window_samples:,} samples of "
        f"{mean_sample_bytes(dataset):,} bytes in each = {needed / 1e9:,.1f} GB. {advice}"
    )


def _windows_bytes(dataset: Dataset, plan: EpochPlan) -> int:
    """Return the bytes of the windows in memory, by the mean of the dataset; 0 without windows."""
    samples = plan.window_samples if isinstance(plan, UniformPlan) else 0
    return _WINDOWS * samples * (mean_sample_bytes(dataset) or 0) if samples else 0
