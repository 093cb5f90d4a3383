"""How a training is fed: as it is, or as it would be with a remedy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class StageChange:
    """What becomes of one stage's time in a batch: `cpu` and `wait` are multiplied, `cpu` where a thread computes and
    `wait` where it waits for storage or a lock; or each call takes `call_us` of computing in place of both."""

    cpu: float = 1.0
    wait: float = 1.0
    call_us: float | None = None


@dataclass(frozen=True)
class Setup:
    """`Recorded.setup` is the present one; `dataclasses.replace` gives a what-if. Only what differs from the present
    one is taken to have changed."""

    workers: int
    """Worker processes; 0 where the trainer makes its batches itself."""
    prefetch: int
    """Batches in flight for each worker: DataLoader's `prefetch_factor`."""
    persistent: bool
    """Whether workers live on between passes."""
    pinned: bool
    """Whether a thread of the trainer unpickles and pins batches as they come."""
    in_order: bool
    cores: float | None
    """That this rank and its workers may use at once; None where no machine facts tell, which counts as enough."""
    others: float
    """Of these, what other programs kept busy: they go on, and the scheduler is fair to all."""
    worker_threads: float
    """Threads of a worker that compute at once while it makes a batch, as its CPU time tells; at least 1."""
    pass_batches: int | None
    """Batches of one pass over the loader; None where none ended, and then none begins again."""
    stages: Mapping[str, StageChange] = field(default_factory=dict)
    """By `category:label`, or by `category` alone for all of it. Of both, the former counts."""
    sent_bytes: float = 1.0
    """Bytes of a batch between processes, of the present ones: pickling, unpickling and pinning follow them."""
    start_up: float = 1.0
    """Time that workers take to start, of the present one."""
    pin_us: float | None = None
    """To pin a batch where the present setup does not; None for what pinning is taken to cost at memory's speed."""
    off_step_us: float = 0.0
    """Of each batch's time in the training thread, what is taken off it: copies and casts on a side stream."""
    step: float = 1.0
    """The training thread's and the device's own time in a step, of the present one."""
    storage: float | None = None
    """Batches a second that storage gives all workers together, at most; None for no such limit."""
