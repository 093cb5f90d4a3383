"""Search for faults of the data: every check compares values, and none goes by a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from headrace.doctor.explain.look import LeafPath, Look
from headrace.doctor.explain.samples import LeafExplanation
from headrace.doctor.faults.drawn_geometry import misaligned_drawn
from headrace.doctor.faults.evaluation_faults import augmented_evaluation
from headrace.doctor.faults.geometry_faults import ignored_orientation, misaligned
from headrace.doctor.faults.label_faults import invented_labels
from headrace.doctor.faults.process_faults import reseeded_order, same_draws, shared_samples, worker_duplicates
from headrace.doctor.faults.range_faults import clipped
from headrace.doctor.faults.sample_faults import (
    attended_padding,
    class_order,
    duplicate_samples,
    never_visited,
    same_order,
    substituted_samples,
)
from headrace.doctor.faults.value_faults import channel_order, non_finite, wrong_scale
from headrace.doctor.session.after_run import DataFault
from headrace.doctor.session.model import Session

Explained: TypeAlias = Mapping[LeafPath, LeafExplanation]
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
