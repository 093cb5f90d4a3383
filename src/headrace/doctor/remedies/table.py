"""All remedies that the doctor knows, in the order of docs/doctor/remedies.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace.doctor.causes.case import Case
from headrace.doctor.causes.transfers import smaller_samples
from headrace.doctor.remedies.batch_size import larger_batch
from headrace.doctor.remedies.batch_tokeniser import batch_tokeniser
from headrace.doctor.remedies.cache import cache
from headrace.doctor.remedies.indexed_tar import indexed_tar
from headrace.doctor.remedies.native_decode import native_decode
from headrace.doctor.remedies.padding import pad_to_batch
from headrace.doctor.remedies.persistent import persistent_workers, start_method
from headrace.doctor.remedies.pinning import device_prefetch, pin_memory
from headrace.doctor.remedies.prefetch import prefetch
from headrace.doctor.remedies.proposal import Proposal
from headrace.doctor.remedies.ranks import ddp, same_shape
from headrace.doctor.remedies.staging import staging
from headrace.doctor.remedies.threads import threads
from headrace.doctor.remedies.workers import workers

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
