"""Faults of the data that a run trains on, proved by the values of its samples: no check goes by a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headrace.doctor.explain.look import Look
from headrace.doctor.faults.box_faults import left_behind, unscaled
from headrace.doctor.faults.evaluation_faults import leaked_split, leaked_streams
from headrace.doctor.faults.fault_kinds import Explained, leaf_name, leaf_role
from headrace.doctor.faults.fault_patches import add_patches
from headrace.doctor.faults.fault_pictures import FaultPicture, fault_pictures
from headrace.doctor.faults.geometry_faults import (
    ignored_orientation,
    misaligned,
    misaligned_drawn,
)
from headrace.doctor.faults.key_faults import (
    KeyedPass,
    class_order_of_streams,
    evaluating_loaders,
    keyed_passes,
    leaked_keys,
    same_order,
    shared_keys,
    stale_state,
    unequal_ranks,
    worker_duplicates,
)
from headrace.doctor.faults.label_faults import invented_labels
from headrace.doctor.faults.process_faults import (
    loader_place,
    same_draws,
    same_draws_of_streams,
    shared_samples,
)
from headrace.doctor.faults.resume_faults import resumption
from headrace.doctor.faults.sample_faults import (
    attended_padding,
    class_order,
    duplicate_samples,
    embedded_padding,
    never_visited,
    substituted_samples,
)
from headrace.doctor.faults.split_faults import leaked_list, redrawn, shifted_classes, shifted_streams
from headrace.doctor.faults.value_faults import channel_order, clipped, non_finite, normalized_by_loop, wrong_scale
from headrace.doctor.session.after_run import DataFault
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import Trainer

__all__ = [
    "FaultPicture",
    "KeyedPass",
    "add_patches",
    "fault_pictures",
    "faults_between",
    "find_faults",
    "keyed_passes",
    "leaked_split",
    "loader_place",
    "normalized_by_loop",
    "resumption",
    "same_draws_of_streams",
    "session_faults",
]
CHECKS: tuple[Callable[[Look, Explained], Iterator[DataFault]], ...] = (
    misaligned,
    misaligned_drawn,
    left_behind,
    unscaled,
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
    same_draws,
    stale_state,
    worker_duplicates,
    shared_keys,
    shared_samples,
    unequal_ranks,
    class_order_of_streams,
    leaked_keys,
    leaked_streams,
    shifted_streams,
    embedded_padding,
)
"""Checks of what all processes recorded."""


def find_faults(look: Look, explained: Explained, loader: Mapping[str, Any]) -> list[DataFault]:
    """Return the faults that inspected samples prove. `loader` is the description of their DataLoader."""
    every = [fault for check in CHECKS for fault in check(look, explained)]
    every += [fault for check in LOADER_CHECKS for fault in check(look, explained, loader)]
    firsts: dict[tuple[str, ...], DataFault] = {}
    for fault in every:
        firsts.setdefault((fault.code, *fault.leaves), fault)
    found = list(firsts.values())
    for path, one in explained.items():
        name, role = leaf_name(path), leaf_role(one)
        for fault in found if name.startswith("item ") else ():
            fault.evidence = re.sub(rf"\b{re.escape(name)}(?!\w|\.\w)", name + role, fault.evidence, count=1)
    return found


def faults_between(
    session: Session, trainer: Trainer, training: tuple[Look, Explained], other: tuple[Look, Explained]
) -> Iterator[DataFault]:
    """Yield faults of another loader's samples, beside the training's, if it was iterated and feeds no step.

    Looks of another start of the command, up to its first batch, know their loaders by the order of their making.
    """
    (look, explained), (its_look, its_explained) = training, other
    whole = [one for one in keyed_passes(session) if one.trainer.pid == trainer.pid]
    passes = [one for one in whole if its_look.loader in (None, one.pass_.loader) and one.ordinal == its_look.ordinal]
    if not passes or any(one.keys.feeds for one in passes):
        return
    place = passes[0].place
    yield from redrawn(its_look, its_explained, place)
    yield from leaked_list(look, its_look, place, is_only=len(evaluating_loaders(whole)) == 1)
    yield from shifted_classes(look, explained, its_look, its_explained, place)


def session_faults(session: Session) -> list[DataFault]:
    """Return the faults that records of workers and passes prove: of one kind and place, those of the first check."""
    found: list[DataFault] = []
    for check in SESSION_CHECKS:
        known = {(fault.code, fault.place) for fault in found}
        found += [fault for fault in check(session) if (fault.code, fault.place) not in known]
    return found
