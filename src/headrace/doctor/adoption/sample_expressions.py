"""Expressions of a dataset's `__getitem__`: what each is, with stand-ins for the values of a sample."""

from __future__ import annotations

import ast
import operator
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ..edits import ScriptSource
from .random_crops import cropped_slices, reckoned, sides_of
from .sample_calls import called
from .sample_values import (
    Cell,
    Computed,
    FilePath,
    ModuleName,
    Picture,
    PictureStep,
    Quantile,
    TableColumn,
    TokenizedText,
    Validity,
    compared_values,
    is_known,
    joined_path,
    pictures_in,
    transformed,
)
from .script_functions import Found, OwnStep, ScriptFunctions, called_by, is_static
from .stand_ins import FunctionStandIn, LongArray, LongList, StandIn, TableStandIn, first_rows, is_own, names_of

_OPERATORS: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
}
_ROW_ACCESS = re.compile(r"\.(iloc|loc|at|iat|values)$")
"""Ends of a table's name by which rows are taken: they lead to the same table."""
_TEXT_PARTS = ("ids", "input_ids", "attention_mask", "mask")

Names = dict[str, Any]


class ExpressionReader(ABC):
    """Reader of expressions; functions of the script's own are left to whoever knows its files."""

    def __init__(self, script: ScriptFunctions, dataset: Any) -> None:
        self.script = script
        self.mixing: StandIn | None = None
        """MixUp or CutMix of a batch."""
        self.turn_to(dataset)
        self.source: ScriptSource | None = None
        """File of the function that is read."""

    def turn_to(self, dataset: Any) -> None:
        """Read the functions of this dataset from now on."""
        self.dataset = dataset
        self.names = names_of(dataset)
        """What its functions take from their module."""
        self.own: Names = dict(vars(dataset)) if isinstance(dataset, StandIn) else {}
        """Its attributes, as the code that was read has set them."""
        self.inherited: Any = None
        """Sample of the library's class that it is derived from."""

    @abstractmethod
    def run(
        self, source: ScriptSource, function: ast.FunctionDef, arguments: list[Any], keywords: Names, names: Names
    ) -> Any:
        """Return what a function of the script's own gives."""

    @abstractmethod
    def bind(self, target: ast.expr, value: Any, local: Names) -> None:
        """Bind a value to a name, to each of several, or to an attribute or element."""

    def place_in(self, source: ScriptSource | None, node: ast.AST) -> str:
        file = "" if source is None else os.path.basename(source.path)
        return f"{file}:{getattr(node, 'lineno', 0)}"

    def computed(self, node: ast.expr | ast.stmt, *inputs: Any) -> Computed:
        return Computed(self.text(node), self.place_in(self.source, node), inputs)

    def text(self, node: ast.AST) -> str:
        """Return the code of an expression, or of the line that begins a statement."""
        if isinstance(node, ast.If | ast.For):
            return ast.unparse(node).partition("\n")[0].rstrip(":")
        return " ".join(ast.unparse(node).split())

    def step(self, node: ast.AST, kind: Any, value: Any = None, operand: Any = None) -> PictureStep:
        return PictureStep(kind, self.place_in(self.source, node), self.text(node), value, operand)

    def value(self, node: ast.expr, local: Names) -> Any:
        """Return what an expression is."""
        handler = getattr(self, f"_of_{type(node).__name__.lower()}", None)
        return self.computed(node) if handler is None else handler(node, local)

    def _of_constant(self, node: ast.Constant, local: Names) -> Any:
        return node.value

    def _of_name(self, node: ast.Name, local: Names) -> Any:
        if node.id in local:
            return local[node.id]
        names = local.get("", {})
        if node.id in names:
            return names[node.id]
        imports = {} if self.source is None else self.source.names
        return ModuleName(imports.get(node.id, f"builtins.{node.id}"))

    def _of_attribute(self, node: ast.Attribute, local: Names) -> Any:
        on = self.value(node.value, local)
        if on is self.dataset:
            return self.own.get(node.attr, ModuleName(f"self.{node.attr}"))
        if isinstance(on, ModuleName):
            return ModuleName(f"{on.name}.{node.attr}")
        if isinstance(on, TokenizedText) and node.attr in _TEXT_PARTS:
            return self.part(on, node.attr, node)
        if isinstance(on, Cell):
            return on.part(node.attr)
        if isinstance(on, Picture) and node.attr in ("T", "data"):
            return on
        if isinstance(on, Picture) and node.attr in ("width", "height", "size", "shape"):
            return sides_of(on, node.attr)
        if isinstance(on, TableStandIn | TableColumn) and node.attr in ("iloc", "loc", "at", "iat", "values"):
            return on
        if isinstance(on, TableStandIn) and node.attr in on.columns:
            return TableColumn(ast.unparse(node.value), node.attr)
        if isinstance(on, StandIn) and node.attr in vars(on):
            return vars(on)[node.attr]
        return self.computed(node, on)

    def _of_subscript(self, node: ast.Subscript, local: Names) -> Any:
        on = self.value(node.value, local)
        if isinstance(on, Picture):
            return self._indexed_picture(node, on, local)
        key = ModuleName("slice") if isinstance(node.slice, ast.Slice) else self.value(node.slice, local)
        name = _ROW_ACCESS.sub("", ast.unparse(node.value))
        if isinstance(on, TableStandIn) and isinstance(key, str):
            return TableColumn(name, key)
        if isinstance(on, TableColumn) and not is_known(key):
            return Cell(on.table, (on.name,))
        if isinstance(on, TableStandIn) and isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], str | int):
            return Cell(name, (key[1],))
        if isinstance(on, LongList | TableStandIn | LongArray | np.ndarray | list | StandIn) and not is_known(key):
            return Cell(name, (), first_rows(on), key == ModuleName("index"))
        return self.part(on, key, node)

    def _of_slice(self, node: ast.Slice, local: Names) -> Any:
        return slice(*(None if one is None else self.value(one, local) for one in (node.lower, node.upper, node.step)))

    def _indexed_picture(self, node: ast.Subscript, on: Picture, local: Names) -> Any:
        text = ast.unparse(node.slice).replace(" ", "").strip("()")
        if text in ("...,::-1", ":,:,::-1"):
            return on.then(self.step(node, "rgb"))
        if set(text.split(",")) <= {"None", "np.newaxis", "...", ":", "0"}:
            return on  # a dimension of one is added or taken away
        if (size := cropped_slices(self, node.slice, local)) is not None:
            return on.then(self.step(node, "crop", size))
        if isinstance(self.value(node.slice, local), Validity):
            return on
        return on.then(self.step(node, "own"))

    def part(self, value: Any, key: Any, node: ast.expr) -> Any:
        """Return an element of a value."""
        if isinstance(value, Cell) and isinstance(key, str | int):
            return value.part(key)
        if isinstance(value, Quantile) and isinstance(key, int) and key < len(value.levels):
            return Quantile((value.levels[key],))
        if isinstance(value, TokenizedText):
            names = {"input_ids": "ids", "ids": "ids", "attention_mask": "mask", "mask": "mask"}
            settings = dict(value.settings)
            part = names.get(key, value.part) if isinstance(key, str) else value.part
            return TokenizedText(value.text, value.tokenizer, tuple(settings.items()), value.place, part)
        if isinstance(value, list | tuple | dict | str) and is_known(key):
            try:
                return value[key]
            except (KeyError, IndexError, TypeError):
                return self.computed(node, value)
        if isinstance(value, ModuleName):
            return Cell(value.name) if key == ModuleName("index") else self.computed(node, value)
        return self.computed(node, value)

    def _of_tuple(self, node: ast.Tuple, local: Names) -> Any:
        return tuple(self.value(one, local) for one in node.elts)

    def _of_list(self, node: ast.List, local: Names) -> Any:
        return [self.value(one, local) for one in node.elts]

    def _of_dict(self, node: ast.Dict, local: Names) -> Any:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            made = self.value(value, local)
            if key is None:
                found.update(made if isinstance(made, dict) else {})
            else:
                named = self.value(key, local)
                found[named if isinstance(named, str | int) else self.text(key)] = made
        return found

    def _of_dictcomp(self, node: ast.DictComp, local: Names) -> Any:
        found = {}
        for inner in self._comprehended(node.generators, local):
            key = self.value(node.key, inner)
            found[key if isinstance(key, str | int) else self.text(node.key)] = self.value(node.value, inner)
        return found or self.computed(node)

    def _of_listcomp(self, node: ast.ListComp, local: Names) -> Any:
        return [self.value(node.elt, inner) for inner in self._comprehended(node.generators, local)] or self.computed(
            node
        )

    _of_generatorexp = _of_listcomp

    def _comprehended(self, generators: list[ast.comprehension], local: Names) -> list[Names]:
        over = self.value(generators[0].iter, local) if len(generators) == 1 else None
        found = []
        for element in list(over) if isinstance(over, dict | list | tuple) else []:
            inner = dict(local)
            self.bind(generators[0].target, element, inner)
            found.append(inner)
        return found

    def _of_joinedstr(self, node: ast.JoinedStr, local: Names) -> Any:
        parts = [self.value(one.value if isinstance(one, ast.FormattedValue) else one, local) for one in node.values]
        if all(isinstance(part, str | int) for part in parts):
            return "".join(map(str, parts))
        return joined_path(parts) or self.computed(node, *parts)

    def _of_ifexp(self, node: ast.IfExp, local: Names) -> Any:
        test = self.value(node.test, local)
        if is_known(test):
            return self.value(node.body if test else node.orelse, local)
        return self.computed(node, self.value(node.body, local), self.value(node.orelse, local))

    def _of_binop(self, node: ast.BinOp, local: Names) -> Any:
        return self._binary(node, local)

    def _binary(self, node: ast.BinOp, local: Names) -> Any:
        left, right = self.value(node.left, local), self.value(node.right, local)
        if isinstance(left, Validity) and isinstance(right, Validity) and isinstance(node.op, ast.BitAnd):
            near = left.near if right.near is None else right.near
            return Validity(left.picture, near, left.far if right.far is None else right.far)
        if isinstance(left, dict) and isinstance(right, dict) and isinstance(node.op, ast.BitOr):
            return left | right
        symbol, compute = _OPERATORS.get(type(node.op), ("", None))
        if compute is None:
            return self.computed(node, left, right)
        if (found := reckoned(symbol, left, right)) is not None:
            return found
        if symbol == "+" and type(left) is type(right) and isinstance(left, list | tuple):
            return left + right
        if symbol in "/+" and (path := joined_path([left, right], "/" if symbol == "/" else "")) is not None:
            return path
        if isinstance(left, Picture) and not any(isinstance(right, kind) for kind in (Picture, Cell, FilePath)):
            return left.then(self.step(node, "arithmetic", symbol, right))
        if isinstance(right, Picture) and symbol in "+*" and is_known(left):
            return right.then(self.step(node, "arithmetic", symbol, left))
        if isinstance(left, Quantile) and isinstance(right, Quantile) and symbol == "-":
            return Quantile((*right.levels, *left.levels))
        if is_known(left) and is_known(right):
            try:
                return compute(left, right)
            except (TypeError, ValueError, ZeroDivisionError):
                return self.computed(node, left, right)
        return self.computed(node, left, right)

    def _of_compare(self, node: ast.Compare, local: Names) -> Any:
        left, right = self.value(node.left, local), self.value(node.comparators[0], local)
        if len(node.ops) == 1 and isinstance(left, Picture) and isinstance(right, int | float):
            if isinstance(node.ops[0], ast.Gt | ast.GtE):
                return Validity(left, near=float(right))
            if isinstance(node.ops[0], ast.Lt | ast.LtE):
                return Validity(left, far=float(right))
        known = compared_values(node.ops[0], left, right) if len(node.ops) == 1 else None
        return self.computed(node, left, right) if known is None else known

    def _of_boolop(self, node: ast.BoolOp, local: Names) -> Any:
        values = [self.value(one, local) for one in node.values]
        known = [bool(value) for value in values if is_known(value)]
        if isinstance(node.op, ast.And):
            if not all(known):
                return False
            unknown = [one for one, value in zip(node.values, values, strict=True) if not is_known(value)]
            return self.value(unknown[0], local) if len(unknown) == 1 else self.computed(node) if unknown else True
        return True if any(known) else self.computed(node, *values) if len(known) < len(values) else False

    def _of_unaryop(self, node: ast.UnaryOp, local: Names) -> Any:
        value = self.value(node.operand, local)
        if isinstance(node.op, ast.USub) and isinstance(value, int | float):
            return -value
        if isinstance(node.op, ast.Not) and is_known(value):
            return not value
        return value if isinstance(value, Validity) else self.computed(node, value)

    def _of_call(self, node: ast.Call, local: Names) -> Any:
        given = list(self._given(node.args, local))
        keywords = {one.arg: self.value(one.value, local) for one in node.keywords if one.arg is not None}
        on = function = None
        if isinstance(node.func, ast.Attribute):
            on = self.value(node.func.value, local)
            if (on is self.dataset or is_own(on)) and (found := self.script.method(on, node.func.attr)) is not None:
                return self.run(*found, given if is_static(found) else [on, *given], keywords, names_of(on))
        if isinstance(on, StandIn) and isinstance(inner := vars(on).get("data"), dict):
            on = inner  # of a UserDict, as tokenizers give it
        if isinstance(on, dict) and not given and method_of(node) in ("items", "values", "keys"):
            pairs: list[Any] = [[*pair] for pair in on.items()]
            return pairs if method_of(node) == "items" else list(getattr(on, method_of(node))())
        function = self.value(node.func, local)
        if not any(map(_is_of_sample, [*given, *keywords.values()])):
            return called(self, node, on, method_of(node), function, given, keywords)
        if isinstance(function, ModuleName) and function.name.startswith("builtins."):
            function = self.script.named(self.source, function.name.removeprefix("builtins.")) or function
        if isinstance(function, FunctionStandIn) and (found := self.script.function(function)) is not None:
            if not function.names:
                function.names = local.get("", {})
            bound = [] if function.bound is None else [function.bound]
            return self.followed(OwnStep(function, *_behind_picture(given, keywords)), bound + given, found)
        if isinstance(function, StandIn) and (found := self.script.call_of(function)) is not None:
            return self.followed(OwnStep(function, *_behind_picture(given, keywords)), [function, *given], found)
        if self.script.is_own_compose(function) and not keywords and any(pictures_in(given)):
            return self.applied(function, given, node)
        return called(self, node, on, method_of(node), function, given, keywords)

    def followed(self, step: OwnStep, given: list[Any], found: Found) -> Any:
        """Return what a function of the script's own makes.

        Where it does something to a picture that no description takes, that is one step: the call as a whole.
        """
        function, before = step.function, next((one for one in given if isinstance(one, Picture)), None)
        names = function.names if isinstance(function, FunctionStandIn) else names_of(function)
        value = self.run(*found, given, dict(step.keywords), names or self.names)
        if before is None or sum(isinstance(one, Picture) for one in given) > 1 or not _is_own(value, before):
            return value
        last = value if isinstance(value, Computed) else value.steps[-1]
        return before.then(PictureStep("function", last.place, last.text, step))

    def applied(self, transform: Any, given: list[Any], node: ast.AST | None = None) -> Any:
        """Return what a transform makes of what it is called with; `node` is the call, if the script has one."""
        if transform is None:
            return given[0] if len(given) == 1 else tuple(given)
        if self.script.is_own_compose(transform):
            for one in vars(transform)["transforms"]:
                done = self.applied(one, given, node)
                given = list(done) if isinstance(done, tuple) else [done]
            return given[0] if len(given) == 1 else tuple(given)
        function = called_by(transform)
        if (found := self.script.code_of(transform)) is not None and function is not None:
            bound = [function] if isinstance(function, StandIn) else []
            return self.followed(OwnStep(function, (), ()), [*bound, *given], found)
        place = "" if node is None else self.place_in(self.source, node)
        done = [transformed(one, transform, place) for one in given]
        return done[0] if len(done) == 1 else tuple(done)

    def _given(self, arguments: Iterable[ast.expr], local: Names) -> Iterator[Any]:
        """Yield the values of arguments; those of a starred one where it is a list that is known."""
        for one in arguments:
            if not isinstance(one, ast.Starred):
                yield self.value(one, local)
            elif isinstance(spread := self.value(one.value, local), list | tuple):
                yield from spread


def method_of(node: ast.Call) -> str:
    """Return the name of the attribute that is called, empty for a plain function."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def _is_of_sample(value: Any) -> bool:
    """Tell whether a value is made of the sample's own values."""
    if isinstance(value, list | tuple):
        return any(map(_is_of_sample, value))
    if isinstance(value, dict):
        return any(map(_is_of_sample, value.values()))
    return not is_known(value) and not isinstance(value, Computed) and value != ModuleName("None")


def _behind_picture(given: list[Any], keywords: Names) -> tuple[tuple[Any, ...], tuple[tuple[str, Any], ...]]:
    """Return arguments without the picture that leads them."""
    return tuple(given[1:] if given and isinstance(given[0], Picture) else given), tuple(keywords.items())


def _is_own(value: Any, before: Picture) -> bool:
    """Tell whether what a function has made of a picture is known as its own code alone, and has the same form."""
    if isinstance(value, Computed):
        return True
    if not isinstance(value, Picture) or value.steps[: len(before.steps)] != before.steps:
        return False
    added = value.steps[len(before.steps) :]
    numbers = [step.operand for step in added if step.kind == "arithmetic"]
    drawn = any(not isinstance(one, Quantile) and not is_known(one) for one in numbers)
    plain = all(step.kind in ("own", "arithmetic", "cast", "function") for step in added)
    return plain and value.layout == before.layout and (drawn or any(step.kind == "own" for step in added))
