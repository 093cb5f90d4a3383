"""Shards of other loaders: golden ones that their libraries wrote, and a minimal writer by the public description."""

from __future__ import annotations

import base64
import io
import json
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "other_shards.b64"
"""A zip in base64, written by mosaicml-streaming 0.13.0 (`MDSWriter`) and litdata 0.2.76 (`BinaryWriter`): a folder for
each format, with five rows in two shards, and `expected.json`, the values that the libraries' own readers give."""


def golden_files() -> dict[str, bytes]:
    """The content of each file by its name."""
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(GOLDEN.read_bytes()))) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_golden(root: Path) -> dict[str, list[dict[str, Any]]]:
    """Write the folders below `root`, and return the expected rows of each format."""
    files = golden_files()
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    expected: dict[str, list[dict[str, Any]]] = json.loads(files["expected.json"])
    return expected


def mds_shard(rows: Sequence[Sequence[bytes]], sizes: Sequence[int | None]) -> bytes:
    """A shard of encoded values by row and column; `sizes` are the columns' fixed ones."""
    packed = [
        b"".join(struct.pack("<I", len(value)) for value, size in zip(row, sizes, strict=True) if size is None)
        + b"".join(row)
        for row in rows
    ]
    config = b'{"format": "mds"}'
    bounds = [4 + 4 * (len(rows) + 1) + len(config)]
    for row in packed:
        bounds.append(bounds[-1] + len(row))
    return struct.pack(f"<{len(bounds) + 1}I", len(rows), *bounds) + config + b"".join(packed)


def write_mds(
    folder: Path, columns: Mapping[str, tuple[str, int | None]], shards: Mapping[str, Sequence[Sequence[bytes]]]
) -> Path:
    """Write shards by their names, with columns of (encoding, fixed size), and their index."""
    described = []
    for name, rows in shards.items():
        data = mds_shard(rows, [size for _, size in columns.values()])
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        described.append(
            {
                "format": "mds",
                "version": 2,
                "samples": len(rows),
                "raw_data": {"basename": name, "bytes": len(data), "hashes": {}},
                "zip_data": None,
                "compression": None,
                "column_names": list(columns),
                "column_encodings": [encoding for encoding, _ in columns.values()],
                "column_sizes": [size for _, size in columns.values()],
            }
        )
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": described}))
    return folder
