"""Headrace's Loader in a script: the call that makes it, and its module's import."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headrace.doctor.edits.loader_call import AROUND, LoaderCall, UncertainEditError, argument, loader_call
from headrace.doctor.edits.script_source import Replacement, ScriptSource, dotted

ADOPTED = "headrace_loader"
"""Module that an edited script imports its Loader from."""
CALLED = "make_dataloader"
"""Function of that module that replaces the DataLoader's call."""
TIMM = "timm.data.create_loader"
OF_LIBRARIES = (TIMM, "webdataset.WebLoader", "torchdata.stateful_dataloader.StatefulDataLoader")
"""Other calls that make a DataLoader."""
PREFETCHER = "timm.data.loader.PrefetchLoader"
"""timm class that moves the batches of its attribute `loader` to the device and normalizes them there."""
SIZE_PLACE = 2
"""Position of the batch size among the arguments of timm's call."""
ITERATING = AROUND | {"iter", "zip", "list"}
MODELLED = {"batch_size", "set_epoch", "state_dict", "load_state_dict"}
"""Attributes that the result of `as_dataloader()` has with the same meaning."""


def adopting_call(sources: Sequence[ScriptSource], facts: Mapping[str, Any]) -> LoaderCall | None:
    """Return the call that makes the loader of these facts: torch's own, else the only one of a library."""
    found = loader_call(sources, facts)
    if found is not None:
        return found
    others = [LoaderCall(source, call) for source in sources for call, name in source.calls if name in OF_LIBRARIES]
    return others[0] if len(others) == 1 else None


def is_prefetched(facts: Mapping[str, Any]) -> bool:
    """Return True if a loader's batches went through timm's prefetcher during the run."""
    wrapper = (facts.get("described") or {}).get("wrapper")
    return isinstance(wrapper, dict) and wrapper.get("class") == PREFETCHER


def _is_timms(found: LoaderCall) -> bool:
    return dict(found.source.calls)[found.call] == TIMM


def module_folder(path: str, command: Sequence[str], root: str) -> str:
    """Return the script's folder, from which the file `path` imports modules. UncertainEditError: it is elsewhere."""
    folder = os.path.dirname(path)
    scripts = [os.path.dirname(os.path.abspath(os.path.join(root, one))) for one in command if one.endswith(".py")]
    if not scripts and "-m" in command:
        scripts = [os.path.abspath(root)]
    if scripts and folder not in scripts:
        raise UncertainEditError
    return folder


def with_adopted(found: LoaderCall, facts: Mapping[str, Any]) -> list[Replacement]:
    """Replace a DataLoader by the Loader of `ADOPTED`. timm's prefetcher stays, and receives the Loader's batches.

    What only the DataLoader used stays, too: its dataset, and their imports.

    Raises:
        UncertainEditError: The loader may be used for something that only a DataLoader has, or timm's may prefetch to
        the device.
    """
    source, call = found
    if not LoaderUses(source).are_known(call):
        raise UncertainEditError
    if is_prefetched(facts):
        return [*source.importing(ADOPTED), _behind_prefetcher(found)]
    if _is_timms(found):
        prefetches = argument(call, "use_prefetcher")
        if not isinstance(prefetches, ast.Constant) or prefetches.value is not False:
            raise UncertainEditError
    return [*source.importing(ADOPTED), source.replacing(call, f"{ADOPTED}.{CALLED}({_arguments(found)})")]


def _behind_prefetcher(found: LoaderCall) -> Replacement:
    """Give timm's prefetcher the Loader's batches, in an extra line after a statement that binds it to one name."""
    source, call = found
    statement = next((one for one in ast.walk(source.tree) if isinstance(one, ast.Assign) and one.value is call), None)
    name = None if statement is None or len(statement.targets) != 1 else dotted(statement.targets[0])
    if statement is None or name is None or not _is_timms(found) or not source.is_alone(statement):
        raise UncertainEditError
    place = source.line_start((statement.end_lineno or statement.lineno) + 1)
    indent = source.between(source.line_start(statement.lineno), source.start(statement))
    line = f"{indent}{name}.loader = {ADOPTED}.{CALLED}({_arguments(found)})"
    return Replacement(place, place, f"{line}{source.newline}")


def _size_of(found: LoaderCall) -> ast.expr | None:
    """Return the batch size that a call passes, by name or by position."""
    call = found.call
    if not _is_timms(found):
        return argument(call, "batch_size")
    by_name = next((one.value for one in call.keywords if one.arg == "batch_size"), None)
    by_place = call.args[SIZE_PLACE : SIZE_PLACE + 1]
    return by_place[0] if by_place and not any(isinstance(one, ast.Starred) for one in call.args) else by_name


def _arguments(found: LoaderCall) -> str:
    """Return the argument that still applies: the batch size, if the script sets it."""
    source, call = found
    size = _size_of(found)
    if isinstance(size, ast.Constant) and size.value is None:  # the dataset makes the batches
        size = _batched(source, call)
    return "" if size is None else f"batch_size={source.text_of(size)}"


def _batched(source: ScriptSource, call: ast.Call) -> ast.expr:
    """Return the size of the only `.batched(…)` in the function that makes the loader."""
    functions = [node for node in ast.walk(source.tree) if isinstance(node, (ast.FunctionDef, ast.Module))]
    innermost = [node for node in functions if call in ast.walk(node)][-1]  # ordered by depth
    sizes = [
        node.args[0]
        for node in ast.walk(innermost)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "batched"
        and node.args
    ]
    if len(sizes) != 1:
        raise UncertainEditError
    return sizes[0]


@dataclass(frozen=True)
class LoaderUses:
    """All uses of a loader in a file, followed through names, parameters and return values."""

    source: ScriptSource

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.source.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def functions(self) -> dict[str, ast.FunctionDef]:
        return {node.name: node for node in self.source.tree.body if isinstance(node, ast.FunctionDef)}

    @cached_property
    def names(self) -> dict[ast.Call, str]:
        return dict(self.source.calls)

    def are_known(self, call: ast.Call) -> bool:
        """Return True if the loader made by a call is iterated, and otherwise used only as both loaders allow."""
        todo: list[ast.expr] = [call]
        seen: set[ast.expr] = set()
        is_iterated = False
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            parent = self.parents[node]
            if self._iterates(parent, node):
                is_iterated = True
            elif not self._is_modelled(node, parent):
                further = self._carriers(node, parent)
                if further is None:
                    return False
                todo += further
        return is_iterated

    def _iterates(self, parent: ast.AST, node: ast.expr) -> bool:
        if isinstance(parent, ast.Call):
            return self.names.get(parent) in ITERATING
        return isinstance(parent, (ast.For, ast.comprehension)) and parent.iter is node

    def _is_modelled(self, node: ast.expr, parent: ast.AST) -> bool:
        """Return True if both loaders support a use."""
        if isinstance(parent, ast.Call):
            return self.names.get(parent) == "len"
        if not isinstance(parent, ast.Attribute):
            return isinstance(parent, ast.Expr)
        above = self.parents[parent]
        if parent.attr == "sampler":
            return isinstance(above, ast.Attribute) and above.attr == "set_epoch"
        if parent.attr == "dataset":
            return isinstance(above, ast.Call) and self.names.get(above) == "len"
        return parent.attr in MODELLED

    def _carriers(self, node: ast.expr, parent: ast.AST) -> list[ast.expr] | None:
        """Return the expressions that refer to the loader through this use of `node`; None if unknown."""
        if isinstance(parent, (ast.Assign, ast.AnnAssign)):
            targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
            names = [dotted(target) for target in targets]
            if any(name is None for name in names):
                return None
            return [use for name in names if name for use in self._loads(name, self._scope(node, name))]
        if isinstance(parent, ast.Return):
            scope = self._scope(node, "")
            if not isinstance(scope, ast.FunctionDef) or self.functions.get(scope.name) is not scope:
                return None
            return [call for call, name in self.source.calls if name == scope.name] or None
        called, name = (self.parents[parent], parent.arg) if isinstance(parent, ast.keyword) else (parent, None)
        function = self.functions.get(self.names.get(called, "")) if isinstance(called, ast.Call) else None
        if function is None or not isinstance(called, ast.Call):
            return None
        if name is None and node in called.args:
            before = called.args[: called.args.index(node)]
            parameters = [*function.args.posonlyargs, *function.args.args]
            if len(before) < len(parameters) and not any(isinstance(one, ast.Starred) for one in before):
                name = parameters[len(before)].arg
        return None if name is None else self._loads(name, function)

    def _scope(self, node: ast.AST, name: str) -> ast.AST:
        """Return the function in which an undotted name is bound at `node`, else the whole file."""
        while node in self.parents and "." not in name:
            node = self.parents[node]
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                return node
        return self.source.tree

    def _loads(self, name: str, scope: ast.AST) -> list[ast.expr]:
        return [
            node
            for node in ast.walk(scope)
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load) and dotted(node) == name
        ]
