"""Search for what gives batches in the source of the training loop.

The search begins at the statement in which the backward pass was begun, and follows names back through the assignments
of the loop around it. A call that none of the loop's own values go into, and that is neither torch's nor a model's, is
where a batch comes from: `get_batch("train")`, `next(iterator)`, `self.data.next_batch()`, or what a `for` goes
through. None of the user's code is run: names are looked up, attributes without descriptors.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import sys
from types import CodeType, FrameType, FunctionType, GeneratorType, ModuleType
from typing import Any, NamedTuple

from .batch_shapes import bytes_and_shape

_STATEMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NOT_SOURCES = ("torch", "builtins", "math", "time", "tqdm")
"""Packages whose functions give no batches."""
_THROUGH = ("enumerate", "zip", "iter", "tqdm", "islice", "cycle", "chain", "list")
"""Functions that only go through what they are given."""
_ARRAYS = (("torch", "Tensor"), ("numpy", "ndarray"))
_NOTHING: Any = object()


class BatchSource(NamedTuple):
    """Something that the loop calls for a batch."""

    name: str
    owner: Any
    """What has it as an attribute that can be replaced; None where it cannot, as a generator that runs already, or a
    function within a function."""
    attribute: str
    file: str
    line: int


def sources_in(frame: FrameType) -> tuple[list[BatchSource], bool]:
    """Return the sources of the innermost loop that a frame is in, or else of its function; and whether it is in one.

    There are none where the code is not at hand, or does not say.
    """
    tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals)))
    scope, *statements = _chain(_scope(tree, frame.f_code), frame.f_lineno)
    if not statements:
        return [], False
    loops = [node for node in statements[:-1] if isinstance(node, _LOOPS)]
    return _SourceSearch(frame, loops[-1] if loops else scope).sources(statements[-1]), bool(loops)


def _scope(tree: ast.AST, code: CodeType) -> ast.AST:
    """Return the function whose definition, decorators included, begins where its code says; else the module."""
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS) and node.name == code.co_name:
            lines = (node.lineno, *(decorator.lineno for decorator in node.decorator_list))
            if code.co_firstlineno in lines:
                return node
    return tree


def _chain(node: ast.AST, line: int) -> list[ast.AST]:
    """List the statements that hold a line, outermost first, the node itself before them."""
    for child in ast.walk(node):  # in breadth: what is further out comes first
        if isinstance(child, ast.stmt) and child is not node and child.lineno <= line <= (child.end_lineno or 0):
            return [node, *_chain(child, line)]
    return [node]


class _SourceSearch:
    """Search in one loop of one frame."""

    def __init__(self, frame: FrameType, region: ast.AST) -> None:
        self._file = frame.f_code.co_filename
        self._locals, self._globals = frame.f_locals, frame.f_globals
        self._assigned = [one for one in map(_assigned, _own_nodes(region)) if one is not None]
        # What the loop makes by a call, and batches in hand: those that a `for` goes through, or that are passed in.
        self._made = {name for name in _parameters(frame.f_code) if _holds_tensors(self._locals.get(name))}
        for names, value, is_loop in self._assigned:
            if not is_loop and any(isinstance(node, ast.Call) for node in ast.walk(value)):
                self._made |= names
            elif is_loop:
                self._made |= {name for name in names if _holds_tensors(self._locals.get(name))}
        self._found: dict[tuple[str, int], BatchSource] = {}

    def sources(self, statement: ast.AST) -> list[BatchSource]:
        wanted = _loaded(statement)
        followed: set[str] = set()
        for part in _arguments(statement):  # train_on(get_batch("train"))
            self._calls(part)
        while wanted - followed:
            name = min(wanted - followed)
            followed.add(name)
            for names, value, is_loop in self._assigned:
                if name in names:
                    wanted |= _loaded(value)
                    self._goes_through(value) if is_loop else self._calls(value)
        return list(self._found.values())

    def _calls(self, value: ast.AST) -> None:
        """Look at the calls into which nothing goes that the loop has made."""
        for node in ast.walk(value):
            if isinstance(node, ast.Call):
                base = [node.func.value] if isinstance(node.func, ast.Attribute) else []
                parts = [*base, *node.args, *(keyword.value for keyword in node.keywords)]
                if not any(_names(part) & self._made for part in parts):
                    self._call(node)

    def _call(self, call: ast.Call) -> None:
        function, name = call.func, _name_text(call.func)
        if isinstance(function, ast.Name) and function.id == "next" and call.args:
            self._iterated(call.args[0], call.lineno)
        elif isinstance(function, ast.Name):
            value = self._value(function)
            if isinstance(value, FunctionType) and _may_give_batches(value.__module__):
                owner = sys.modules.get(self._globals.get("__name__", ""))
                is_global = owner is not None and vars(owner).get(function.id) is value
                self._add(name, owner if is_global else None, function.id, call.lineno)
            elif isinstance(value, type):
                self._iterates(value, name, call.lineno)
        elif isinstance(function, ast.Attribute):
            base = self._value(function.value)
            if base is not _NOTHING and not _is_torchs(base):
                kind = base if isinstance(base, (ModuleType, type)) else type(base)
                self._add_own(kind, function.attr, name, call.lineno)

    def _goes_through(self, value: ast.AST) -> None:
        """Look at what a `for` has behind `in`."""
        while isinstance(value, ast.Call) and _name_text(value.func).rpartition(".")[2] in _THROUGH and value.args:
            value = value.args[-1] if _name_text(value.func) == "zip" else value.args[0]
        if not isinstance(value, ast.Call):
            self._iterated(value, getattr(value, "lineno", 0))
        elif _name_text(value.func) != "range":
            self._call(value)

    def _iterated(self, node: ast.AST, line: int) -> None:
        value, name = self._value(node), _name_text(node)
        if isinstance(value, GeneratorType):
            self._add(name, None, "__next__", line)
        elif value is not _NOTHING and not _is_torchs(value):
            self._iterates(type(value), name, line)

    def _iterates(self, kind: type, name: str, line: int) -> None:
        """Add the first of the methods of that class that a `for` would call for each batch."""
        for method in ("__next__", "__iter__", "__getitem__"):
            if self._add_own(kind, method, name, line):
                return

    def _add_own(self, owner: Any, attribute: str, name: str, line: int) -> bool:
        """Add a function of a class or module that may give batches, and tell whether it is one."""
        module = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
        is_own = isinstance(inspect.getattr_static(owner, attribute, None), FunctionType) and _may_give_batches(module)
        if is_own:
            self._add(name, owner, attribute, line)
        return is_own

    def _add(self, name: str, owner: Any, attribute: str, line: int) -> None:
        self._found[name, line] = BatchSource(name, owner, attribute, self._file, line)

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


def _parameters(code: CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _holds_tensors(value: Any) -> bool:
    """Tell a tensor, an array, or a container of such: what may be a batch."""
    if type(value) in (dict, list, tuple):
        return bytes_and_shape(value)[0] is not None
    kinds = [getattr(sys.modules.get(package), name, None) for package, name in _ARRAYS]
    return any(isinstance(kind, type) and isinstance(value, kind) for kind in kinds)


def _arguments(statement: ast.AST) -> list[ast.AST]:
    """List the arguments of the call that a statement consists of, or assigns."""
    call = getattr(statement, "value", None)
    return [*call.args, *(keyword.value for keyword in call.keywords)] if isinstance(call, ast.Call) else []


def _own_nodes(region: ast.AST) -> list[ast.AST]:
    """List what runs with the region, and not when a function in it is called."""
    nodes, left = [], [region]
    while left:
        node = left.pop()
        nodes.append(node)
        inner = ast.iter_child_nodes(node)
        left += [one for one in inner if not isinstance(one, (*_FUNCTIONS, ast.Lambda, ast.ClassDef))]
    return nodes


def _assigned(node: ast.AST) -> tuple[set[str], ast.AST, bool] | None:
    """Return the names that a statement binds, what to, and whether it is a `for`."""
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return _names(node.target), node.iter, True
    if isinstance(node, _STATEMENTS) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {name for target in targets for name in _names(target)}, node.value, False
    return None


def _names(node: ast.AST) -> set[str]:
    """Return the names in an expression; of a target `batch["x"]` the one that is changed."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _loaded(node: ast.AST) -> set[str]:
    """Return the names that are read in an expression, or in a statement's own line."""
    return set() if isinstance(node, (ast.If, ast.While, ast.With, ast.For)) else _names(node)


def _name_text(node: ast.AST) -> str:
    """Return `self.data.next_batch`; empty for what is no name."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{_name_text(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


def _may_give_batches(module: Any) -> bool:
    return str(module).partition(".")[0] not in _NOT_SOURCES


def _is_torchs(value: Any) -> bool:
    """Tell a model, a loss, a tensor or an optimizer, whose class may be the user's own, or one of torch's modules."""
    torch: Any = sys.modules.get("torch")
    if isinstance(value, ModuleType):
        return not _may_give_batches(value.__name__)
    return torch is not None and isinstance(value, (torch.nn.Module, torch.Tensor, torch.optim.Optimizer))
