"""Where a script makes its DataLoader, and how its arguments are changed."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .script_source import (
    Replacement,
    ScriptSource,
    below_imports,
    dotted,
    full_name,
    full_names,
    import_of,
    top_names,
)

PARAMETERS = (
    "dataset",
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
)
"""Parameters of DataLoader that may be given by place, in order."""
DEFAULTS: Mapping[str, Any] = {
    "num_workers": 0,
    "batch_size": 1,
    "pin_memory": False,
    "persistent_workers": False,
    "in_order": True,
}
"""Values of the arguments that a call does not give."""
FLAGS_ONLY = {"store_true", "store_false", "store_const", "count"}
"""Actions of options that take no value."""
AROUND = {"enumerate", "tqdm", "tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.notebook.tqdm"}
"""Calls whose first argument is what they hand out the items of."""
NAME = "one_thread_each"
CALLS = {"torch": "set_num_threads(1)", "cv2": "setNumThreads(0)"}
"""Call that keeps each module to one thread."""


@dataclass(frozen=True)
class LoaderCall:
    source: ScriptSource
    call: ast.Call

    @property
    def line(self) -> int:
        return self.call.lineno


def loader_call(sources: Sequence[ScriptSource], facts: Mapping[str, Any]) -> LoaderCall | None:
    """Find the only call of DataLoader that may have made the loader of these facts.

    Of several, it is the one whose result bears the name that is iterated where the facts say. None where several may,
    or none; and where the text of the file that iterates it is not known (a cell, `exec`, `python -c`), since it may be
    made there.
    """
    if facts.get("file") not in {source.path for source in sources}:
        return None
    found = [LoaderCall(source, call) for source in sources for call in _calls(source) if _may_have_made(call, facts)]
    if len(found) > 1:
        found = [one for one in found if _names_of(one) & _iterated(sources, facts)]
    return found[0] if len(found) == 1 else None


def argument(call: ast.Call, name: str) -> ast.expr | None:
    """Return the value that a call gives a parameter, by name or by place."""
    by_name = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    if by_name is not None or name not in PARAMETERS:
        return by_name
    place = PARAMETERS.index(name)
    before = call.args[: place + 1]
    return before[place] if len(before) > place and not any(isinstance(one, ast.Starred) for one in before) else None


def is_open(call: ast.Call) -> bool:
    """Return whether a call may give arguments that its text does not show."""
    return any(keyword.arg is None for keyword in call.keywords) or any(
        isinstance(one, ast.Starred) for one in call.args
    )


def _calls(source: ScriptSource) -> list[ast.Call]:
    names = full_names(source.tree)
    return [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and (full_name(node.func, names) or "").rpartition(".")[2] == "DataLoader"
    ]


def _may_have_made(call: ast.Call, facts: Mapping[str, Any]) -> bool:
    return all(_may_be(call, name, facts[name]) for name in DEFAULTS if name in facts)


def _may_be(call: ast.Call, name: str, fact: Any) -> bool:
    """Return whether an argument may have a value.

    Values that are no literals may be anything, and so may what `**options` give, or a batch's size alongside a sampler
    of batches.
    """
    value = argument(call, name)
    if value is None:
        of_batches = name == "batch_size" and argument(call, "batch_sampler") is not None
        return of_batches or is_open(call) or bool(fact == DEFAULTS[name])
    return not isinstance(value, ast.Constant) or bool(value.value == fact)


def _names_of(found: LoaderCall) -> set[str]:
    """Return what the call's result is bound to."""
    names: list[str | None] = []
    for node in ast.walk(found.source.tree):
        if isinstance(node, ast.Assign) and node.value is found.call:
            names += [dotted(target) for target in node.targets]
        elif isinstance(node, ast.AnnAssign) and node.value is found.call:
            names.append(dotted(node.target))
    return {name for name in names if name is not None}


def _iterated(sources: Sequence[ScriptSource], facts: Mapping[str, Any]) -> set[str]:
    """Return the names in the expression that is iterated where the facts say."""
    source = next((one for one in sources if one.path == facts.get("file")), None)
    loop = None if source is None else loop_at(source, facts.get("line"))
    expressions = [] if loop is None else [node for node in ast.walk(loop.iter) if isinstance(node, ast.expr)]
    return {name for node in expressions if (name := dotted(node)) is not None}


def loop_at(source: ScriptSource, line: Any) -> ast.For | None:
    """Return the innermost `for` statement whose head holds a line."""
    loops = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.For) and isinstance(line, int) and node.lineno <= line <= (node.iter.end_lineno or 0)
    ]
    return max(loops, key=lambda node: node.lineno, default=None)


@dataclass(frozen=True)
class ScriptOption:
    """A call of `add_argument` whose value an expression reads."""

    source: ScriptSource
    call: ast.Call
    flags: list[str]
    default: ast.Constant | None
    """None where it is no literal, or there is none."""

    @property
    def takes_value(self) -> bool:
        action = _keyword(self.call, "action")
        return not (isinstance(action, ast.Constant) and action.value in FLAGS_ONLY)

    def given(self, command: Sequence[str]) -> str | None:
        """Return the flag by which a command line gives it; None where it does not."""
        for word in command:
            for flag in self.flags:
                is_short = len(flag) == 2 and word.startswith(flag) and word[2:].lstrip("=").isalnum()
                if word == flag or word.startswith(f"{flag}=") or is_short:
                    return flag
        return None

    def words(self, value: str, command: Sequence[str]) -> str:
        """Write how to give it: by the flag that the command has, else by the longest."""
        flag = self.given(command) or max(self.flags, key=len)
        return f"{flag} {value}" if self.takes_value else flag


def is_literal(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant)


def option_of(sources: Sequence[ScriptSource], value: ast.expr) -> ScriptOption | None:
    """Find the only option that `args.workers` reads, in whichever file; None for any other expression."""
    if not isinstance(value, ast.Attribute):
        return None
    found = [
        ScriptOption(source, node, flags, _default(node))
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"
        if (flags := _flags(node)) and _destination(node, flags) == value.attr
    ]
    return found[0] if len(found) == 1 else None


def default_to_change(option: ScriptOption, fact: Any, command: Sequence[str]) -> ast.Constant | None:
    """Return the literal that decides what the loader gets.

    None where the command gives the option, or where the loader has another value.
    """
    default = option.default
    if default is None or option.given(command) is not None or default.value != fact:
        return None
    return default


def run_with(
    found: LoaderCall, sources: Sequence[ScriptSource], keywords: Mapping[str, str], command: Sequence[str]
) -> str | None:
    """Write `-j 6`, of those of the arguments that options of the script give; None where none does."""
    words = []
    for name, text in keywords.items():
        value = argument(found.call, name)
        option = None if value is None or is_literal(value) else option_of(sources, value)
        if option is not None:
            words.append(option.words(text, command))
    return " ".join(words) or None


def _flags(call: ast.Call) -> list[str]:
    texts = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return [text for text in texts if text.startswith("-")]


def _destination(call: ast.Call, flags: list[str]) -> str:
    """Name it as argparse does: by `dest`, else by the first long flag, else by the first."""
    given = _keyword(call, "dest")
    if isinstance(given, ast.Constant):
        return str(given.value)
    long = [flag for flag in flags if flag.startswith("--")]
    return (long or flags)[0].lstrip("-").replace("-", "_")


def _default(call: ast.Call) -> ast.Constant | None:
    value = _keyword(call, "default")
    return value if isinstance(value, ast.Constant) else None


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((one.value for one in call.keywords if one.arg == name), None)


def with_keywords(source: ScriptSource, call: ast.Call, wanted: Mapping[str, str]) -> list[Replacement] | None:
    """Set arguments of a DataLoader call: replaced where they are given, else added beside the last one.

    None where `*arguments` or `**options` may give one of them, too.
    """
    given = {name: value for name in wanted if (value := argument(call, name)) is not None}
    new = {name: text for name, text in wanted.items() if name not in given}
    if new and is_open(call):
        return None
    pieces = [Replacement(source.start(value), source.end(value), wanted[name]) for name, value in given.items()]
    return [*pieces, *_added(source, call, new)]


def _added(source: ScriptSource, call: ast.Call, new: Mapping[str, str]) -> list[Replacement]:
    if not new:
        return []
    texts = [f"{name}={text}" for name, text in new.items()]
    arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    if not arguments:
        place = source.end(call) - 1
        return [Replacement(place, place, ", ".join(texts))]
    last = max(arguments, key=source.end)
    is_alone = _has_line_of_its_own(source, call, last)
    line = f",{source.newline}{source.indentation(last.lineno)}"
    if is_alone and isinstance(last, ast.keyword):  # before it, since a comment may follow it
        place = source.start(last)
        return [Replacement(place, place, "".join(text + line for text in texts))]
    place = _behind(source, call, last)
    return [Replacement(place, place, "".join((line if is_alone else ", ") + text for text in texts))]


def _behind(source: ScriptSource, call: ast.Call, last: ast.expr | ast.keyword) -> int:
    """Return where an argument ends, parentheses around it included: the tree leaves them out."""
    place = source.end(last)
    rest = source.between(place, source.end(call) - 1)
    closed = rest[: len(rest) - len(rest.lstrip(") \t"))]
    return place + closed.rfind(")") + 1


def _has_line_of_its_own(source: ScriptSource, call: ast.Call, last: ast.expr | ast.keyword) -> bool:
    before = source.between(source.line_start(last.lineno), source.start(last))
    return last.lineno > call.lineno and not before.strip()


def with_prefetcher(source: ScriptSource, line: Any, device: str) -> list[Replacement] | None:
    """Put a prefetcher around what the `for` statement at a line iterates.

    None where that is no plain name, within `enumerate` or `tqdm` at most: anything else may be no loader.
    """
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


def one_thread_each(found: LoaderCall) -> list[Replacement] | None:
    """Return the function that sets one thread in each worker, where the loader has none yet.

    It goes behind the imports, since workers that are spawned look for it by its name. None where the file imports no
    library whose threads could be set, or has that name already.
    """
    source = found.source
    anywhere = full_names(source.tree).values()
    lines = [line for module, call in CALLS.items() if module in anywhere for line in _lines(source, module, call)]
    if not lines or argument(found.call, "worker_init_fn") is not None or NAME in source.text:
        return None
    place = below_imports(source)
    text = source.newline.join(["", "", f"def {NAME}(worker):", *lines, ""])
    return [Replacement(place, place, text, order=1)]


def _lines(source: ScriptSource, module: str, call: str) -> list[str]:
    """Return the lines that set threads, by the names that the file has for the modules at its top."""
    names = [name for name, full in top_names(source.tree).items() if full == module]
    return [f"    {names[0]}.{call}"] if names else [f"    import {module}", "", f"    {module}.{call}"]
