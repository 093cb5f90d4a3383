"""Imports: what a name of the user's code stands for, and one more of them."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from headrace.doctor.edits.script_source import Replacement, Source, dotted


def full_names(tree: ast.Module) -> dict[str, str]:
    """By name in the file, what was imported under it: `{"DL": "torch.utils.data.DataLoader"}`."""
    return _names(ast.walk(tree))


def top_names(tree: ast.Module) -> dict[str, str]:
    """The same of what every function of the file can use: imported by a statement of the module itself."""
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
    """What a name or an attribute stands for, as far as the imports tell."""
    text = dotted(node)
    if text is None:
        return None
    head, dot, rest = text.partition(".")
    return f"{names.get(head, head)}{dot}{rest}"


def import_of(source: Source, module: str) -> list[Replacement]:
    """`import module` behind the last import at the top of the file; nothing where it is there."""
    if any(_brings(node, module) for node in source.tree.body):
        return []
    return [Replacement(place := below_imports(source), place, f"import {module}{source.newline}")]


def below_imports(source: Source) -> int:
    """Where the line behind the last import at the top begins; without any, behind the file's docstring, and without
    that before the first statement: what stands there may be for the shell, or say the file's encoding."""
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
    """Of a function or class, its decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def _is_docstring(node: ast.stmt, source: Source) -> bool:
    return node is source.tree.body[0] and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _brings(node: ast.stmt, module: str) -> bool:
    return isinstance(node, ast.Import) and any(alias.name == module and alias.asname is None for alias in node.names)
