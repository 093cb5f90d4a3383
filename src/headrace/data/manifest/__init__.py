"""Manifests: a file that lists samples, a row each, with columns of paths and of values.

A reader a format gives typed batches of rows (`source`); builders grow a column's arrays from them on disk; what they
end up with is kept in a sidecar, which each later opening maps (`opening`). Only the building imports pyarrow.
"""

from headrace.data.manifest.manifest_table import open_manifest

__all__ = ["open_manifest"]
