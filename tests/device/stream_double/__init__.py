"""Double of a device for tests without one: it records the order of work, and finds what nothing orders."""

from stream_double.checker import (
    HOST_READ_UNSYNCHRONISED,
    MISSING_WAIT,
    NEEDLESS_SYNC,
    READ_BEFORE_COPY,
    REFILL_UNDER_COPY,
    REUSE_ACROSS_STREAMS,
    WRITE_UNDER_USE,
    Checker,
    Finding,
)
from stream_double.device import SimulatedDevice, simulated_device

__all__ = [
    "HOST_READ_UNSYNCHRONISED",
    "MISSING_WAIT",
    "NEEDLESS_SYNC",
    "READ_BEFORE_COPY",
    "REFILL_UNDER_COPY",
    "REUSE_ACROSS_STREAMS",
    "WRITE_UNDER_USE",
    "Checker",
    "Finding",
    "SimulatedDevice",
    "simulated_device",
]
