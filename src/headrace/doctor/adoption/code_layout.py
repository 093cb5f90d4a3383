"""Layout of Python expressions as by formatters: on one line if they fit, else one element per line."""

from __future__ import annotations

import ast

WIDTH = 88
"""Columns of a line: the default of ruff and black."""
_INDENT = 4


def laid_out(expression: str, *, indent: int = 0, used: int = 0, width: int = WIDTH) -> str:
    """Return an expression in a layout that formatters leave unchanged.

    `indent` is the indent of its first line, `used` the columns taken before and after it on its line.

    Raises:
        SyntaxError: The text is no expression.
    """
    return _code(ast.parse(expression, mode="eval").body, indent, indent + used, width)


def literal(value: object) -> str:
    """Return a value's repr, with double quotes if this needs no more escapes."""
    return _code(ast.parse(repr(value), mode="eval").body, 0, 0, 10**6)


def _code(node: ast.expr, indent: int, used: int, width: int) -> str:
    line = _one_line(node)
    if used + len(line) <= width:
        return line
    opened = _opened(node)
    if opened is None:
        return line
    head, elements, tail = opened
    inner = indent + _INDENT
    rows = [
        " " * inner + prefix + _code(element, inner, inner + len(prefix) + 1, width) + ",\n"
        for prefix, element in elements
    ]
    return f"{head}\n{''.join(rows)}{' ' * indent}{tail}"


def _opened(node: ast.expr) -> tuple[str, list[tuple[str, ast.expr]], str] | None:
    """Return an expression's opening, its elements with their prefixes, and its closing."""
    if isinstance(node, ast.Call) and (node.args or node.keywords):
        given = [("", each) for each in node.args]
        named = [(f"{each.arg}=" if each.arg else "**", each.value) for each in node.keywords]
        return f"{_one_line(node.func)}(", given + named, ")"
    if isinstance(node, ast.List | ast.Tuple | ast.Set) and node.elts:
        ends = {ast.List: "[]", ast.Tuple: "()", ast.Set: "{}"}[type(node)]
        return ends[0], [("", each) for each in node.elts], ends[1]
    if isinstance(node, ast.Dict) and node.keys:
        pairs = zip(node.keys, node.values, strict=True)
        return "{", [("**" if key is None else f"{_one_line(key)}: ", value) for key, value in pairs], "}"
    return None


def _one_line(node: ast.expr) -> str:
    return ast.unparse(_DoubleQuoted().visit(ast.parse(ast.unparse(node), mode="eval")).body)


class _DoubleQuoted(ast.NodeTransformer):
    """Rewriting of strings with double quotes: as names, which an unparser writes unchanged."""

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if not isinstance(node.value, str):
            return node
        text = repr(node.value)
        return ast.Name(text if '"' in text else f'"{text[1:-1]}"', ast.Load())

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        text = ast.unparse(node)
        return ast.Name(f'f"{text[2:-1]}"', ast.Load()) if text.startswith("f'") and '"' not in text else node
