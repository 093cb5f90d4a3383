"""What is to be done in a stretch of training, by batch and by step, whoever does it when. Times are microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class BatchWork:
    """One batch: made, sent, received."""

    wait: float
    """In which its maker waits for storage and needs no core."""
    compute: float
    """Of the thread that makes it, or of several at once; writing its tensors into shared memory included."""
    serialise: float
    receive: float
    """Unpickling it, and pinning where that is done by the same thread."""
    held: float
    """More, while its worker makes another one: that must answer for each tensor."""
    pin: float


@dataclass(frozen=True)
class StepWork:
    """One optimizer step, without what it waits for. It is spread evenly over its batches."""

    gets: int
    compute: float
    wait: float
    """For the device, or whatever else needs no core."""
    device: float
    """Of the device beside the training thread, where it runs on while that goes ahead; else 0."""


@dataclass(frozen=True)
class PassCosts:
    """What the beginning and the end of a pass take."""

    fork: float
    """Of the training thread, for each worker that it starts."""
    begin: float
    """From a worker's start until it takes up its first batch."""
    resume: float
    """Of the training thread, where the workers are kept."""
    shut_down: float
    """Of the training thread, for each worker that ends."""
    first_wait: float
    first_compute: float
    """More than usual, of the first batch that a worker makes in its life."""
    iterates: bool
    """Whether that is so of the first one in each pass."""


@dataclass(frozen=True)
class Work:
    """Batches are taken in a circle, in the order of their indices; steps, too."""

    batches: Sequence[BatchWork]
    steps: Sequence[StepWork]
    passes: PassCosts
    draw: float
    """To draw a batch's indices and hand them out, in the training thread."""
    team: int
    """Threads that compute a step together; each waits for the others after every small part of it."""
