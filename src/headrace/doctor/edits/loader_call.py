"""The call that made a DataLoader, found in the user's files by what the loader turned out to be."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.doctor.edits.script_source import Source, dotted
from headrace.doctor.remedies.edits.imports import full_name, full_names

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
"""Of DataLoader, in order, those that may be given by place."""
DEFAULTS: Mapping[str, Any] = {
    "num_workers": 0,
    "batch_size": 1,
    "pin_memory": False,
    "persistent_workers": False,
    "in_order": True,
}
"""What a loader has of those that its call does not give."""


@dataclass(frozen=True)
class LoaderCall:
    source: Source
    call: ast.Call

    @property
    def line(self) -> int:
        return self.call.lineno


def loader_call(sources: Sequence[Source], facts: Mapping[str, Any]) -> LoaderCall | None:
    """The only call of DataLoader that may have made the loader of these facts: of all that may, the one whose result
    bears the name that is iterated where the facts say. None where several may, or none; and where the text of the
    file that iterates it is not known (a cell, `exec`, `python -c`), since it may be made there."""
    if facts.get("file") not in {source.path for source in sources}:
        return None
    found = [LoaderCall(source, call) for source in sources for call in _calls(source) if _may_have_made(call, facts)]
    if len(found) > 1:
        found = [one for one in found if _names_of(one) & _iterated(sources, facts)]
    return found[0] if len(found) == 1 else None


def argument(call: ast.Call, name: str) -> ast.expr | None:
    """The value that a call gives a parameter, by name or by place."""
    by_name = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    if by_name is not None or name not in PARAMETERS:
        return by_name
    place = PARAMETERS.index(name)
    before = call.args[: place + 1]
    return before[place] if len(before) > place and not any(isinstance(one, ast.Starred) for one in before) else None


def is_open(call: ast.Call) -> bool:
    """Whether it may give arguments that its text does not show."""
    return any(keyword.arg is None for keyword in call.keywords) or any(
        isinstance(one, ast.Starred) for one in call.args
    )


def _calls(source: Source) -> list[ast.Call]:
    names = full_names(source.tree)
    return [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and (full_name(node.func, names) or "").rpartition(".")[2] == "DataLoader"
    ]


def _may_have_made(call: ast.Call, facts: Mapping[str, Any]) -> bool:
    return all(_may_be(call, name, facts[name]) for name in DEFAULTS if name in facts)


def _may_be(call: ast.Call, name: str, fact: Any) -> bool:
    """Values that are no literals may be anything, and so may what `**options` give, or a batch's size beside a
    sampler of batches."""
    value = argument(call, name)
    if value is None:
        of_batches = name == "batch_size" and argument(call, "batch_sampler") is not None
        return of_batches or is_open(call) or bool(fact == DEFAULTS[name])
    return not isinstance(value, ast.Constant) or bool(value.value == fact)


def _names_of(found: LoaderCall) -> set[str]:
    """What the call's result is bound to."""
    names: list[str | None] = []
    for node in ast.walk(found.source.tree):
        if isinstance(node, ast.Assign) and node.value is found.call:
            names += [dotted(target) for target in node.targets]
        elif isinstance(node, ast.AnnAssign) and node.value is found.call:
            names.append(dotted(node.target))
    return {name for name in names if name is not None}


def _iterated(sources: Sequence[Source], facts: Mapping[str, Any]) -> set[str]:
    """Names in the expression that is iterated where the facts say."""
    source = next((one for one in sources if one.path == facts.get("file")), None)
    loop = None if source is None else loop_at(source, facts.get("line"))
    expressions = [] if loop is None else [node for node in ast.walk(loop.iter) if isinstance(node, ast.expr)]
    return {name for node in expressions if (name := dotted(node)) is not None}


def loop_at(source: Source, line: Any) -> ast.For | None:
    """The `for` statement whose head holds a line: the innermost."""
    loops = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.For) and isinstance(line, int) and node.lineno <= line <= (node.iter.end_lineno or 0)
    ]
    return max(loops, key=lambda node: node.lineno, default=None)
