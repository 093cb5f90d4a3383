"""Source of a user's script: its text, names and imports, and replacements in it."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from headrace.doctor.session.model import Session

MOST_BYTES = 4 << 20


@dataclass(frozen=True)
class Replacement:
    """Replacement of the source bytes from `start` to `end` by `new`; an insertion if both are equal."""

    start: int
    end: int
    new: str


class ScriptSource:
    """Source text with byte offsets as positions, as in syntax tree columns."""

    def __init__(self, path: str, text: str) -> None:
        """Parse a text. Raises SyntaxError if it is no Python of this version, and ValueError for some texts."""
        self.path = path
        self.text = text
        self.tree = ast.parse(text)
        self._bytes = text.encode()
        self.newline = "\r\n" if b"\r\n" in self._bytes else "\n"
        self._line_starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))

    @cached_property
    def names(self) -> dict[str, str]:
        """Imports of the file by local name: `{"DL": "torch.utils.data.DataLoader"}`."""
        return imported(ast.walk(self.tree))

    @cached_property
    def calls(self) -> list[tuple[ast.Call, str]]:
        """All calls, each with its full name by the imports; empty if the callee is no name."""
        found = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                head, dot, rest = (dotted(node.func) or "").partition(".")
                found.append((node, f"{self.names.get(head, head)}{dot}{rest}"))
        return found

    def bound_to(self, call: ast.Call) -> set[str]:
        """Return the names that a call's result is bound to."""
        targets: list[ast.expr] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign) and node.value is call:
                targets += node.targets
            elif isinstance(node, ast.AnnAssign) and node.value is call:
                targets.append(node.target)
            elif isinstance(node, ast.withitem) and node.context_expr is call and node.optional_vars is not None:
                targets.append(node.optional_vars)
        return {name for target in targets if (name := dotted(target)) is not None}

    def start(self, node: ast.expr | ast.stmt | ast.keyword | ast.alias) -> int:
        return self._line_starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt | ast.keyword | ast.alias) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._line_starts[node.end_lineno - 1] + node.end_col_offset

    def line_start(self, line: int) -> int:
        """Return the start of a line, or the end of the text after the last line."""
        return self._line_starts[min(line, len(self._line_starts)) - 1]

    def between(self, start: int, end: int) -> str:
        return self._bytes[start:end].decode()

    def replacing(self, node: ast.expr, new: str) -> Replacement:
        return Replacement(self.start(node), self.end(node), new)

    def with_replaced(self, replacements: Iterable[Replacement]) -> str:
        """Return the whole text with the replacements made. They must not overlap; duplicates count once."""
        text = self._bytes
        for piece in sorted(dict.fromkeys(replacements), key=lambda one: (one.start, one.end), reverse=True):
            text = text[: piece.start] + piece.new.encode() + text[piece.end :]
        return text.decode()


def dotted(node: ast.expr) -> str | None:
    """Return the dotted name of a name or attribute expression; None for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = dotted(node.value)
        return None if head is None else f"{head}.{node.attr}"
    return None


def imported(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Return full names of the imports in these statements, by local name."""
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


@dataclass(frozen=True)
class ScriptSources:
    """Reader of files (None if missing), and the root of paths in diffs. Without a reader, changes stay hints."""

    read: Callable[[str], str | None] = lambda _: None
    root: str = os.sep


def read_file(path: str) -> str | None:
    """Return the text with its own line ends; None if missing, too large, or not UTF-8."""
    try:
        if os.path.getsize(path) > MOST_BYTES:
            return None
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, ValueError):
        return None


def files_here() -> ScriptSources:
    """Return the reader of this machine's files, with paths relative to the current folder."""
    return ScriptSources(read_file, os.getcwd())


def parsed(session: Session, paths: Iterable[object], sources: ScriptSources) -> list[ScriptSource]:
    """Return the Python files in `paths`, and files in which producers were sampled."""
    # A place is `file:line:function`, and a file name may contain colons.
    seen = [line.place.rsplit(":", 2)[0] for maker in session.makers for line in maker.lines]
    found: dict[str, ScriptSource] = {}
    for path in [*paths, *seen]:
        if not isinstance(path, str) or path in found or (text := sources.read(path)) is None:
            continue
        try:
            found[path] = ScriptSource(path, text)
        except (SyntaxError, ValueError):  # for a newer Python version, or no Python
            continue
    return list(found.values())
