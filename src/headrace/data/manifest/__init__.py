"""Manifests: files that list samples, a row each, with columns of paths, values and bytes.

A reader a format gives typed batches of rows; builders grow the arrays of columns from them on disk; the arrays are
cached in a sidecar, which each later opening maps. Only reading and building import pyarrow.
"""

from __future__ import annotations

from headrace.data.manifest.manifest_table import open_manifest

__all__ = ["open_manifest"]
