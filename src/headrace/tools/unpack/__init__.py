"""Unpacking of archives: path-safe, parallel, resumable and verified."""

from __future__ import annotations

from headrace.tools.unpack.unpacking import UnpackReport, unpack

__all__ = ["UnpackReport", "unpack"]
