"""Options of a script's own: where an argument of DataLoader's comes from one, that is what is to be changed."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.doctor.edits.loader_call import LoaderCall, argument
from headrace.doctor.edits.script_source import Source

FLAGS_ONLY = {"store_true", "store_false", "store_const", "count"}
"""Actions of options that take no value."""


@dataclass(frozen=True)
class ScriptOption:
    """A call of `add_argument` whose value an expression reads."""

    source: Source
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


def option_of(sources: Sequence[Source], value: ast.expr) -> ScriptOption | None:
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
    """Return the literal that decides what the loader gets; None where the command gives the option, or where the
    loader has another value."""
    default = option.default
    if default is None or option.given(command) is not None or default.value != fact:
        return None
    return default


def run_with(
    found: LoaderCall, sources: Sequence[Source], keywords: Mapping[str, str], command: Sequence[str]
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
