"""Where `hr.open` finds what a dataset of the script's own reads: folders, manifests and archives."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from ..edits import ScriptSource, ScriptSources
from .code_layout import literal
from .manifest_sources import archive_paths, listed_columns, manifest_source, rows_held
from .recipe import KEY, DataSource, RecipePart
from .sample_values import ArrayFile, Cell, FilePath, Picture, TokenizedText, Validity, values_inside
from .stand_ins import StandIn

MOST_TEXTS = 400


@dataclass(frozen=True)
class ScriptTexts:
    """Texts of a script that may name files: attributes of its dataset, its arguments, and its literals."""

    texts: tuple[str, ...]

    @classmethod
    def of(cls, dataset: Any, command: Sequence[str], sources: Iterable[ScriptSource]) -> ScriptTexts:
        found = [*_texts_in(dataset), *command]
        for source in sources:
            found += [
                node.value
                for node in ast.walk(source.tree)
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            ]
        return cls(tuple(dict.fromkeys(found)))

    def paths(self, ends: tuple[str, ...]) -> Iterator[str]:
        """Yield paths with one of these endings: as they stand, then below each folder that is named."""
        named = [text for text in self.texts if text.lower().endswith(ends) and "\n" not in text and len(text) > 4]
        yield from named
        folders = [text for text in self.texts if "\n" not in text and 1 < len(text) < 200 and " " not in text]
        beside = [os.path.dirname(text) for text in folders if os.path.dirname(text)]
        for folder in dict.fromkeys([*folders[:MOST_TEXTS], *beside[:MOST_TEXTS]]):
            yield from (os.path.join(folder, text) for text in named if not os.path.isabs(text))

    def folder_of(self, paths: Sequence[str]) -> str:
        """Return the deepest folder named by the script that all these files lie in; empty where none is."""
        named = (text.rstrip("/") for text in self.texts if text.strip("/."))
        return max((one for one in named if all(path.startswith(f"{one}/") for path in paths)), key=len, default="")


def _texts_in(thing: Any, level: int = 0) -> Iterator[str]:
    if isinstance(thing, str):
        yield thing
    elif isinstance(thing, PurePosixPath):
        yield str(thing)
    elif isinstance(thing, StandIn) and level < 2:
        for value in vars(thing).values():
            yield from _texts_in(value, level + 1)


def cells_in(value: Any) -> Iterator[Cell]:
    """Yield the cells that a value is made of."""
    if isinstance(value, Cell):
        yield value
    elif isinstance(value, FilePath):
        yield from value.cells
    elif isinstance(value, Picture | ArrayFile):
        yield from cells_in(value.origin)
    elif isinstance(value, Validity):
        yield from cells_in(value.picture)
    elif isinstance(value, TokenizedText):
        yield from cells_in(value.text)
    else:
        for one in values_inside(value):
            yield from cells_in(one)


def origins_in(value: Any) -> Iterator[FilePath | Cell]:
    """Yield where the pictures and arrays of a value come from."""
    if isinstance(value, Picture | ArrayFile):
        yield value.origin
    elif isinstance(value, Validity):
        yield value.picture.origin
    else:
        for one in values_inside(value):
            yield from origins_in(one)


def table_source(
    value: Any, dataset: Any, texts: ScriptTexts, sources: ScriptSources, named: Sequence[tuple[str, Cell]]
) -> DataSource | None:
    """Return what opens the data that a sample's values come from; None where nothing tells.

    `named`: cells with the name of the output that each goes to, for columns that have no names of their own.
    """
    cells = list(dict.fromkeys(cells_in(value)))
    origins = list(dict.fromkeys(origins_in(value)))
    if not cells or not origins:
        return None
    folder = _class_folder(cells, origins, dataset, texts)
    if folder is not None and all(part.certainty == "exact" for part in folder.parts):
        return folder
    return (
        _archive(origins, dataset)
        or listed_columns(cells, origins, dataset, texts, sources)
        or folder
        or manifest_source(cells, origins, dataset, texts, sources, named)
        or _folders(origins, dataset)
    )


def _class_folder(
    cells: list[Cell], origins: list[FilePath | Cell], dataset: Any, texts: ScriptTexts
) -> DataSource | None:
    """Return a folder of class folders: one picture whose path is in the table, and a label beside it."""
    if len(origins) != 1 or not isinstance(origins[0], Cell) or len(cells) > 2:
        return None
    picture = origins[0]
    labels = [cell for cell in cells if cell != picture]
    paths = [str(path) for path in picture.examples if isinstance(path, str | PurePosixPath)]
    if not paths or any("/" not in path for path in paths):
        return None
    folders = {os.path.dirname(path) for path in paths}
    roots = {os.path.dirname(folder) for folder in folders}
    if not labels:  # then the folders are no classes, and the first of a long list may all lie in one of many
        named = texts.folder_of(paths)
        roots = {named} if named else folders if len(folders) == 1 else roots
    if len(roots) != 1 or not (root := roots.pop()):
        return None
    columns = {(picture.table, picture.keys): "image"}
    if labels and not (labels[0].by_index and all(isinstance(one, int) for one in labels[0].examples)):
        return None
    if labels:
        columns[(labels[0].table, labels[0].keys)] = "label"
    agrees = not labels or _sorted_alike(zip(paths, labels[0].examples, strict=False), dataset)
    note = "" if agrees else "classes are numbered in the order of their names here; compare the labels"
    certainty: Any = "exact" if agrees and labels else "check"
    code = "hr.open(SOURCE)" if labels else "hr.open(SOURCE, classes=False)"
    part = RecipePart(picture.table, "", code, certainty, note or "", "source")
    length = rows_held(dataset, picture.table)
    return DataSource(code, columns, {"SOURCE": literal(root)}, parts=(part,), length=length)


def _sorted_alike(pairs: Iterable[tuple[str, Any]], dataset: Any) -> bool:
    """Tell whether labels of examples are those of their folders' names in sorted order."""
    known = list(pairs)
    for names in vars(dataset).values() if isinstance(dataset, StandIn) else []:
        if isinstance(names, dict) and names and all(isinstance(value, int) for value in names.values()):
            names = sorted(names, key=names.__getitem__)
        if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
            folders = [os.path.basename(os.path.dirname(path)) for path, _ in known]
            if sorted(names) == names and all(folder in names for folder in folders):
                return all(names.index(folder) == label for folder, (_, label) in zip(folders, known, strict=True))
    folders = sorted({os.path.basename(os.path.dirname(path)) for path, _ in known})
    return len(folders) > 1 and all(
        (one[1] < other[1]) == (os.path.dirname(one[0]) < os.path.dirname(other[0]))
        for one in known
        for other in known
        if os.path.dirname(one[0]) != os.path.dirname(other[0])
    )


def _archive(origins: list[FilePath | Cell], dataset: Any) -> DataSource | None:
    """Return an archive whose members are named by a sample's key and an ending: `00001.depth.png`."""
    columns: dict[tuple[str, tuple[str | int, ...]], str] = {}
    archives: set[str] = set()
    keys: set[Cell] = set()
    for origin in origins:
        if not isinstance(origin, FilePath) or origin.archive is None or len(origin.cells) != 1:
            return None
        before, after = around(origin)
        if before.strip("./") or not after.startswith("."):
            return None
        columns[f"{before}|{after}", ()] = after[1:]
        archives.update(archive_paths(origin.archive))
        keys.update(origin.cells)
    if len(archives) != 1 or len(keys) != 1:
        return None
    part = RecipePart("members of the archive", "", "hr.open(SOURCE)", "exact", "", "source")
    length = rows_held(dataset, next(iter(keys)).table)
    return DataSource("hr.open(SOURCE)", columns, {"SOURCE": literal(archives.pop())}, parts=(part,), length=length)


def around(origin: FilePath) -> tuple[str, str]:
    """Return the texts of a path before and after its cell."""
    place = next(k for k, part in enumerate(origin.parts) if isinstance(part, Cell))
    texts = [part if isinstance(part, str) else "" for part in origin.parts]
    return "".join(texts[:place]), "".join(texts[place + 1 :])


def _folders(origins: list[FilePath | Cell], dataset: Any) -> DataSource | None:
    """Return one folder, or several whose files belong together by name."""
    found: dict[str, str] = {}
    columns: dict[tuple[str, tuple[str | int, ...]], str] = {}
    cells: list[Cell] = []
    for number, origin in enumerate(origins):
        if not isinstance(origin, FilePath) or len(origin.cells) != 1:
            return None
        cells += origin.cells
        before, after = around(origin)
        if not before:
            return None
        name = "image" if number == 0 else "mask" if number == 1 else f"image{number}"
        found[name] = before if after in ("", ".*") else f"{before}*{after}"
        columns[(f"{before}|{after}", ())] = name
    length = rows_held(dataset, cells[0].table)
    if len(found) == 1:
        only = next(iter(found.values()))
        part = RecipePart("files", "", "hr.open(SOURCE)", "check", "all images of the folder are taken", "source")
        return DataSource("hr.open(SOURCE)", columns, {"SOURCE": literal(only)}, parts=(part,), length=length)
    code = "hr.open(SOURCE)"
    note = "files of one name belong together; all that have a partner are taken"
    part = RecipePart("files", "", code, "check", note, "source")
    return DataSource(code, columns, {"SOURCE": literal(found)}, parts=(part,), length=length)


def folder_column(source: DataSource, origin: FilePath | Cell) -> str:
    """Return the column that a picture's origin is."""
    if isinstance(origin, Cell):
        column = source.column(origin)
        return "image" if column == KEY else column
    before, after = around(origin)
    return source.columns.get((f"{before}|{after}", ()), source.column(origin.cells[0]))
