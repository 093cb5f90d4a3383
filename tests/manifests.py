"""Writes manifests in every format from the same rows, each with a library that shares no code with the readers."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

Rows = Mapping[str, Sequence[Any]]
"""Columns by name."""


def write_csv(path: Path, rows: Rows, *, header: bool = True) -> Path:
    return _write_delimited(path, rows, ",", header)


def write_tsv(path: Path, rows: Rows, *, header: bool = True) -> Path:
    return _write_delimited(path, rows, "\t", header)


def write_json_lines(path: Path, rows: Rows) -> Path:
    lines = [json.dumps(dict(zip(rows, row, strict=True))) for row in zip(*rows.values(), strict=True)]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def write_parquet(path: Path, rows: Rows) -> Path:
    pd.DataFrame(rows).to_parquet(path, index=False)
    return path


def write_text(path: Path, rows: Rows) -> Path:
    """Without names: pass `columns=list(rows)`."""
    lines = [" ".join(map(str, row)) for row in zip(*rows.values(), strict=True)]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


WRITERS: dict[str, Callable[[Path, Rows], Path]] = {
    ".csv": write_csv,
    ".tsv": write_tsv,
    ".txt": write_text,
    ".jsonl": write_json_lines,
    ".odgt": write_json_lines,
    ".parquet": write_parquet,
}


def _write_delimited(path: Path, rows: Rows, delimiter: str, header: bool) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        if header:
            writer.writerow(rows)
        writer.writerows(zip(*rows.values(), strict=True))
    return path
