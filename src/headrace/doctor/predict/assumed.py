"""What a run without workers does not tell of having some. Rough, and the interval is widened where it is used."""

from __future__ import annotations

from headrace.doctor.predict.work import PassCosts

FORK_US = 15_000.0
"""Of the training thread, to fork one worker from a process that has loaded torch."""
BEGIN_US = 20_000.0
"""Until its loop runs."""
SHUT_DOWN_US = 20_000.0
"""Of the training thread, to wait for the end of one worker."""
PASSES = PassCosts(FORK_US, BEGIN_US, 1_000.0, SHUT_DOWN_US, 0.0, 0.0, False)

RECEIVE_US = 800.0
"""To ask the worker for the shared memory of a batch of a few tensors, and to open it."""
SHARED_BYTES_PER_US = 800.0
"""Written by a worker into shared memory: 0.8 GB/s, since each batch has pages that the kernel has yet to find and to
clear."""
MAPPED_BYTES_PER_US = 3_000.0
"""Mapped by the training thread that receives them, and given back."""
PIN_BYTES_PER_US = 4_000.0
"""Copying into pinned memory: 4 GB/s, page faults and all."""


def shared_us(batch_bytes: float) -> float:
    """Return what a batch takes longer to make than in the training thread, which uses the same memory again."""
    return batch_bytes / SHARED_BYTES_PER_US


def receive_us(batch_bytes: float) -> float:
    return RECEIVE_US + batch_bytes / MAPPED_BYTES_PER_US


def pin_us(batch_bytes: float) -> float:
    return batch_bytes / PIN_BYTES_PER_US
