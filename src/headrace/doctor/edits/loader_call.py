"""The call that makes a script's DataLoader, and changes of its arguments."""

from __future__ import annotations

import ast
import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from headrace.doctor.edits.script_source import Replacement, ScriptSource, ScriptSources, dotted

PARAMETERS = (
    "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory",
    "drop_last", "timeout", "worker_init_fn", "multiprocessing_context", "generator",
)  # fmt: skip
"""Positional parameters of DataLoader, in order."""
DEFAULTS: Mapping[str, Any] = {
    "num_workers": 0,
    "batch_size": 1,
    "pin_memory": False,
    "persistent_workers": False,
    "in_order": True,
}
FLAGS_ONLY = {"store_true", "store_false", "store_const", "count"}
"""Actions of options without a value."""
AROUND = {"enumerate", "tqdm", "tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.notebook.tqdm"}
"""Calls that iterate their first argument."""
LINE = re.compile(r"[^\n]*\n|[^\n]+")
"""Line that ends with a line feed only, as `patch` counts lines."""
NO_NEWLINE = "\\ No newline at end of file\n"
WantedEdit = dict[str, str]
"""Arguments of the loader's own call, as Python expressions."""


class UncertainEditError(Exception):
    """Edit with an uncertain place or meaning in the user's files, which is therefore not proposed."""


class LoaderCall(NamedTuple):
    source: ScriptSource
    call: ast.Call


def loader_call(sources: Sequence[ScriptSource], facts: Mapping[str, Any]) -> LoaderCall | None:
    """Return the only DataLoader call that may have made the loader of these facts.

    Of several, it is the call whose result has the name that is iterated at the recorded line. None if there are
    several or none, or if the iterating file's text is unknown (a cell, `exec`, `python -c`), since the call may be
    there.
    """
    if facts.get("file") not in {source.path for source in sources}:
        return None
    found = [
        LoaderCall(source, call)
        for source in sources
        for call, name in source.calls
        if name.rpartition(".")[2] == "DataLoader"
        and all(_may_be(call, name, facts[name]) for name in DEFAULTS if name in facts)
    ]
    if len(found) > 1:
        _, loop = loop_of(sources, facts)
        expressions = [] if loop is None else [node for node in ast.walk(loop.iter) if isinstance(node, ast.expr)]
        iterated = {dotted(node) for node in expressions}
        found = [one for one in found if one.source.bound_to(one.call) & iterated]
    return found[0] if len(found) == 1 else None


def argument(call: ast.Call, name: str) -> ast.expr | None:
    """Return the value that a call passes for a parameter, by name or position."""
    by_name = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    if by_name is not None or name not in PARAMETERS:
        return by_name
    place = PARAMETERS.index(name)
    before = call.args[: place + 1]
    return before[place] if len(before) > place and not any(isinstance(one, ast.Starred) for one in before) else None


def _is_open(call: ast.Call) -> bool:
    """Return True if a call may pass arguments that its text does not show."""
    is_starred = any(isinstance(one, ast.Starred) for one in call.args)
    return is_starred or any(keyword.arg is None for keyword in call.keywords)


def _may_be(call: ast.Call, name: str, fact: Any) -> bool:
    """Return True if an argument has a value, or may have it: no literal, in `**options`, or a batch sampler's."""
    value = argument(call, name)
    if value is None:
        of_batches = name == "batch_size" and argument(call, "batch_sampler") is not None
        return of_batches or _is_open(call) or bool(fact == DEFAULTS[name])
    return not isinstance(value, ast.Constant) or bool(value.value == fact)


def loop_of(sources: Sequence[ScriptSource], facts: Mapping[str, Any]) -> tuple[ScriptSource | None, ast.For | None]:
    """Return the file that iterates the loader, and the innermost `for` statement with that line in its head."""
    source, line = next((one for one in sources if one.path == facts.get("file")), None), facts.get("line")
    if source is None or not isinstance(line, int):
        return None, None
    loops = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.For) and node.lineno <= line <= (node.iter.end_lineno or 0)
    ]
    return source, max(loops, key=lambda node: node.lineno, default=None)


@dataclass(frozen=True)
class ScriptOption:
    """Call of `add_argument` that sets the value of an expression."""

    source: ScriptSource
    flags: list[str]
    keywords: dict[str | None, ast.expr]

    def given(self, command: Sequence[str]) -> str | None:
        """Return the flag with which a command line sets the option, or None."""
        for word in command:
            for flag in self.flags:
                is_short = len(flag) == 2 and word.startswith(flag) and word[2:].lstrip("=").isalnum()
                if word == flag or word.startswith(f"{flag}=") or is_short:
                    return flag
        return None

    def words(self, value: str, command: Sequence[str]) -> str:
        """Return the option as command line text, with the command's own flag or the longest one."""
        flag, action = self.given(command) or max(self.flags, key=len), self.keywords.get("action")
        has_no_value = isinstance(action, ast.Constant) and action.value in FLAGS_ONLY
        return flag if has_no_value else f"{flag} {value}"

    def deciding_default(self, fact: Any, command: Sequence[str]) -> ast.Constant | None:
        """Return the literal that sets the loader's value; None if the command sets it, or the value differs."""
        default = self.keywords.get("default")
        if not isinstance(default, ast.Constant) or default.value != fact or self.given(command) is not None:
            return None
        return default


def option_of(sources: Sequence[ScriptSource], value: ast.expr | None) -> ScriptOption | None:
    """Return the only option that `args.workers` reads, in any file; None for any other expression."""
    found: list[ScriptOption] = []
    if not isinstance(value, ast.Attribute):
        return None
    for source in sources:
        for call, _ in source.calls:
            if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
                texts = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
                option = ScriptOption(
                    source, [one for one in texts if one.startswith("-")], {one.arg: one.value for one in call.keywords}
                )
                # argparse names it by `dest`, else by the first long flag, else by the first flag.
                dest, long = option.keywords.get("dest"), [flag for flag in option.flags if flag.startswith("--")]
                names = [flag.lstrip("-").replace("-", "_") for flag in long or option.flags]
                if names and value.attr == (str(dest.value) if isinstance(dest, ast.Constant) else names[0]):
                    found.append(option)
    return found[0] if len(found) == 1 else None


def with_keywords(source: ScriptSource, call: ast.Call, wanted: Mapping[str, str]) -> list[Replacement]:
    """Set arguments of a DataLoader call. Raises UncertainEditError if `*arguments` or `**options` may set one."""
    given = {name: value for name in wanted if (value := argument(call, name)) is not None}
    pieces = [source.replacing(value, wanted[name]) for name, value in given.items()]
    texts = [f"{name}={text}" for name, text in wanted.items() if name not in given]
    if not texts:
        return pieces
    if _is_open(call):
        raise UncertainEditError
    arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    if not arguments:
        place = source.end(call) - 1
        return [Replacement(place, place, ", ".join(texts))]
    last = max(arguments, key=source.end)
    before = source.between(source.line_start(last.lineno), source.start(last))
    is_alone = last.lineno > call.lineno and not before.strip()
    line = f",{source.newline}{before}"
    if is_alone and isinstance(last, ast.keyword):  # before it, since a comment may follow it
        place = source.start(last)
        return [*pieces, Replacement(place, place, "".join(text + line for text in texts))]
    # After it, and after closing parentheses, which are not in the syntax tree.
    place = source.end(last)
    rest = source.between(place, source.end(call) - 1)
    place += rest[: len(rest) - len(rest.lstrip(") \t"))].rfind(")") + 1
    return [*pieces, Replacement(place, place, "".join((line if is_alone else ", ") + text for text in texts))]


def iterated(loop: ast.For) -> ast.expr:
    """Return the iterated expression inside `enumerate` or `tqdm`."""
    loader = loop.iter
    while isinstance(loader, ast.Call) and dotted(loader.func) in AROUND and loader.args:
        loader = loader.args[0]
    return loader


@dataclass(frozen=True)
class ChangedScript:
    path: str
    line: int
    """First changed line."""
    before: str
    after: str

    def diff(self, root: str) -> str:
        """Return the unified diff for `patch -p1` in `root`, or in `/` if the file is elsewhere."""
        inside = os.path.relpath(self.path, root)
        name = self.path.lstrip(os.sep) if inside.startswith(os.pardir) else inside
        end = "\t" if any(character.isspace() for character in name) else ""  # `patch` would take only its first word
        before, after = LINE.findall(self.before), LINE.findall(self.after)
        lines = difflib.unified_diff(before, after, f"a/{name}{end}", f"b/{name}{end}")
        return "".join(line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}" for line in lines)


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
                own = [(line, pieces) for edited, line, pieces in edits if edited is source]
                after = source.with_replaced(piece for _, pieces in own for piece in pieces)
                if after != source.text:
                    ast.parse(after)
                    files.append(ChangedScript(source.path, min(line for line, _ in own), source.text, after))
        except (UncertainEditError, SyntaxError):
            return None
        return files or None

    def _edits(self, wanted: WantedEdit) -> Iterator[tuple[ScriptSource, int, list[Replacement]]]:
        """Yield changed lines of the loader's call, or of an option's default if it sets an argument."""
        if self.call is None:
            raise UncertainEditError
        (source, call), keywords = self.call, dict(wanted)
        for name in list(keywords):
            value = argument(call, name)
            if value is None or isinstance(value, ast.Constant):
                continue
            option = option_of(self.sources, value)
            default = None if option is None else option.deciding_default(self.facts.get(name), self.command)
            if option is None or default is None:
                raise UncertainEditError
            piece = option.source.replacing(default, keywords.pop(name))
            yield option.source, default.lineno, [piece]
        yield source, call.lineno, with_keywords(source, call, keywords)
