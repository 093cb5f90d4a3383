"""Faults of the data that a run trains on, proved by the values of its samples."""

from __future__ import annotations

from .all_files import compare_all
from .data_faults import find_faults, session_faults
from .evaluation_faults import leaked_split
from .listed_samples import read_listings
from .resume_faults import resumption

__all__ = ["compare_all", "find_faults", "leaked_split", "read_listings", "resumption", "session_faults"]
