"""Manifests that a dataset of the script's own has read: their columns, by name or by the values that it holds."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ..edits import ScriptSources
from .code_layout import literal
from .recipe import DataSource, RecipePart
from .sample_values import Cell, Computed, FilePath
from .stand_ins import LongList, StandIn, TableStandIn

if TYPE_CHECKING:
    from .table_sources import ScriptTexts

_MANIFESTS = (".csv", ".tsv", ".jsonl", ".parquet", ".txt", ".json")
_ARCHIVES = (".tar", ".zip")
_COMPARED = 3
"""Rows of a manifest that are compared with the first values of the script's lists."""


def manifest_source(
    cells: list[Cell],
    origins: list[FilePath | Cell],
    dataset: Any,
    texts: ScriptTexts,
    sources: ScriptSources,
    named: Sequence[tuple[str, Cell]],
) -> DataSource | None:
    """Return a manifest: cells of one table, which a file of the script's has as columns."""
    tables = {cell.table for cell in cells if cell.keys}
    if len(tables) != 1:
        return None
    root = root_of(origins)
    if root is None:
        return None
    archive, before = root
    keys = {cell.keys[0] for cell in cells if cell.keys}
    for path in texts.paths(_MANIFESTS):
        if (columns := _columns(path, keys, sources)) is None:
            continue
        names, has_header = columns
        mapping = {
            (cell.table, tuple(key for key in cell.keys if key != "random")): str(
                names[cell.keys[0]] if isinstance(cell.keys[0], int) and cell.keys[0] < len(names) else cell.keys[0]
            )
            for cell in cells
            if cell.keys
        }
        constants = {"MANIFEST": literal(path)}
        arguments = ["MANIFEST"]
        place = archive or before
        if place:
            constants["ROOT"] = literal(place)
            arguments.append("root=ROOT")
        if not has_header:
            told = {cell.keys[0]: name for name, cell in named if cell.keys and isinstance(cell.keys[0], int)}
            listed = [told.get(number, f"column{number}") for number in range(len(names))]
            arguments.append(f"columns={listed!r}")
            mapping = {key: listed[key[1][0]] if isinstance(key[1][0], int) else name for key, name in mapping.items()}
        code = f"hr.open({', '.join(arguments)})"
        table = next(iter(tables))
        part, taken = _rows_part(table, code, dataset, path, sources)
        found = DataSource(code, mapping, constants, parts=(part,), length=taken)
        nested = {cell for cell in cells if len(_path_of(cell)) > 1 and cell.keys[-1] != "bytes"}
        if has_header and any(isinstance(cell.keys[0], int) and cell.examples for cell in cells if cell.keys):
            note = "columns are taken by their place in a row, since the values of the script's lists are not theirs"
            return replace(found, parts=(part, RecipePart(path, "", code, "check", note, "source")))
        return found if not nested else _nested(found, cells, path)
    return None


def _rows_part(table: str, code: str, dataset: Any, path: str, sources: ScriptSources) -> tuple[RecipePart, int | None]:
    """Return the part of a table's file, and the rows that both have; None where these differ, or are not known."""
    taken, whole = rows_held(dataset, table), _rows_of(path, sources)
    differ = taken is not None and taken != whole
    note = f"the script holds {taken:,} rows, the file {whole:,}: data.select(indices)" if differ else ""
    part = RecipePart(table, "", code, "check" if note else "exact", note, "source")
    return part, None if differ else taken


def _path_of(cell: Cell) -> tuple[str | int, ...]:
    """Return the keys that lead to a cell, without a draw among its elements, which a field makes."""
    return tuple(key for key in cell.keys if key != "random")


def _nested(found: DataSource, cells: Sequence[Cell], path: str) -> DataSource:
    """Return a source whose columns are taken out of the objects of a `.jsonl`, line by line."""
    if not path.endswith(".jsonl"):
        note = "a column lies inside of another one: write it as one of its own, which hr.open reads"
        return replace(found, parts=(*found.parts, RecipePart(path, "", "", "no", note, "source")))
    names = {(cell.table, keys): "_".join(map(str, keys)) for cell in cells if (keys := _path_of(cell))}
    columns = ", ".join(
        f"{name!r}: [row{''.join(f'[{key!r}]' for key in keys)} for row in ROWS]" for (_, keys), name in names.items()
    )
    code = f"hr.open({{{columns}}}{', root=ROOT' if 'ROOT' in found.constants else ''})"
    lines = r"Path(MANIFEST).read_text(encoding='utf-8').split('\n')"
    constants = {**found.constants, "ROWS": f"[json.loads(line) for line in {lines} if line.strip()]"}
    return replace(
        found, code=code, columns=names, constants=constants, imports=("import json", "from pathlib import Path")
    )


def listed_columns(
    cells: Sequence[Cell],
    origins: Sequence[FilePath | Cell],
    dataset: Any,
    texts: ScriptTexts,
    sources: ScriptSources,
) -> DataSource | None:
    """Return a manifest whose columns the script holds as lists, or a list of tuples: known by their first values."""
    keyed = [cell for cell in cells if cell.keys]
    root = root_of(list(origins))
    if root is None or root[0] or any(len(cell.keys) > 1 or not isinstance(cell.keys[0], int) for cell in keyed):
        return None
    for path in texts.paths((".csv", ".tsv", ".jsonl")):
        rows = _first_rows(path, sources)
        found = _matched(cells, rows, root[1]) if rows else None
        if found is None:
            continue
        names, folder = found
        constants = {"MANIFEST": literal(path)} | ({"ROOT": literal(folder)} if folder else {})
        code = f"hr.open(MANIFEST{', root=ROOT' if folder else ''})"
        part, taken = _rows_part(cells[0].table, code, dataset, path, sources)
        guessed = [cell for cell in cells if not cell.examples]
        note = "of this list no values are known: its column is that of its name"
        checks = [RecipePart(cell.table, "", names[cell], "check", note, "source") for cell in guessed]
        columns = {(cell.table, cell.keys): name for cell, name in names.items()}
        return DataSource(code, columns, constants, parts=(part, *checks), length=taken)
    return None


def _first_rows(path: str, sources: ScriptSources) -> list[dict[str, Any]]:
    """Return the first rows of a manifest that names its columns; nothing where it cannot be read."""
    text = sources.read(path) or ""
    if path.lower().endswith(".jsonl"):
        try:
            rows = [json.loads(line) for line in islice(filter(str.strip, text.split("\n")), _COMPARED)]
        except ValueError:
            return []
        return [row for row in rows if isinstance(row, dict)]
    delimiter = "\t" if path.lower().endswith(".tsv") else ","
    return list(islice(csv.DictReader(io.StringIO(text.lstrip("\ufeff")), delimiter=delimiter), _COMPARED))


def _matched(cells: Sequence[Cell], rows: Sequence[dict[str, Any]], folder: str) -> tuple[dict[Cell, str], str] | None:
    """Return the column of each cell, and the folder that a manifest's paths lead on from; None where one has none."""
    found: dict[Cell, str] = {}
    folders = {folder} if folder else set()
    for cell in cells:
        for name in rows[0]:
            values = [str(row.get(name)) for row in rows]
            befores = {_before(one, value) for one, value in zip(cell.examples, values, strict=False)}
            if cell.examples and len(befores) == 1 and None not in befores and name not in found.values():
                found[cell] = name
                folders |= {one for one in befores if one}
                break
            own = cell.table.rpartition(".")[2].rstrip("s")
            if not cell.examples and not cell.keys and name.rstrip("s") == own:
                found[cell] = name
                break
    whole = len(found) == len(cells) and any(cell.examples for cell in cells) and len(folders) < 2
    return (found, folders.pop() if folders else "") if whole else None


def _before(held: Any, value: str) -> str | None:
    """Return what the script has before a manifest's value, as the folder of a path; None where it is another."""
    text = str(held)
    if text == value:
        return ""
    try:
        return "" if float(text) == float(value) else None
    except ValueError:
        return text.removesuffix(f"/{value}") if text.endswith(f"/{value}") else None


def rows_held(dataset: Any, table: str) -> int | None:
    """Return how many rows a table of the dataset's has; None where that is not known."""
    held = vars(dataset).get(table.removeprefix("self.")) if isinstance(dataset, StandIn) else None
    if isinstance(held, TableStandIn):
        return held.rows
    return held.count if isinstance(held, LongList) else len(held) if isinstance(held, list) else None


def _rows_of(path: str, sources: ScriptSources) -> int:
    """Return how many rows a manifest has that could be read."""
    if path.endswith(".parquet"):
        facts = sources.table(path)
        return 0 if facts is None else facts.rows
    text = sources.read(path) or ""
    if path.endswith((".csv", ".tsv")):
        rows = csv.reader(io.StringIO(text), delimiter="\t" if path.endswith(".tsv") else ",")
        return sum(bool(row) for row in rows) - 1
    return sum(bool(line.strip()) for line in text.split("\n"))


def _columns(path: str, keys: set[str | int], sources: ScriptSources) -> tuple[list[str], bool] | None:
    """Return the columns of a manifest, and whether they are named; None where it lacks one of `keys`."""
    wanted = {key for key in keys if isinstance(key, str)}
    if path.lower().endswith(".parquet"):
        facts = sources.table(path)
        return (list(facts.columns), True) if facts is not None and wanted and wanted <= set(facts.columns) else None
    text = sources.read(path)
    if text is None:
        return None
    first = text.partition("\n")[0].strip("\r\ufeff")
    end = os.path.splitext(path)[1].lower()
    if end in (".csv", ".tsv"):
        names = next(csv.reader([first], delimiter="\t" if end == ".tsv" else ","), [])
        return (
            (names, True) if wanted <= set(names) and (wanted or len(names) > max(_numbers(keys), default=0)) else None
        )
    if end == ".txt":
        count = len(first.split())
        return (
            ([str(k) for k in range(count)], False) if not wanted and count > max(_numbers(keys), default=0) else None
        )
    if end in (".jsonl", ".json"):
        named = [key for key in wanted if f'"{key}"' in first[:4000]]
        return (sorted(wanted), True) if end == ".jsonl" and wanted and len(named) == len(wanted) else None
    return None


def _numbers(keys: set[str | int]) -> list[int]:
    return [key for key in keys if isinstance(key, int)]


def root_of(origins: list[FilePath | Cell]) -> tuple[str, str] | None:
    """Return (archive, folder) that the paths of all pictures lead into; None where they differ, or are made up."""
    archives: set[str] = set()
    folders: set[str] = set()
    for origin in origins:
        if isinstance(origin, Cell):
            folders.add("")
            continue
        before = "".join(part for part in origin.parts[:1] if isinstance(part, str)) if len(origin.parts) > 1 else ""
        if len(origin.cells) != 1 or not isinstance(origin.parts[-1], Cell):
            return None
        folders.add(
            "".join(part for part in origin.parts[:-1] if isinstance(part, str)).removeprefix("./") or before[:0]
        )
        if origin.archive is not None:
            archives.update(archive_paths(origin.archive))
    if len(folders) != 1 or len(archives) > 1:
        return None
    return (archives.pop() if archives else "", folders.pop().rstrip("/"))


def archive_paths(archive: Any) -> Iterator[str]:
    """Yield the paths of archives that a value is made of."""
    if isinstance(archive, Computed):
        for one in archive.inputs:
            yield from archive_paths(one)
    elif isinstance(archive, StandIn):
        for value in vars(archive).values():
            yield from archive_paths(value)
    elif isinstance(archive, str | PurePosixPath) and str(archive).endswith(_ARCHIVES):
        yield str(archive)
