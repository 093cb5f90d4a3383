"""Faults of the data that a run trains on, proved by the values of its samples."""

from __future__ import annotations

from .data_faults import find_faults, session_faults
from .evaluation_faults import leaked_split
from .fault_patches import add_patches
from .fault_pictures import FaultPicture, fault_pictures
from .process_faults import loader_place
from .resume_faults import resumption
from .sample_faults import labels_of

__all__ = [
    "FaultPicture",
    "add_patches",
    "fault_pictures",
    "find_faults",
    "labels_of",
    "leaked_split",
    "loader_place",
    "resumption",
    "session_faults",
]
