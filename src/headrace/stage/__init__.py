"""Copies of datasets in memory (tmpfs) or on a local disk: parallel, checksummed, resumable.

sources → listing (what is there) → plan (what is copied; pure) → copying (parts of files, read back) → journal
"""

from .report import Report, Unstaged
from .sources import Source, sources_of
from .staging import stage
from .unstaging import unstage

__all__ = ["Report", "Source", "Unstaged", "sources_of", "stage", "unstage"]
