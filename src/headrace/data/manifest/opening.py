"""Opens a manifest: its columns as they were kept by an earlier opening, or built now and kept."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from functools import partial

from .. import safetensors
from ..file_kind import TEXT_SUFFIXES
from ..identity import identify_closely
from ..open_file import OpenFile
from ..origin import Origin
from ..safetensors import Arrays, Content
from ..sidecar import Sidecar, build_unchanged, open_sidecar
from ..table import PathRoot, Table
from .column_names import check_names
from .kept import Kept, load_kept

SUFFIXES = (*TEXT_SUFFIXES, ".parquet")

_FORMAT = "headrace manifest 2"
"""Raise the number whenever the meaning of a sidecar changes: others are rebuilt."""
_KEPT_FROM_BYTES = 1 << 20
"""Smaller manifests are read each time, unless `cache` was given: a second file beside each little list would be in the
way."""


def open_manifest(path: str, *, root: PathRoot, columns: Sequence[str] | None, cache: str | None) -> Table:
    """The samples of the manifest at `path` (absolute), a row each, whose paths lead into `root`.

    `columns`: names for a `.csv`, `.tsv` or `.txt` without a header; of a manifest that has names, those to take.

    Raises DatasetError (EmptyDatasetError, ChangedError), ReadError, and UsageError for a column that is not there.
    """
    names = None if columns is None else check_names(columns)
    kept, in_sidecar = _open_kept(path, names, cache)
    name = os.path.basename(path)
    return Table(
        f"manifest {name}",
        kept.keys,
        kept.columns,
        {},
        root=root,
        origin=Origin(name, kept.first_line),
        known_digest=kept.digest,
        again=partial(open_manifest, path, root=root, columns=names, cache=cache) if in_sidecar else None,
    )


def _open_kept(path: str, columns: Sequence[str] | None, cache: str | None) -> tuple[Kept, bool]:
    """Also whether it is kept for the next opening."""

    def build(path: str, folder: str | None) -> tuple[dict[str, Content], str]:
        # Building alone needs pyarrow, which takes a while to import.
        from .building import build_columns
        from .formats import read_manifest

        return build_columns(read_manifest(path, columns), scratch_in=folder)

    def load(arrays: Arrays, outline: str, _: int) -> Kept:
        return load_kept(arrays, outline)

    identity = identify_closely(OpenFile(os.fsencode(path)))
    # What is kept depends on what the columns are called: runs that take others do not build it anew in turn.
    variant = "" if columns is None else hashlib.blake2b(json.dumps(columns).encode(), digest_size=4).hexdigest()
    sidecar = Sidecar(f"{_FORMAT} {json.dumps(columns)}", build, load, identify_closely, variant, lazy=True)
    if identity.bytes < _KEPT_FROM_BYTES and cache is None:
        contents, outline = build_unchanged(sidecar, path, identity, scratch_in=None)
        return load_kept(safetensors.mapped(contents), outline), False
    return open_sidecar(sidecar, path, identity, cache=cache), True
