"""Archives to files: path-safe, in parallel, resumable and verified."""

from __future__ import annotations

from headrace.tools.unpack.unpacking import UnpackReport, unpack

__all__ = ["UnpackReport", "unpack"]
