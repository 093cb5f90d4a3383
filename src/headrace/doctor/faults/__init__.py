"""Faults of the data that a run trains on, proved by the values of its samples: no check goes by a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headrace.doctor.explain.look import Look
from headrace.doctor.faults.evaluation_faults import augmented_evaluation, leaked_split
from headrace.doctor.faults.fault_kinds import Explained
from headrace.doctor.faults.fault_patches import add_patches
from headrace.doctor.faults.fault_pictures import FaultPicture, fault_pictures
from headrace.doctor.faults.geometry_faults import ignored_orientation, misaligned, misaligned_drawn
from headrace.doctor.faults.label_faults import invented_labels
from headrace.doctor.faults.process_faults import (
    loader_place,
    reseeded_order,
    same_draws,
    same_order,
    shared_samples,
    worker_duplicates,
)
from headrace.doctor.faults.resume_faults import resumption
from headrace.doctor.faults.sample_faults import (
    attended_padding,
    class_order,
    duplicate_samples,
    never_visited,
    substituted_samples,
)
from headrace.doctor.faults.value_faults import channel_order, clipped, non_finite, wrong_scale
from headrace.doctor.session.after_run import DataFault
from headrace.doctor.session.model import Session

__all__ = [
    "FaultPicture",
    "add_patches",
    "fault_pictures",
    "find_faults",
    "leaked_split",
    "loader_place",
    "resumption",
    "session_faults",
]
CHECKS: tuple[Callable[[Look, Explained], Iterator[DataFault]], ...] = (
    misaligned,
    misaligned_drawn,
    invented_labels,
    channel_order,
    wrong_scale,
    clipped,
    non_finite,
    ignored_orientation,
    attended_padding,
    duplicate_samples,
    substituted_samples,
)
"""Checks of inspected samples, most harmful fault first."""
LOADER_CHECKS: tuple[Callable[[Look, Explained, Mapping[str, Any]], Iterator[DataFault]], ...] = (
    class_order,
    never_visited,
)
"""Checks that also read the loader's description."""
SESSION_CHECKS: tuple[Callable[[Session], Iterator[DataFault]], ...] = (
    same_order,
    reseeded_order,
    same_draws,
    worker_duplicates,
    shared_samples,
    augmented_evaluation,
)
"""Checks of what all processes recorded."""


def find_faults(look: Look, explained: Explained, loader: Mapping[str, Any]) -> list[DataFault]:
    """Return the faults that inspected samples prove. `loader` is the description of their DataLoader."""
    found = [fault for check in CHECKS for fault in check(look, explained)]
    return found + [fault for check in LOADER_CHECKS for fault in check(look, explained, loader)]


def session_faults(session: Session) -> list[DataFault]:
    """Return the faults that records of workers and passes prove."""
    return [fault for check in SESSION_CHECKS for fault in check(session)]
