"""Mends as diffs of the script, where the place and the meaning of the change are certain."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from headrace.doctor.edits import (
    ChangedScript,
    LoaderScript,
    Replacement,
    ScriptSource,
    ScriptSources,
    WantedEdit,
    argument,
    dotted,
    iterated,
    loop_of,
    parsed,
)
from headrace.doctor.probe.evidence_file import without_credentials
from headrace.doctor.session.after_run import DataFault
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import short_class


def add_patches(session: Session, sources: ScriptSources) -> None:
    """Set the patches of certain faults: `shuffle=True`, `set_epoch`, or the seed in a worker_init_fn."""
    for fault in session.faults:
        make = _PATCHES.get(fault.code)
        if make is not None and fault.certainty == "certain" and (facts := _facts_at(session, fault.place)):
            script = LoaderScript(parsed(session, [facts["file"]], sources), facts, session.outcome.command, sources)
            diff = make(script, fault)
            fault.patch = diff if without_credentials(diff) == diff else ""


def _facts_at(session: Session, place: str) -> dict[str, Any]:
    """Return the facts of the loader that is iterated at a place."""
    loaders = [one.facts for trainer in session.trainers for one in trainer.loaders]
    return next((one for one in loaders if place and f"{one.get('file')}:{one.get('line')}" == place), {})


def _shuffled(script: LoaderScript, fault: DataFault) -> str:
    """Pass `shuffle=True` to a DataLoader without a sampler, whose call makes no other loader."""
    found = script.call
    if found is None or any(argument(found.call, name) for name in ("sampler", "batch_sampler")):
        return ""
    around = [one for one in _functions(found.source) if one.lineno <= found.call.lineno <= (one.end_lineno or 0)]
    names = [name.rpartition(".")[2] for source in script.sources for _, name in source.calls]
    is_once = all(names.count(one.name) == 1 for one in around)
    changed = script.changed(WantedEdit({"shuffle": "True"})) if is_once else None
    return "".join(file.diff(script.files.root) for file in changed or [])


def _with_set_epoch(script: LoaderScript, fault: DataFault) -> str:
    """Call `set_epoch` before a loop over the loader that is the body of a loop over a range."""
    source, loop = loop_of(script.sources, script.facts)
    described = script.facts.get("described") or {}
    is_plain = short_class(described.get("sampler") or {}) == "DistributedSampler" and "wrapper" not in described
    if source is None or loop is None or script.call is None or not is_plain or "set_epoch" in source.text:
        return ""
    loader, outer = dotted(iterated(loop)), _loop_around(source.tree, loop)
    is_bound = script.call.source is source and loader in source.bound_to(script.call.call)
    if not is_bound or outer is None or not isinstance(outer.target, ast.Name) or not _is_range(outer.iter):
        return ""
    start = source.line_start(loop.lineno)
    indent = source.between(start, source.start(loop))
    if indent.strip():
        return ""
    text = f"{indent}{loader}.sampler.set_epoch({outer.target.id}){source.newline}"
    return _diff(script, source, loop.lineno, Replacement(start, start, text))


def _seeded_by_worker(script: LoaderScript, fault: DataFault) -> str:
    """Replace the only seed in a loader's worker_init_fn by the worker's own."""
    found = script.call
    generator = next((name for name in ("numpy.random", "random") if f" from {name}: " in fault.evidence), None)
    function = None if found is None else argument(found.call, "worker_init_fn")
    if found is None or generator is None or not isinstance(function, ast.Name):
        return ""
    made = [one for one in _functions(found.source) if one.name == function.id]
    torch = next((name for name, full in found.source.names.items() if full == "torch"), None)
    if len(made) != 1 or torch is None:
        return ""
    inside = set(ast.walk(made[0]))
    names = {call: name for call, name in found.source.calls if call in inside}
    seeds = [call for call, name in names.items() if name == f"{generator}.seed" and len(call.args) == 1]
    if len(seeds) != 1 or seeds[0].keywords or "torch.manual_seed" in names.values():
        return ""
    piece = found.source.replacing(seeds[0].args[0], f"{torch}.initial_seed() % 2**32")
    return _diff(script, found.source, seeds[0].lineno, piece)


_PATCHES: dict[str, Callable[[LoaderScript, DataFault], str]] = {
    "class-order": _shuffled,
    "same-order": _with_set_epoch,
    "same-draws": _seeded_by_worker,
}


def _diff(script: LoaderScript, source: ScriptSource, line: int, piece: Replacement) -> str:
    changed = ChangedScript(source.path, line, source.text, source.with_replaced([piece]))
    return changed.diff(script.files.root)


def _functions(source: ScriptSource) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(source.tree) if isinstance(node, ast.FunctionDef)]


def _loop_around(node: ast.AST, loop: ast.For, outer: ast.For | None = None) -> ast.For | None:
    """Return the innermost `for` around a loop in its own function; None if there is none."""
    for child in ast.iter_child_nodes(node):
        if child is loop:
            return outer
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        inner = child if isinstance(child, ast.For) else None if is_function or isinstance(child, ast.While) else outer
        if (found := _loop_around(child, loop, inner)) is not None:
            return found
    return None


def _is_range(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and dotted(node.func) == "range"
