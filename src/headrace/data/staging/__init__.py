"""Copies of datasets in memory (tmpfs) or on a local disk: parallel, checksummed, resumable."""

from __future__ import annotations

from headrace.data.staging.source_files import StageSource, sources_of
from headrace.data.staging.stage_folder import StageReport
from headrace.data.staging.staging import UnstageReport, stage, stage_dataset, unstage

__all__ = ["StageReport", "StageSource", "UnstageReport", "sources_of", "stage", "stage_dataset", "unstage"]
