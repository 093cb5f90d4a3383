"""`headrace.IndexedTar` in place of `tarfile.open`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from headrace.doctor.edits.script_source import Replacement, Source, dotted
from headrace.doctor.remedies.edits.imports import full_name, full_names, import_of

SHARED = {"extractfile", "getmember", "getmembers", "getnames", "close", "name"}
"""What both have, with the same meaning."""
READING = {"r", "r:", "r:*"}
COMPRESSED = (".gz", ".tgz", ".bz2", ".tbz", ".tbz2", ".xz", ".txz", ".zst")
"""Ends of names of archives that only tarfile reads."""
OF_TAR_INFO = {"mtime", "uid", "gid", "uname", "gname", "pax_headers", "devmajor", "devminor", "chksum"}
"""What only tarfile's members have, and hardly anything else has."""


def with_indexed_tar(source: Source) -> tuple[int, list[Replacement]] | None:
    """The line of the first `tarfile.open` for reading, and all of them changed. None where there is none, or where
    something is asked of an archive that IndexedTar does not have."""
    names = full_names(source.tree)
    calls = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and full_name(node.func, names) in ("tarfile.open", "tarfile.TarFile.open")
        if not _writes(node)
    ]
    if not calls or not all(_is_simple(call) for call in calls) or not _uses_shared_only(source, calls):
        return None
    pieces = [
        Replacement(source.start(call), source.end(call), f"headrace.IndexedTar({_path(source, call)})")
        for call in calls
    ]
    return calls[0].lineno, [*import_of(source, "headrace"), *pieces]


def _writes(call: ast.Call) -> bool:
    modes = (mode.value for mode in _modes(call) if isinstance(mode, ast.Constant))
    return any(isinstance(mode, str) and mode[:1] in ("w", "a", "x") for mode in modes)


def _modes(call: ast.Call) -> list[ast.expr]:
    return [*call.args[1:2], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]


def _is_simple(call: ast.Call) -> bool:
    """A path, and at most a mode that reads."""
    others = [keyword.arg for keyword in call.keywords if keyword.arg != "mode"]
    is_path = len(call.args) in (1, 2) and not isinstance(call.args[0], ast.Starred)
    is_read = all(isinstance(one, ast.Constant) and one.value in READING for one in _modes(call))
    return is_path and not others and is_read and not _is_compressed(call.args[0])


def _is_compressed(path: ast.expr) -> bool:
    """As far as the text tells."""
    texts = [node.value for node in ast.walk(path) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return any(text.lower().endswith(COMPRESSED) for text in texts)


def _path(source: Source, call: ast.Call) -> str:
    return source.between(source.start(call.args[0]), source.end(call.args[0]))


def _uses_shared_only(source: Source, calls: list[ast.Call]) -> bool:
    """Whether whatever the archives are bound to is asked for nothing but what both have, and is given to nobody: what
    a function does with one that it is given, or gives back, is not followed."""
    bound: set[str] = set()
    for call in calls:
        names = _bound_to(source, call)
        if not names:
            return False
        bound |= names
    last = {name.rpartition(".")[2] for name in bound if "." in name}
    allowed = set(_allowed(source.tree))
    return all(_is_shared(node, bound, last, allowed) for node in ast.walk(source.tree))


def _is_shared(node: ast.AST, bound: set[str], last: set[str], allowed: set[ast.expr]) -> bool:
    """`last`: names of attributes that archives are bound to, of whichever object."""
    if isinstance(node, ast.Attribute) and node.attr in OF_TAR_INFO:
        return False
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr in last:
        return node.attr in SHARED
    if isinstance(node, ast.Attribute) and dotted(node.value) in bound:
        return node.attr in SHARED
    if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
        return True
    return dotted(node) not in bound or node in allowed


def _allowed(tree: ast.Module) -> Iterator[ast.expr]:
    """Where an archive may stand by itself: before a dot, in a loop, a `with`, a comparison, or a test for None."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.value
        elif isinstance(node, (ast.For, ast.comprehension)):
            yield node.iter
        elif isinstance(node, ast.withitem):
            yield node.context_expr
        elif isinstance(node, ast.Compare):
            yield from (node.left, *node.comparators)
        elif isinstance(node, (ast.If, ast.IfExp)):
            yield node.test
        elif isinstance(node, ast.UnaryOp):
            yield node.operand


def _bound_to(source: Source, call: ast.Call) -> set[str]:
    names: list[str | None] = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and node.value is call:
            names += [dotted(target) for target in node.targets]
        elif isinstance(node, ast.AnnAssign) and node.value is call:
            names.append(dotted(node.target))
        elif isinstance(node, ast.withitem) and node.context_expr is call and node.optional_vars is not None:
            names.append(dotted(node.optional_vars))
    return {name for name in names if name is not None}
