"""Faults of the data that a run trains on, proved by the values of its samples."""

from __future__ import annotations

from headrace.doctor.faults.data_faults import find_faults, session_faults
from headrace.doctor.faults.evaluation_faults import leaked_split
from headrace.doctor.faults.fault_pictures import FaultPicture, fault_pictures
from headrace.doctor.faults.process_faults import loader_place
from headrace.doctor.faults.resume_faults import resumption
from headrace.doctor.faults.sample_faults import labels_of

__all__ = [
    "FaultPicture",
    "fault_pictures",
    "find_faults",
    "labels_of",
    "leaked_split",
    "loader_place",
    "resumption",
    "session_faults",
]
