"""A file of the user's code: its text, its syntax tree, and pieces of the text put in place of others."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Replacement:
    """`new` in place of the bytes from `start` to `end` of the source; with both the same, it is put in there."""

    start: int
    end: int
    new: str
    order: int = 0
    """Among those that are put in at one place."""


class Source:
    """Positions are offsets in bytes, as the syntax tree has its columns."""

    def __init__(self, path: str, text: str) -> None:
        """Raises SyntaxError, or ValueError, where the text is no Python of this version's."""
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
        """Of a 1-based line and a column in bytes."""
        return self._line_starts[line - 1] + column

    def start(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        return self.at(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.at(node.end_lineno, node.end_col_offset)

    def line_start(self, line: int) -> int:
        """Of the first line behind the last, too: the end of the text."""
        return self._line_starts[min(line, len(self._line_starts)) - 1]

    def indentation(self, line: int) -> str:
        """White space at the beginning of a line."""
        text = self._bytes[self.line_start(line) : self.line_start(line + 1)].decode()
        return text[: len(text) - len(text.lstrip(" \t"))]

    def between(self, start: int, end: int) -> str:
        return self._bytes[start:end].decode()

    def with_replaced(self, replacements: Iterable[Replacement]) -> str:
        """The whole text with the pieces in their places. They must not overlap; the same piece given twice counts
        once."""
        text = self._bytes
        for piece in sorted(set(replacements), key=lambda one: (one.start, one.end, one.order), reverse=True):
            text = text[: piece.start] + piece.new.encode() + text[piece.end :]
        return text.decode()


def dotted(node: ast.expr) -> str | None:
    """`torch.utils.data.DataLoader` of a name or of attributes of one; None of any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = dotted(node.value)
        return None if head is None else f"{head}.{node.attr}"
    return None
