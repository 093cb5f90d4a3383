"""Changes of a script that remedies want, applied together."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .loader_call import (
    NAME,
    argument,
    default_to_change,
    is_literal,
    loader_call,
    one_thread_each,
    option_of,
    with_keywords,
    with_prefetcher,
)
from .script_source import (
    Replacement,
    ScriptSource,
    dotted,
    full_name,
    full_names,
    import_of,
    unified,
)

SHARED = {"extractfile", "getmember", "getmembers", "getnames", "close", "name"}
"""Attributes that both archives have, with the same meaning."""
READING = {"r", "r:", "r:*"}
COMPRESSED = (".gz", ".tgz", ".bz2", ".tbz", ".tbz2", ".xz", ".txz", ".zst")
"""Ends of names of archives that only tarfile reads."""
OF_TAR_INFO = {"mtime", "uid", "gid", "uname", "gname", "pax_headers", "devmajor", "devminor", "chksum"}
"""Attributes that tarfile's members have, and hardly anything else has."""


def with_indexed_tar(source: ScriptSource) -> tuple[int, list[Replacement]] | None:
    """Replace all `tarfile.open` for reading, and return the line of the first with the replacements.

    None where there is none, or where something is asked of an archive that IndexedTar does not have.
    """
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
    """Return whether a call has a path, and at most a mode that reads."""
    others = [keyword.arg for keyword in call.keywords if keyword.arg != "mode"]
    is_path = len(call.args) in (1, 2) and not isinstance(call.args[0], ast.Starred)
    is_read = all(isinstance(one, ast.Constant) and one.value in READING for one in _modes(call))
    return is_path and not others and is_read and not _is_compressed(call.args[0])


def _is_compressed(path: ast.expr) -> bool:
    """Return whether the archive is compressed, as far as the text tells."""
    texts = [node.value for node in ast.walk(path) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return any(text.lower().endswith(COMPRESSED) for text in texts)


def _path(source: ScriptSource, call: ast.Call) -> str:
    return source.between(source.start(call.args[0]), source.end(call.args[0]))


def _uses_shared_only(source: ScriptSource, calls: list[ast.Call]) -> bool:
    """Return whether archives are asked for nothing but what both have, and are given to nobody.

    What a function does with one that it is given, or gives back, is not followed.
    """
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
    """Return whether a node uses archives as both allow. `last`.

    Attributes that archives are bound to, of any object.
    """
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
    """Yield where an archive may stand by itself.

    Before a dot, in a loop, a `with`, a comparison, or a test for None.
    """
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


def _bound_to(source: ScriptSource, call: ast.Call) -> set[str]:
    names: list[str | None] = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and node.value is call:
            names += [dotted(target) for target in node.targets]
        elif isinstance(node, ast.AnnAssign) and node.value is call:
            names.append(dotted(node.target))
        elif isinstance(node, ast.withitem) and node.context_expr is call and node.optional_vars is not None:
            names.append(dotted(node.optional_vars))
    return {name for name in names if name is not None}


@dataclass(frozen=True)
class WantedEdit:
    """Changes that a remedy wants. Values of `keywords` are Python expressions."""

    keywords: Mapping[str, str] = field(default_factory=dict)
    """Arguments of the loader's own call."""
    prefetcher: str | None = None
    """The device whose prefetcher goes around the training loop's loader."""
    indexed_tar: bool = False
    one_thread: bool = False
    """Whether each worker gets one thread."""

    def with_(self, other: WantedEdit) -> WantedEdit:
        return WantedEdit(
            {**self.keywords, **other.keywords},
            self.prefetcher or other.prefetcher,
            self.indexed_tar or other.indexed_tar,
            self.one_thread or other.one_thread,
        )


@dataclass(frozen=True)
class ChangedScript:
    """One file with its changes made."""

    path: str
    line: int
    """First changed line, imports left out."""
    before: str
    after: str

    def diff(self, root: str) -> str:
        return unified(self.path, self.before, self.after, root=root)


def changed(
    wanted: WantedEdit, sources: Sequence[ScriptSource], facts: Mapping[str, Any], command: Sequence[str] = ()
) -> list[ChangedScript] | None:
    """Return the files that change for a loader of these facts, in a script that `command` starts.

    None where one of the changes is not certain, or where nothing changes.
    """
    pieces: list[tuple[ScriptSource, int, list[Replacement]] | None] = []
    if wanted.keywords or wanted.one_thread:
        pieces += _of_loader(wanted, sources, facts, command)
    if wanted.prefetcher is not None:
        pieces.append(_of_loop(wanted.prefetcher, sources, facts))
    if wanted.indexed_tar:
        pieces.append(_of_archives(sources))
    made = [piece for piece in pieces if piece is not None]
    if len(made) < len(pieces):
        return None
    files = [_together(source, [one for one in made if one[0] is source]) for source in sources]
    whole = [one for one in files if one is not None]
    return whole if whole and all(_parses(one.after) for one in whole) else None


def _of_loader(
    wanted: WantedEdit, sources: Sequence[ScriptSource], facts: Mapping[str, Any], command: Sequence[str]
) -> Iterable[tuple[ScriptSource, int, list[Replacement]] | None]:
    """Yield the changes of the loader's call.

    An argument that is no literal keeps what the script makes of it: its option's default changes, where that is what
    the loader has.
    """
    found = loader_call(sources, facts)
    if found is None:
        yield None
        return
    keywords = dict(wanted.keywords)
    if wanted.one_thread:
        function = one_thread_each(found)
        yield None if function is None else (found.source, found.line, function)
        keywords["worker_init_fn"] = NAME
    for name in [one for one in keywords if _is_computed(argument(found.call, one))]:
        value = argument(found.call, name)
        option = None if value is None else option_of(sources, value)
        default = None if option is None else default_to_change(option, facts.get(name), command)
        if option is None or default is None:
            yield None
            return
        piece = Replacement(option.source.start(default), option.source.end(default), keywords.pop(name))
        yield (option.source, default.lineno, [piece])
    replaced = with_keywords(found.source, found.call, keywords)
    yield None if replaced is None else (found.source, found.line, replaced)


def _is_computed(value: ast.expr | None) -> bool:
    return value is not None and not is_literal(value)


def _of_loop(
    device: str, sources: Sequence[ScriptSource], facts: Mapping[str, Any]
) -> tuple[ScriptSource, int, list[Replacement]] | None:
    source = next((one for one in sources if one.path == facts.get("file")), None)
    line = facts.get("line")
    replaced = None if source is None else with_prefetcher(source, line, device)
    return None if source is None or replaced is None else (source, int(line or 0), replaced)


def _of_archives(sources: Sequence[ScriptSource]) -> tuple[ScriptSource, int, list[Replacement]] | None:
    """Change the only file that opens any archive."""
    found = [(source, *made) for source in sources if (made := with_indexed_tar(source)) is not None]
    return found[0] if len(found) == 1 else None


def _together(
    source: ScriptSource, pieces: Sequence[tuple[ScriptSource, int, list[Replacement]]]
) -> ChangedScript | None:
    if not pieces:
        return None
    replaced = [piece for _, _, of_one in pieces for piece in of_one]
    line = min(line for _, line, _ in pieces)
    after = source.with_replaced(replaced)
    return None if after == source.text else ChangedScript(source.path, line, source.text, after)


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True
