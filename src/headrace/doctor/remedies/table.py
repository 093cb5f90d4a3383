"""All remedies that the doctor knows, in the order of docs/doctor/remedies.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .batch_size import larger_batch
from .batch_tokeniser import batch_tokeniser
from .cache import cache
from .case import Case
from .indexed_tar import indexed_tar
from .native_decode import native_decode
from .padding import pad_to_batch
from .persistent import persistent_workers, start_method
from .pinning import device_prefetch, pin_memory
from .prefetch import prefetch
from .proposal import Proposal
from .ranks import ddp, same_shape
from .smaller_samples import smaller_samples
from .staging import staging
from .threads import threads
from .workers import workers

Family = Callable[[Case], Iterator[Proposal]]

FAMILIES: tuple[Family, ...] = (
    workers,
    prefetch,
    persistent_workers,
    pin_memory,
    start_method,
    threads,
    indexed_tar,
    native_decode,
    smaller_samples,
    batch_tokeniser,
    pad_to_batch,
    cache,
    staging,
    device_prefetch,
    same_shape,
    ddp,
    larger_batch,
)
