"""`headrace.DevicePrefetcher` around what a training loop iterates."""

from __future__ import annotations

import ast
from typing import Any

from headrace.doctor.edits.loader_call import loop_at
from headrace.doctor.edits.script_source import Replacement, Source, dotted
from headrace.doctor.remedies.edits.imports import import_of

AROUND = {"enumerate", "tqdm", "tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.notebook.tqdm"}
"""Calls whose first argument is what they hand out the items of."""


def with_prefetcher(source: Source, line: Any, device: str) -> list[Replacement] | None:
    """None where no `for` statement iterates a plain name at that line, within `enumerate` or `tqdm` at most: anything
    else may be no loader."""
    loop = loop_at(source, line)
    loader = None if loop is None else _loader(loop.iter)
    if loader is None:
        return None
    start, end = source.start(loader), source.end(loader)
    wrapped = f'headrace.DevicePrefetcher({source.between(start, end)}, "{device}")'
    return [*import_of(source, "headrace"), Replacement(start, end, wrapped)]


def _loader(node: ast.expr) -> ast.expr | None:
    while isinstance(node, ast.Call) and dotted(node.func) in AROUND and node.args:
        node = node.args[0]
    return node if dotted(node) is not None else None
