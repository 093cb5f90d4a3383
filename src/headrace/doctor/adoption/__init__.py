"""Adoption: what Headrace's Loader would be for a script, and a trial of it on the run's own files."""

from __future__ import annotations

from .trial import EXPECTED_S, LoaderTrialRequest, tried_loader

__all__ = ["EXPECTED_S", "LoaderTrialRequest", "tried_loader"]
