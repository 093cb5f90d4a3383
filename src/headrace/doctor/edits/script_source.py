"""Source of a user's script: its text, names and imports, and unified diffs."""

from __future__ import annotations

import ast
import difflib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from ..session.model import Session

Read = Callable[[str], "str | None"]
"""Gives the text of a file, None where there is none."""
MOST_BYTES = 4 << 20
"""Larger files are no scripts."""
NO_NEWLINE = "\\ No newline at end of file\n"


@dataclass(frozen=True)
class Replacement:
    """`new` in place of the bytes from `start` to `end` of the source; with both the same, it is put in there."""

    start: int
    end: int
    new: str
    order: int = 0
    """Among those that are put in at one place."""


class ScriptSource:
    """Positions are offsets in bytes, as the syntax tree has its columns."""

    def __init__(self, path: str, text: str) -> None:
        """Parse a text.

        Raises:
            SyntaxError: The text is no Python of this version's; ValueError for some such texts.
        """
        self.path = path
        self.text = text
        self.tree = ast.parse(text)
        self._bytes = text.encode()

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return starts

    @cached_property
    def newline(self) -> str:
        return "\r\n" if b"\r\n" in self._bytes else "\n"

    def at(self, line: int, column: int) -> int:
        """Return the offset of a 1-based line and a column in bytes."""
        return self._line_starts[line - 1] + column

    def start(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        return self.at(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.at(node.end_lineno, node.end_col_offset)

    def line_start(self, line: int) -> int:
        """Return where a line starts; of the first line behind the last, too: the end of the text."""
        return self._line_starts[min(line, len(self._line_starts)) - 1]

    def indentation(self, line: int) -> str:
        """Return the white space at the beginning of a line."""
        text = self._bytes[self.line_start(line) : self.line_start(line + 1)].decode()
        return text[: len(text) - len(text.lstrip(" \t"))]

    def between(self, start: int, end: int) -> str:
        return self._bytes[start:end].decode()

    def with_replaced(self, replacements: Iterable[Replacement]) -> str:
        """Return the whole text with the pieces in their places.

        They must not overlap; the same piece given twice counts once.
        """
        text = self._bytes
        for piece in sorted(set(replacements), key=lambda one: (one.start, one.end, one.order), reverse=True):
            text = text[: piece.start] + piece.new.encode() + text[piece.end :]
        return text.decode()


def dotted(node: ast.expr) -> str | None:
    """Return `torch.utils.data.DataLoader` of a name or of attributes of one; None of any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = dotted(node.value)
        return None if head is None else f"{head}.{node.attr}"
    return None


def full_names(tree: ast.Module) -> dict[str, str]:
    """Return what was imported under each name of the file: `{"DL": "torch.utils.data.DataLoader"}`."""
    return _names(ast.walk(tree))


def top_names(tree: ast.Module) -> dict[str, str]:
    """Return the same of what every function of the file can use: imported by a statement of the module itself."""
    return _names(tree.body)


def _names(nodes: Iterable[ast.AST]) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                head = alias.name.partition(".")[0]
                names[alias.asname or head] = alias.name if alias.asname else head
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def full_name(node: ast.expr, names: dict[str, str]) -> str | None:
    """Return what a name or an attribute stands for, as far as the imports tell."""
    text = dotted(node)
    if text is None:
        return None
    head, dot, rest = text.partition(".")
    return f"{names.get(head, head)}{dot}{rest}"


def import_of(source: ScriptSource, module: str) -> list[Replacement]:
    """Put `import module` behind the last import at the top of the file; nothing where it is there."""
    if any(_brings(node, module) for node in source.tree.body):
        return []
    return [Replacement(place := below_imports(source), place, f"import {module}{source.newline}")]


def below_imports(source: ScriptSource) -> int:
    """Return where the line behind the last import at the top begins.

    Without any it is behind the file's docstring, and without that before the first statement: what stands there may be
    for the shell, or say the file's encoding.
    """
    head: ast.stmt | None = None
    for node in source.tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            head = node
        elif not _is_docstring(node, source):
            break
        elif head is None:
            head = node
    if head is not None:
        return source.line_start((head.end_lineno or head.lineno) + 1)
    return source.line_start(min((_first_line(node) for node in source.tree.body), default=1))


def _first_line(node: ast.stmt) -> int:
    """Return the first line of a statement, the decorators of a function or class included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def _is_docstring(node: ast.stmt, source: ScriptSource) -> bool:
    return node is source.tree.body[0] and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _brings(node: ast.stmt, module: str) -> bool:
    return isinstance(node, ast.Import) and any(alias.name == module and alias.asname is None for alias in node.names)


@dataclass(frozen=True)
class ScriptSources:
    """Reader of files, and the folder from which diffs name them."""

    read: Read
    root: str


def read_file(path: str) -> str | None:
    """Return the text with its own line ends; None where it is gone, too large, or no UTF-8."""
    try:
        if os.path.getsize(path) > MOST_BYTES:
            return None
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, ValueError):
        return None


def files_here() -> ScriptSources:
    """Read files of this machine, named from the current folder."""
    return ScriptSources(read_file, os.getcwd())


def no_files() -> ScriptSources:
    """Read no files: every change stays a hint."""
    return ScriptSources(lambda _: None, os.sep)


def parsed(session: Session, paths: Iterable[object], sources: ScriptSources) -> list[ScriptSource]:
    """Return the Python files among these and those where makers were seen at work."""
    found: dict[str, ScriptSource] = {}
    for path in [*paths, *_seen(session)]:
        if not isinstance(path, str) or path in found:
            continue
        text = sources.read(path)
        source = None if text is None else _parsed(path, text)
        if source is not None:
            found[path] = source
    return list(found.values())


def _seen(session: Session) -> Iterable[str]:
    """Yield the files of `file:line:function`; a file's name may hold colons itself."""
    for maker in session.makers:
        for line in maker.lines:
            yield line.place.rsplit(":", 2)[0]


def _parsed(path: str, text: str) -> ScriptSource | None:
    try:
        return ScriptSource(path, text)
    except (SyntaxError, ValueError):  # for a newer Python than this one, or no Python
        return None


def unified(path: str, before: str, after: str, *, root: str) -> str:
    """Return the diff of one file, named from `root` on where it lies below it; empty where nothing differs."""
    name = named_from(path, root)
    end = "\t" if any(character.isspace() for character in name) else ""  # else `patch` takes its first word for it
    lines = difflib.unified_diff(_lines(before), _lines(after), f"a/{name}{end}", f"b/{name}{end}")
    return "".join(_ended(lines))


def named_from(path: str, root: str) -> str:
    """Return a path with slashes, and no leading one: `patch -p1` in `root`, or in `/`, finds it."""
    inside = os.path.relpath(path, root)
    return path.lstrip(os.sep) if inside.startswith(os.pardir) else inside


def _lines(text: str) -> list[str]:
    """Split by line feeds only, as `patch` counts them."""
    return [line + "\n" for line in text.split("\n")[:-1]] + [last for last in [text.split("\n")[-1]] if last]


def _ended(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}"
