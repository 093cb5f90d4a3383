"""Streams of a script's own: what an `IterableDataset` yields, read from its `__iter__`, and the files it goes through.

Loops over files, lines, rows and members are followed once, with a cell of that table for what each turn has. Which
part of them a worker takes makes no difference to the Loader, which reads all of them.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import Any

from ..edits import ScriptSources
from .code_layout import literal
from .recipe import DataSource, KnownSample, RecipePart
from .sample_code import ReturnedValue, SampleReader
from .sample_expressions import Names
from .sample_values import Cell, Computed, FilePath, ModuleName, Picture
from .stand_ins import LongList, first_rows
from .table_sources import ScriptTexts, table_source

_MANIFESTS = (".csv", ".tsv", ".jsonl", ".txt")
_OPENING = {
    "builtins.open": "lines",
    "io.open": "lines",
    "codecs.open": "lines",
    "tarfile.open": "members",
    "tarfile.TarFile": "members",
}
_SAME = ("builtins.iter", "builtins.sorted", "builtins.reversed", "builtins.list", "itertools.islice", "csv.reader")
"""Functions that give what they are given, in part or in another order."""
_PART_OF_WORKER = ("worker", "rank", "world")
_IMAGE_ENDS = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
_LABEL_ENDS = (".cls", ".label")


@dataclass(frozen=True)
class StreamedFile:
    """File that a stream goes through: its lines, or the members of an archive."""

    kind: str
    """`lines` or `members`."""
    paths: tuple[str, ...]
    """The file's own, or the first of many."""
    count: int
    """Files of that kind that the script goes through."""


class StreamReader(SampleReader):
    """Reader of what a dataset's `__iter__` yields first."""

    opened: StreamedFile | None = None
    shuffle: Computed | None = None
    """Statement that shuffles the files, or what was read of them."""

    def sample(self) -> Any:
        found = self.script.method(self.dataset, "__iter__")
        if found is None:
            return Computed(f"{type(self.dataset).__name__}.__iter__", "")
        return self.run(*found, [self.dataset], {}, self.names)

    def _statement(self, node: ast.stmt, local: Names) -> None:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield | ast.YieldFrom):
            given = node.value.value
            raise ReturnedValue(None if given is None else self.value(given, local))
        if isinstance(node, ast.While):
            self._block(node.body, local)  # a stream without end
        else:
            super()._statement(node, local)

    def _bare(self, node: ast.Expr, local: Names) -> None:
        text = self.text(node)
        if isinstance(node.value, ast.Call) and text.partition("(")[0].endswith("shuffle"):
            self.shuffle = self.computed(node.value)
        elif not text.startswith("next("):  # past a header
            super()._bare(node, local)

    def _branch(self, node: ast.If, local: Names) -> None:
        if not any(isinstance(one, ast.Continue) for one in node.body):
            super()._branch(node, local)
        elif not any(part in ast.unparse(node.test) for part in _PART_OF_WORKER):
            self.left_out.append(self.computed(node))
            if node.orelse:
                self._block(node.orelse, local)

    def _loop(self, node: ast.For, local: Names) -> None:
        element = self._element(node.iter, local)
        if element is None:
            super()._loop(node, local)
        else:
            self.bind(node.target, element, local)
            self._block(node.body, local)

    def _element(self, node: ast.expr, local: Names) -> Any:
        """Return what each turn of a loop has, where it goes through data; None of any other loop."""
        if isinstance(node, ast.Call) and node.args:
            name = self._name(node.func, local)
            if name == "builtins.enumerate":
                inner = self._element(node.args[0], local)
                return None if inner is None else (ModuleName("index"), inner)
            if name in _SAME or name.startswith("tqdm"):
                return self._element(node.args[0], local)
        over = self.value(node, local)
        if isinstance(over, StreamedFile):
            self.opened = over
            return Cell(f"{over.kind} of {over.paths[0]}")
        if isinstance(over, Cell) or (isinstance(node, ast.Call) and isinstance(over, dict | tuple)):
            return over  # a part of a list, or what a generator of the script's own yields
        is_listed = isinstance(over, LongList) or (
            isinstance(over, list) and isinstance(node, ast.Attribute | ast.Name)
        )
        return Cell(ast.unparse(node), (), first_rows(over)) if is_listed else None

    def _name(self, node: ast.expr, local: Names) -> str:
        found = self.value(node, local)
        return found.name if isinstance(found, ModuleName) else ""

    def _of_call(self, node: ast.Call, local: Names) -> Any:
        name = self._name(node.func, local) if node.args else ""
        if name in _OPENING:
            kind, path = _OPENING[name], self.value(node.args[0], local)
            paths = path.examples if isinstance(path, Cell) and not path.keys else (path,)
            texts = tuple(one for one in paths if isinstance(one, str))
            if texts and (kind == "members" or texts[0].lower().endswith(_MANIFESTS)):
                return StreamedFile(kind, texts, self._count(path))
        elif name in (*_SAME, "csv.DictReader") and isinstance(first := self.value(node.args[0], local), StreamedFile):
            return first
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("readlines", "splitlines", "read", "getmembers"):
            on = self.value(node.func.value, local)
            if isinstance(on, StreamedFile):
                return on
        return super()._of_call(node, local)

    def _count(self, path: Any) -> int:
        """Return how many files there are of the list that a path is of."""
        for held in self.own.values():
            if isinstance(path, Cell) and isinstance(held, LongList | list) and first_rows(held) == path.examples:
                return held.count if isinstance(held, LongList) else len(held)
        return 1

    def _of_subscript(self, node: ast.Subscript, local: Names) -> Any:
        on = self.value(node.value, local)
        return on if isinstance(on, StreamedFile) else super()._of_subscript(node, local)

    def _of_ifexp(self, node: ast.IfExp, local: Names) -> Any:
        """Take what there is without workers, which is all."""
        test = ast.unparse(node.test)
        if test.endswith(("is None", "is not None")):
            return self.value(node.body if test.endswith("is None") else node.orelse, local)
        return super()._of_ifexp(node, local)


def stream_sample(reader: StreamReader, texts: ScriptTexts, sources: ScriptSources) -> KnownSample | None:
    """Return the sample of a stream; None where what it goes through is no source."""
    value = reader.sample()
    found = reader.script.method(reader.dataset, "__iter__")
    if found is None or isinstance(value, Computed) or value is None:
        return None
    opened = reader.opened
    if opened is None:
        source = table_source(value, reader.dataset, texts, sources, [])
    elif opened.kind == "members":
        value = _of_members(value)
        source = DataSource("hr.open(SOURCE)", constants={"SOURCE": literal(opened.paths[0])})
    else:
        source = table_source(value, reader.dataset, ScriptTexts(opened.paths), sources, [])
    if source is None:
        return None
    place = reader.place_in(*found)
    name = f"{type(reader.dataset).__name__}.__iter__"
    note = "its samples are read from its code, in the order of its files; compare their number and the first of them"
    parts = [RecipePart(name, place, source.code, "check", note, "source")]
    if opened is not None and opened.count > 1:
        source, part = _of_many(source, opened)
        parts.append(part)
    if reader.shuffle is not None:
        note = "the Loader shuffles all samples, the script what it goes through"
        parts.append(RecipePart(reader.shuffle.text, reader.shuffle.place, "shuffle=True", "differs", note, "loader"))
    kept = [part for part in source.parts if part.certainty != "exact"]
    return KnownSample(value, replace(source, parts=(*parts, *kept), length=None))


def _of_many(source: DataSource, opened: StreamedFile) -> tuple[DataSource, RecipePart]:
    """Return the source of all files of a list, of which the session has the first."""
    name = "MANIFEST" if "MANIFEST" in source.constants else "SOURCE"
    listed = list(opened.paths) if len(opened.paths) == opened.count else None
    note = "" if listed else f"the script goes through {opened.count:,} files, of which these are known: list them all"
    code = literal(listed or list(opened.paths))
    part = RecipePart(f"{opened.count:,} files", "", source.code, "check" if note else "exact", note, "source")
    return replace(source, constants={**source.constants, name: code}), part


def _of_members(value: Any) -> Any:
    """Return a sample with the columns of a tar for its members: the image, the label."""
    if isinstance(value, Picture):
        return replace(value, origin=Cell("", ("image",)))
    if isinstance(value, FilePath):
        end = str(value.parts[-1]) if isinstance(value.parts[-1], str) else ""
        name = "image" if end.lower().endswith(_IMAGE_ENDS) else "label" if end in _LABEL_ENDS else end.strip(".")
        return Cell("", (name,))
    if isinstance(value, dict):
        return {key: _of_members(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_of_members(one) for one in value)
    return replace(value, inputs=tuple(map(_of_members, value.inputs))) if isinstance(value, Computed) else value
