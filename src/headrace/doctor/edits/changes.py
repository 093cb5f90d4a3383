"""Script changes that remedies want, applied together."""

from __future__ import annotations

import ast
import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from headrace.doctor.edits.loader_call import (
    ADOPTED,
    LoaderCall,
    UncertainEditError,
    argument,
    loader_call,
    loop_of,
    option_of,
    with_adopted,
    with_keywords,
    with_prefetcher,
)
from headrace.doctor.edits.script_source import Replacement, ScriptSource, ScriptSources, dotted

SHARED = {"extractfile", "getmember", "getmembers", "getnames", "close", "name"}
"""Attributes that both archive classes have, with the same meaning."""
READING = {"r", "r:", "r:*"}
COMPRESSED = (".gz", ".tgz", ".bz2", ".tbz", ".tbz2", ".xz", ".txz", ".zst")
"""Suffixes of archives that only tarfile reads."""
OF_TAR_INFO = {"mtime", "uid", "gid", "uname", "gname", "pax_headers", "devmajor", "devminor", "chksum"}
"""Attributes of tarfile's members that hardly anything else has."""


LINE = re.compile(r"[^\n]*\n|[^\n]+")
"""Line that ends with a line feed only, as `patch` counts lines."""
NO_NEWLINE = "\\ No newline at end of file\n"


@dataclass(frozen=True)
class WantedEdit:
    """Changes that a remedy wants. Values of `keywords` are Python expressions."""

    keywords: Mapping[str, str] = field(default_factory=dict)
    """Arguments of the loader's own call."""
    prefetcher: str | None = None
    """Device for a prefetcher around the training loop's loader."""
    indexed_tar: bool = False
    adopts: str = ""
    """Text of the module with the Loader that replaces the DataLoader."""

    def with_(self, other: WantedEdit) -> WantedEdit:
        return WantedEdit(
            {**self.keywords, **other.keywords},
            self.prefetcher or other.prefetcher,
            self.indexed_tar or other.indexed_tar,
            self.adopts or other.adopts,
        )


@dataclass(frozen=True)
class ChangedScript:
    path: str
    line: int
    """First changed line, imports excluded."""
    before: str | None
    """Former text; None for a new file."""
    after: str

    def diff(self, root: str) -> str:
        """Return the unified diff for `patch -p1` in `root`, or in `/` if the file is elsewhere."""
        inside = os.path.relpath(self.path, root)
        name = self.path.lstrip(os.sep) if inside.startswith(os.pardir) else inside
        end = "\t" if any(character.isspace() for character in name) else ""  # `patch` would take only its first word
        before, after = (LINE.findall(text or "") for text in (self.before, self.after))
        present = "/dev/null" if self.before is None else f"a/{name}{end}"
        lines = difflib.unified_diff(before, after, present, f"b/{name}{end}")
        return "".join(line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}" for line in lines)


class ScriptEdit(NamedTuple):
    """Replacements in one file for one wanted change."""

    source: ScriptSource
    line: int
    pieces: list[Replacement]


@dataclass(frozen=True)
class LoaderScript:
    """The user's known files, and a loader in them: its facts, and the command that started the script."""

    sources: Sequence[ScriptSource]
    facts: Mapping[str, Any]
    command: Sequence[str] = ()
    files: ScriptSources = field(default_factory=ScriptSources)

    @cached_property
    def call(self) -> LoaderCall | None:
        """The call that certainly made the loader."""
        return loader_call(self.sources, self.facts)

    def run_with(self, keywords: Mapping[str, str]) -> str | None:
        """Return options such as `-j 6` for the arguments that script options set; None if there are none."""
        words = []
        for name, text in keywords.items():
            option = None if self.call is None else option_of(self.sources, argument(self.call.call, name))
            if option is not None:
                words.append(option.words(text, self.command))
        return " ".join(words) or None

    def changed(self, wanted: WantedEdit) -> list[ChangedScript] | None:
        """Return the changed files; None if any change is uncertain, or nothing changes."""
        files = []
        try:
            edits = list(self._edits(wanted))
            for source in self.sources:
                own = [one for one in edits if one.source is source]
                after = source.with_replaced(piece for one in own for piece in one.pieces)
                if after != source.text:
                    ast.parse(after)
                    files.append(ChangedScript(source.path, min(one.line for one in own), source.text, after))
            if wanted.adopts:
                files += self._new_module(wanted.adopts)
        except (UncertainEditError, SyntaxError):
            return None
        return files or None

    def _edits(self, wanted: WantedEdit) -> Iterator[ScriptEdit]:
        if wanted.adopts:  # the arguments of the DataLoader go with it
            if self.call is None:
                raise UncertainEditError
            yield ScriptEdit(self.call.source, self.call.call.lineno, with_adopted(self.call))
        elif wanted.keywords:
            yield from self._of_call(wanted)
        if wanted.prefetcher is not None:
            source, loop = loop_of(self.sources, self.facts)
            if source is None or loop is None:
                raise UncertainEditError
            yield ScriptEdit(source, self.facts["line"], with_prefetcher(source, loop, wanted.prefetcher))
        if wanted.indexed_tar:
            archives = [made for source in self.sources if (made := with_indexed_tar(source)) is not None]
            if len(archives) != 1:  # only one file may open any
                raise UncertainEditError
            yield archives[0]

    def _new_module(self, text: str) -> list[ChangedScript]:
        """Return the module that the script imports its Loader from, unless it already exists."""
        scripts = [one for one in self.command if one.endswith(".py")]
        folders = {os.path.dirname(os.path.abspath(os.path.join(self.files.root, one))) for one in scripts}
        if not scripts and "-m" in self.command:
            folders = {os.path.abspath(self.files.root)}
        assert self.call is not None, "_edits has replaced it"
        folder = os.path.dirname(self.call.source.path)
        path = os.path.join(folder, f"{ADOPTED}.py")
        present = self.files.read(path)
        if (folders and folder not in folders) or present not in (None, text):  # Python would not find it
            raise UncertainEditError
        return [] if present == text else [ChangedScript(path, 1, None, text)]

    def _of_call(self, wanted: WantedEdit) -> Iterator[ScriptEdit]:
        """Yield the changes to the loader's call; for an argument that is no literal, to its option's default."""
        if self.call is None:
            raise UncertainEditError
        (source, call), keywords = self.call, dict(wanted.keywords)
        for name in list(keywords):
            value = argument(call, name)
            if value is None or isinstance(value, ast.Constant):
                continue
            option = option_of(self.sources, value)
            default = None if option is None else option.deciding_default(self.facts.get(name), self.command)
            if option is None or default is None:
                raise UncertainEditError
            piece = option.source.replacing(default, keywords.pop(name))
            yield ScriptEdit(option.source, default.lineno, [piece])
        yield ScriptEdit(source, call.lineno, with_keywords(source, call, keywords))


def with_indexed_tar(source: ScriptSource) -> ScriptEdit | None:
    """Replace every `tarfile.open` for reading; None without any, or if IndexedTar lacks a use of an archive."""
    calls = []
    for call, name in source.calls:
        if name not in ("tarfile.open", "tarfile.TarFile.open"):
            continue
        modes = [*call.args[1:2], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
        texts = [mode.value for mode in modes if isinstance(mode, ast.Constant)]
        if any(isinstance(text, str) and text[:1] in ("w", "a", "x") for text in texts):
            continue
        # A path, and at most a read mode.
        is_path = len(call.args) in (1, 2) and not isinstance(call.args[0], ast.Starred)
        has_others = any(keyword.arg != "mode" for keyword in call.keywords)
        if not is_path or has_others or len(texts) < len(modes) or not READING.issuperset(texts):
            return None
        parts = [node.value for node in ast.walk(call.args[0]) if isinstance(node, ast.Constant)]
        if any(isinstance(part, str) and part.lower().endswith(COMPRESSED) for part in parts):
            return None
        calls.append(call)
    if not calls or not _uses_shared_only(source, calls):
        return None
    pieces = [source.replacing(call, f"headrace.IndexedTar({source.text_of(call.args[0])})") for call in calls]
    return ScriptEdit(source, calls[0].lineno, [*source.importing("headrace"), *pieces])


def _uses_shared_only(source: ScriptSource, calls: list[ast.Call]) -> bool:
    """Return True if archives are used only as both classes allow, and no function gets or returns one."""
    names = [source.bound_to(call) for call in calls]
    if not all(names):
        return False
    bound = {name for each in names for name in each}
    last = {name.rpartition(".")[2] for name in bound if "." in name}  # of any object
    alone = set(_where_alone(source.tree))
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute):
            if node.attr in OF_TAR_INFO:
                return False
            owner = node.value
            if dotted(owner) in bound or (isinstance(owner, ast.Attribute) and owner.attr in last):
                if node.attr not in SHARED:
                    return False
                continue
        if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
            continue
        if dotted(node) in bound and node not in alone:
            return False
    return True


def _where_alone(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the nodes that may use an archive by itself: attribute access, loop, `with`, comparison, truth test."""
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
