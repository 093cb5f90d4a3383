"""Faults of the data that a run trains on, proved by the values of its samples."""

from __future__ import annotations

from .data_faults import find_faults, session_faults
from .evaluation_faults import leaked_split
from .resume_faults import resumption

__all__ = ["find_faults", "leaked_split", "resumption", "session_faults"]
