"""What a run without workers does not tell of having some. Rough, and the interval is widened where it is used."""

from __future__ import annotations

from .work import PassCosts

FORK_US = 10_000.0
"""Of the training thread, to fork one worker from a process that has loaded torch."""
BEGIN_US = 20_000.0
"""Until its loop runs."""
PASSES = PassCosts(FORK_US, BEGIN_US, 1_000.0, FORK_US, 0.0, 0.0, False)

RECEIVE_US = 300.0
"""To open the shared memory of a batch of a few tensors."""
PIN_BYTES_PER_US = 4_000.0
"""Copying into pinned memory: 4 GB/s, page faults and all."""


def pin_us(batch_bytes: float) -> float:
    return batch_bytes / PIN_BYTES_PER_US
