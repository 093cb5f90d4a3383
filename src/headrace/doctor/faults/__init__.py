"""Faults of the data that a run trains on, proved by the values of its samples."""

from __future__ import annotations

from .data_faults import find_faults, session_faults
from .resume_faults import resumption

__all__ = ["find_faults", "resumption", "session_faults"]
