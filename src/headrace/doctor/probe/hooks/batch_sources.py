"""What a training loop calls for its batches, found in its source: the calls that the loss comes from.

From the statement in which the backward pass was begun, names are followed back through the assignments of the loop
around it. A call that none of the loop's own values go into, and that is neither torch's nor a model's, is where a
batch comes from: `get_batch("train")`, `next(iterator)`, `self.data.next_batch()`, or what a `for` goes through. None
of the user's code is run: names are looked up, attributes without descriptors.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import sys
from types import FrameType, FunctionType, GeneratorType, ModuleType
from typing import Any, NamedTuple

_STATEMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_INNER = (*_FUNCTIONS, ast.Lambda, ast.ClassDef)
_NOT_SOURCES = ("torch", "builtins", "math", "time", "tqdm")
"""Packages whose functions give no batches."""
_THROUGH = ("enumerate", "zip", "iter", "tqdm", "islice", "cycle", "chain", "list")
"""Functions that only go through what they are given."""
_NOTHING: Any = object()


class BatchSource(NamedTuple):
    """Something that the loop calls for a batch. `owner` has it as an attribute that can be replaced; None where it
    cannot, as a generator that runs already, or a function within a function."""

    name: str
    owner: Any
    attribute: str
    file: str
    line: int


def sources_in(frame: FrameType) -> tuple[list[BatchSource], bool]:
    """Return the sources of the innermost loop that a frame is in, or else of its function; and whether it is in one.

    There are none where the code is not at hand, or does not say.
    """
    file, line = frame.f_code.co_filename, frame.f_lineno
    text = "".join(linecache.getlines(file, frame.f_globals))
    chain = _chain(_scope(ast.parse(text), frame.f_code.co_name, frame.f_code.co_firstlineno), line) if text else []
    if not chain:
        return [], False
    loops = [node for node in chain[:-1] if isinstance(node, _LOOPS)]
    found = _Search(frame, loops[-1] if loops else chain[0]).sources(chain[-1])
    return [BatchSource(name, owner, attribute, file, at) for name, owner, attribute, at in found], bool(loops)


def _scope(tree: ast.AST, name: str, first: int) -> ast.AST:
    """Return the function of that name whose definition, decorators included, begins at that line; else the module."""
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS) and node.name == name and first in _first_lines(node):
            return node
    return tree


def _first_lines(function: Any) -> set[int]:
    return {function.lineno, *(decorator.lineno for decorator in function.decorator_list)}


def _chain(node: ast.AST, line: int) -> list[ast.AST]:
    """List the statements that hold a line, outermost first, the scope itself before them."""
    chain = [node]
    while True:
        inner = [
            child
            for child in ast.walk(chain[-1])
            if isinstance(child, ast.stmt)
            and child is not chain[-1]
            and child.lineno <= line <= (child.end_lineno or child.lineno)
        ]
        if not inner:
            return chain if len(chain) > 1 else []
        chain.append(min(inner, key=lambda child: (child.lineno, -(child.end_lineno or child.lineno))))


class _Search:
    """One loop of one frame."""

    def __init__(self, frame: FrameType, region: ast.AST) -> None:
        self._locals, self._globals = frame.f_locals, frame.f_globals
        self._assigned = [one for one in map(_assigned, _own_nodes(region)) if one is not None]
        made = [names for names, value, is_loop in self._assigned if not is_loop and _has_call(value)]
        self._made: set[str] = set().union(*made)
        self._found: dict[tuple[str, int], tuple[str, Any, str, int]] = {}

    def sources(self, statement: ast.AST) -> list[tuple[str, Any, str, int]]:
        wanted = _loaded(statement)
        followed: set[str] = set()
        while wanted - followed:
            name = min(wanted - followed)
            followed.add(name)
            for names, value, is_loop in self._assigned:
                if name in names:
                    wanted |= _loaded(value)
                    self._goes_through(value) if is_loop else self._calls(value)
        return list(self._found.values())

    def _calls(self, value: ast.AST) -> None:
        for node in ast.walk(value):
            if isinstance(node, ast.Call) and not self._is_made(node):
                self._call(node)

    def _is_made(self, call: ast.Call) -> bool:
        """Tell whether something that the loop has made goes into a call."""
        parts = [*call.args, *(keyword.value for keyword in call.keywords)]
        base = call.func.value if isinstance(call.func, ast.Attribute) else None
        return any(_loaded(part) & self._made for part in [*parts, *([] if base is None else [base])])

    def _call(self, call: ast.Call) -> None:
        function, name = call.func, _text(call.func)
        if isinstance(function, ast.Name) and function.id == "next" and call.args:
            self._iterated(self._value(call.args[0]), _text(call.args[0]), call.lineno)
        elif isinstance(function, ast.Name):
            value = self._value(function)
            if isinstance(value, FunctionType) and _may_give_batches(value.__module__):
                owner = sys.modules.get(self._globals.get("__name__", ""))
                is_global = owner is not None and vars(owner).get(function.id) is value
                self._add(name, owner if is_global else None, function.id, call.lineno)
            elif isinstance(value, type):
                self._iterates(value, name, call.lineno)
        elif isinstance(function, ast.Attribute):
            self._method(self._value(function.value), function.attr, name, call.lineno)

    def _method(self, base: Any, attribute: str, name: str, line: int) -> None:
        if base is _NOTHING or _is_torchs(base):
            return
        owner = base if isinstance(base, (ModuleType, type)) else type(base)
        module = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
        if isinstance(inspect.getattr_static(owner, attribute, None), FunctionType) and _may_give_batches(module):
            self._add(name, owner, attribute, line)

    def _goes_through(self, value: ast.AST) -> None:
        """Look at what a `for` has behind `in`."""
        while isinstance(value, ast.Call) and _text(value.func).rpartition(".")[2] in _THROUGH and value.args:
            value = value.args[-1] if _text(value.func) == "zip" else value.args[0]
        line = getattr(value, "lineno", 0)
        if isinstance(value, ast.Call):
            if _text(value.func) != "range":
                self._call(value)
        else:
            self._iterated(self._value(value), _text(value), line)

    def _iterated(self, value: Any, name: str, line: int) -> None:
        if value is _NOTHING or _is_torchs(value):
            return
        if isinstance(value, GeneratorType):
            self._add(name, None, "__next__", line)
        else:
            self._iterates(type(value), name, line)

    def _iterates(self, kind: type, name: str, line: int) -> None:
        """Add the first of the methods of that class that a `for` would call for each batch."""
        for method in ("__next__", "__iter__", "__getitem__"):
            is_own = isinstance(inspect.getattr_static(kind, method, None), FunctionType)
            if is_own and _may_give_batches(kind.__module__):
                self._add(name, kind, method, line)
                return

    def _add(self, name: str, owner: Any, attribute: str, line: int) -> None:
        self._found[name, line] = (name, owner, attribute, line)

    def _value(self, node: ast.AST) -> Any:
        """Return the value of a name, or of attributes of one; `_NOTHING` for all else."""
        if isinstance(node, ast.Name):
            for names in (self._locals, self._globals, vars(builtins)):
                if node.id in names:
                    return names[node.id]
        elif isinstance(node, ast.Attribute):
            base = self._value(node.value)
            if base is not _NOTHING:
                value = inspect.getattr_static(base, node.attr, _NOTHING)
                return _NOTHING if hasattr(type(value), "__get__") and not isinstance(base, ModuleType) else value
        return _NOTHING


def _own_nodes(region: ast.AST) -> list[ast.AST]:
    """List what runs with the region, and not when a function in it is called."""
    nodes, left = [], [region]
    while left:
        node = left.pop()
        nodes.append(node)
        left += [
            one for one in ast.iter_child_nodes(node) if not isinstance(one, (*_FUNCTIONS, ast.Lambda, ast.ClassDef))
        ]
    return nodes


def _assigned(node: ast.AST) -> tuple[set[str], ast.AST, bool] | None:
    """Return the names that a statement binds, what to, and whether it is a `for`."""
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return _stored(node.target), node.iter, True
    if isinstance(node, _STATEMENTS) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {name for target in targets for name in _stored(target)}, node.value, False
    return None


def _stored(target: ast.AST) -> set[str]:
    """Return the names of a target; of `batch["x"] = …` the one that is changed."""
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def _loaded(node: ast.AST) -> set[str]:
    """Return the names that are read in an expression, or in a statement's own line."""
    parts = [node] if not isinstance(node, (ast.If, ast.While, ast.With, ast.For)) else []
    return {one.id for part in parts for one in ast.walk(part) if isinstance(one, ast.Name)}


def _has_call(value: ast.AST) -> bool:
    return any(isinstance(node, ast.Call) for node in ast.walk(value))


def _text(node: ast.AST) -> str:
    """Return `self.data.next_batch`; empty for what is no name."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{_text(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


def _may_give_batches(module: Any) -> bool:
    return str(module).partition(".")[0] not in _NOT_SOURCES


def _is_torchs(value: Any) -> bool:
    """Tell a model, a loss, a tensor or an optimizer, whose class may be the user's own, or one of torch's modules."""
    torch: Any = sys.modules.get("torch")
    if isinstance(value, ModuleType):
        return not _may_give_batches(value.__name__)
    return torch is not None and isinstance(value, (torch.nn.Module, torch.Tensor, torch.optim.Optimizer))
