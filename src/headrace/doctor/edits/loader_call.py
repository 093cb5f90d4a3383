"""The call that makes a script's DataLoader, and changes of its arguments."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.doctor.edits.script_source import Replacement, ScriptSource, dotted

ADOPTED = "headrace_loader"
"""Module that an edited script imports its Loader from; `make_dataloader` there replaces the DataLoader's call."""
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


def with_prefetcher(source: ScriptSource, loop: ast.For, device: str) -> list[Replacement]:
    """Put a prefetcher around a `for`'s plain name, `enumerate` or `tqdm`; else raises UncertainEditError."""
    loader = iterated(loop)
    if dotted(loader) is None:
        raise UncertainEditError
    wrapped = f'headrace.DevicePrefetcher({source.text_of(loader)}, "{device}")'
    return [*source.importing("headrace"), source.replacing(loader, wrapped)]


def with_adopted(found: LoaderCall) -> list[Replacement]:
    """Replace a DataLoader by the Loader of `ADOPTED`, with the script's own batch size."""
    source, call = found
    size = argument(call, "batch_size")
    is_given = size is not None and not (isinstance(size, ast.Constant) and size.value is None)
    arguments = f"batch_size={source.text_of(size)}" if size is not None and is_given else ""
    return [*source.importing(ADOPTED), source.replacing(call, f"{ADOPTED}.make_dataloader({arguments})")]
