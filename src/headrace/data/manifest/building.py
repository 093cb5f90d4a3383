"""From a manifest's rows to the arrays and the outline that are kept of it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pyarrow as pa

from headrace.data.manifest.column_builders import ColumnBuilder, column_builder
from headrace.data.manifest.source import ManifestSource
from headrace.data.manifest.spill import Scratch
from headrace.data.storage.safetensors import Content

_KEY_NAMES = ("__key__", "key")


def build_columns(source: ManifestSource, *, scratch_in: str | None) -> tuple[dict[str, Content], str]:
    """Arrays, and an outline of what is not an array. The arrays grow in a file in the folder `scratch_in`, or where
    temporary files go.

    Raises DatasetError, ReadError, UsageError for a column that is not there, and UnwritableError for the folder.
    """
    schema = source.schema()
    scratch = Scratch(scratch_in)
    builders = {field.name: column_builder(field.type, scratch) for field in schema}
    for batch in source.batches():
        for builder, array in zip(builders.values(), batch.columns, strict=True):
            builder.add(array)
    pa.default_memory_pool().release_unused()  # no use to the training that follows
    files = [list(file) for file in source.files]
    outline = {
        "rows": sum(file.rows for file in source.files),
        "columns": [[name, builder.kind] for name, builder in builders.items()],
        "key": _key(builders, of_texts=not source.byte_columns),
        "files": files,
        "bytes": [list(column) for column in source.byte_columns],
        "classes": {name: list(classes) for name, classes in source.classes.items()},
        "skipped": dict(source.skipped),
    }
    arrays = {
        f"column.{number}.{name}": array
        for number, builder in enumerate(builders.values())
        for name, array in builder.arrays().items()
    }
    return arrays, json.dumps(outline | {"digest": _digest(builders, outline)})


def _key(builders: dict[str, ColumnBuilder], *, of_texts: bool) -> int | None:
    """The number of the column that names the samples; None: their rows do.

    The first column of texts does if `of_texts`: beside images they are captions rather than names.
    """
    names = list(builders)
    for name in _KEY_NAMES:
        if name in builders and builders[name].kind != "list":
            return names.index(name)
    texts = (number for number, name in enumerate(names) if builders[name].kind == "text")
    return next(texts, None) if of_texts else None


def _digest(builders: dict[str, ColumnBuilder], outline: dict[str, Any]) -> str:
    """Identity of the samples: a hash of what each column is called, is and holds."""
    key = None if outline["key"] is None else list(builders)[outline["key"]]
    columns = [[name, builder.kind, *builder.digests()] for name, builder in sorted(builders.items())]
    text = json.dumps(["headrace manifest 1", outline["rows"], key, columns])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
