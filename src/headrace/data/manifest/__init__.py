"""Manifests: files that list samples, one per row, with columns of paths, values and bytes.

A reader per format yields typed batches of rows. Builders append them to column arrays on disk. A sidecar caches the
arrays, and later openings map it. Only reading and building import pyarrow.
"""

from __future__ import annotations

from headrace.data.manifest.manifest_table import open_manifest

__all__ = ["open_manifest"]
