"""Reading of a dataset's `__getitem__`: its statements are followed with stand-ins for the values of a sample.

Nothing of the script runs. What it does to a picture becomes steps of that picture; what is not understood becomes a
`Computed`, which names the script's line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..edits import ScriptSource
from .sample_expressions import ExpressionReader, Names
from .sample_values import Computed, DrawnNumber, ModuleName, Picture, Validity, is_known
from .script_functions import ScriptFunctions

MOST_DEPTH = 6
"""Functions of the script's own inside one another."""


class ReturnedValue(Exception):  # noqa: N818  # no error: the way out of a function
    """Way out of a function that is read."""

    def __init__(self, value: Any) -> None:
        self.value = value


class SampleReader(ExpressionReader):
    """Reader of the functions of one dataset, whose files are known."""

    def __init__(self, sources: Iterable[ScriptSource], dataset: Any) -> None:
        super().__init__(ScriptFunctions(sources), dataset)
        self.left_out: list[Computed] = []
        """Statements that do something that is not understood."""
        self._depth = 0

    def sample(self) -> Any:
        """Return what `dataset[index]` is; Computed where its code is not known."""
        found = self.script.method(self.dataset, "__getitem__") or self.script.method(self.dataset, "__getitems__")
        if found is None:
            return Computed(f"{type(self.dataset).__name__}.__getitem__", "")
        return self.run(*found, [self.dataset, ModuleName("index")], {}, self.names)

    def run(
        self, source: ScriptSource, function: ast.FunctionDef, arguments: list[Any], keywords: Names, names: Names
    ) -> Any:
        """Return what a function of the script's own gives."""
        if self._depth >= MOST_DEPTH:
            return Computed(function.name, self.place_in(source, function), tuple(arguments))
        given = function.args
        parameters = [one.arg for one in given.posonlyargs + given.args]
        local = dict(zip(parameters, arguments, strict=False)) | keywords
        for parameter, default in zip(reversed(parameters), reversed(given.defaults), strict=False):
            local.setdefault(parameter, _literal(default))
        outer, self.source = self.source, source
        self._depth += 1
        try:
            self._block(function.body, {"": names} | local)
        except ReturnedValue as returned:
            return returned.value
        finally:
            self._depth -= 1
            self.source = outer
        return None

    # Statements.

    def _block(self, statements: Iterable[ast.stmt], local: Names) -> None:
        for statement in statements:
            self._statement(statement, local)

    def _statement(self, node: ast.stmt, local: Names) -> None:
        if isinstance(node, ast.Return):
            raise ReturnedValue(None if node.value is None else self.value(node.value, local))
        if isinstance(node, ast.Assign):
            value = self.value(node.value, local)
            for target in node.targets:
                self.bind(target, value, local)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.bind(node.target, self.value(node.value, local), local)
        elif isinstance(node, ast.AugAssign):
            joined = ast.BinOp(node.target, node.op, node.value, lineno=node.lineno)
            self.bind(node.target, self._binary(joined, local), local)
        elif isinstance(node, ast.If):
            self._branch(node, local)
        elif isinstance(node, ast.With):
            for item in node.items:
                value = self.value(item.context_expr, local)
                if item.optional_vars is not None:
                    self.bind(item.optional_vars, value, local)
            self._block(node.body, local)
        elif isinstance(node, ast.For):
            self._loop(node, local)
        elif isinstance(node, ast.Try):
            self._block(node.body, local)
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                on = self.value(target.value, local) if isinstance(target, ast.Subscript) else None
                key = self.value(target.slice, local) if isinstance(target, ast.Subscript) else None
                if isinstance(on, dict):
                    on.pop(key, None)
        elif isinstance(node, ast.Expr):
            self._bare(node, local)
        elif not isinstance(node, ast.Pass | ast.Assert | ast.Raise | ast.Import | ast.ImportFrom | ast.FunctionDef):
            self.left_out.append(self.computed(node))

    def _bare(self, node: ast.Expr, local: Names) -> None:
        """Take an expression of which nothing is bound: a docstring, an update of a dict, or something unknown."""
        call = node.value
        if isinstance(call, ast.Constant):
            return
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            on = self.value(call.func.value, local)
            given = [self.value(one, local) for one in call.args]
            if isinstance(on, dict) and call.func.attr == "update" and given and isinstance(given[0], dict):
                on.update(given[0])
                return
            if isinstance(on, list) and call.func.attr == "append":
                on.append(given[0])
                return
        self.left_out.append(self.computed(call))

    def _branch(self, node: ast.If, local: Names) -> None:
        test = self.value(node.test, local)
        if is_known(test):
            self._block(node.body if test else node.orelse, local)
            return
        if isinstance(test, Computed) and _is_absent(node.test):
            self._block(node.body, local)  # opened once a worker
            return
        before = dict(local)
        self._block(node.body, local)
        if node.orelse and all(local.get(name) is value for name, value in before.items()):
            self._block(node.orelse, local)  # the first branch changes nothing that is known
        chance = self._chance(node.test, local)
        for name, value in local.items():
            old = before.get(name)
            if value is old or name == "":
                continue
            local[name] = self._maybe(node, old, value, chance)

    def _maybe(self, node: ast.If, old: Any, new: Any, chance: float | None) -> Any:
        """Return what a value is after a branch that is not always taken."""
        if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
            return {key: self._maybe(node, old[key], new[key], chance) for key in new}
        if isinstance(old, Validity) and isinstance(new, Validity):
            return new
        if isinstance(old, Picture) and isinstance(new, Picture) and new.steps[: len(old.steps)] == old.steps:
            added = new.steps[len(old.steps) :]
            if chance is not None and [step.kind for step in added] == ["flip"]:
                return old.then(self.step(node, "flip", added[0].value, chance))
            if [step.kind for step in added] == ["pad"]:
                return new
            if added and all(step.kind in ("arithmetic", "cast") for step in added):
                self.left_out.append(self.computed(node))
                return new
            return replace(old.then(self.step(node, "own")) if added else old, layout=new.layout)
        return new if old is None or is_known(old) else self.computed(node.test, old, new)

    def _chance(self, node: ast.expr, local: Names) -> float | None:
        """Return the probability of `random.random() < p`."""
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            return None
        left, right = self.value(node.left, local), self.value(node.comparators[0], local)
        below, above = isinstance(node.ops[0], ast.Lt | ast.LtE), isinstance(node.ops[0], ast.Gt | ast.GtE)
        if isinstance(left, DrawnNumber) and isinstance(right, float | int) and (left.low, left.high) == (0, 1):
            return float(right) if below else float(1 - right) if above else None
        if isinstance(left, Computed) and "rand" in left.text and isinstance(right, float | int):
            return float(right) if below else float(1 - right) if above else None
        return None

    def _loop(self, node: ast.For, local: Names) -> None:
        over = self.value(node.iter, local)
        if isinstance(over, dict):
            over = list(over)
        if isinstance(over, list | tuple):
            for element in over:
                self.bind(node.target, element, local)
                self._block(node.body, local)
        else:
            self.left_out.append(self.computed(node, over))

    def bind(self, target: ast.expr, value: Any, local: Names) -> None:
        if isinstance(target, ast.Name):
            local[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            for number, each in enumerate(target.elts):
                self.bind(each, self.part(value, number, target), local)
        elif isinstance(target, ast.Attribute):
            on = self.value(target.value, local)
            if on is self.dataset:
                self.own[target.attr] = value
        elif isinstance(target, ast.Subscript):
            on, key = self.value(target.value, local), self.value(target.slice, local)
            if isinstance(on, dict) and isinstance(key, str):
                on[key] = value
            elif isinstance(on, Picture) and not (isinstance(key, Validity) and value == 0):
                self.bind(target.value, on.then(self.step(target, "own")), local)


def _literal(node: ast.expr) -> Any:
    """Return the value of a literal; None of any other expression."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _is_absent(test: ast.expr) -> bool:
    """Tell whether a test asks for something that is made once: `self.tar is None`, `not hasattr(self, "tar")`."""
    text = ast.unparse(test)
    return "is None" in text or text.startswith("not hasattr")
