"""Copies of datasets in memory (tmpfs) or on a local disk: parallel, checksummed, resumable.

sources → listing (what is there) → plan (what is copied; pure) → copying (parts of files, read back) → journal
"""

from headrace.data.staging.staging import stage
from headrace.stage.report import Report, Unstaged
from headrace.stage.sources import Source, sources_of
from headrace.stage.unstaging import unstage

__all__ = ["Report", "Source", "Unstaged", "sources_of", "stage", "unstage"]
