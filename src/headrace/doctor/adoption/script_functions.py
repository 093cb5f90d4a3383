"""Functions and classes of the script's own: where their code is, and their text for the generated module."""

from __future__ import annotations

import ast
import builtins
import os
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..edits import ScriptSource, dotted
from .recipe import ModuleFunction
from .sample_calls import TRANSFORM_LIBRARIES
from .stand_ins import FunctionStandIn, StandIn, bases_of, class_of, is_own

Found: TypeAlias = tuple[ScriptSource, ast.FunctionDef]
_LIBRARIES = ("numpy", "torch", "torchvision", "PIL", "cv2", "scipy", "skimage", "kornia", "einops", "albumentations")
"""Libraries that code may take to another module, beside Python's own; others may lie beside the script."""


class ScriptFunctions:
    """Functions and methods in the files of a script."""

    def __init__(self, sources: Iterable[ScriptSource]) -> None:
        self.sources = {source.path: source for source in sources}

    def method(self, of: Any, name: str) -> Found | None:
        """Return a method of an object's class, or of a base of it in the same files."""
        for wanted in (one.rpartition(".")[2] for one in bases_of(of)):
            for source in self.sources.values():
                for node in ast.walk(source.tree):
                    if isinstance(node, ast.ClassDef) and node.name == wanted:
                        for one in node.body:
                            if isinstance(one, ast.FunctionDef) and one.name == name:
                                return source, one
        return None

    def call_of(self, thing: Any) -> Found | None:
        """Return what an object of a class of the script's own does where it is called."""
        if not is_own(thing) or class_of(thing).split(".")[0] in TRANSFORM_LIBRARIES:
            return None  # also where a library's checkout lies beside the script
        return self.method(thing, "__call__") or self.method(thing, "forward")

    def function(self, given: FunctionStandIn) -> Found | None:
        """Return the code of a function, or of the only lambda of its line."""
        source = self.sources.get(given.file or "")
        if source is None or given.name.split(".")[0] in TRANSFORM_LIBRARIES:
            return None
        name = given.name.rpartition(".")[2]
        if name == "<lambda>":
            lambdas = [one for one in ast.walk(source.tree) if isinstance(one, ast.Lambda) and one.lineno == given.line]
            return (source, _as_function(lambdas[0])) if len(lambdas) == 1 else None
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef) and node.name == name:
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                if given.line in (None, first, node.lineno):
                    return source, node
        return None

    def code_of(self, transform: Any) -> Found | None:
        """Return the code of a transform of the script's own."""
        function = called_by(transform)
        return self.function(function) if isinstance(function, FunctionStandIn) else self.call_of(function)

    def is_own_compose(self, transform: Any) -> bool:
        """Tell whether a Compose holds something of the script's own."""
        inner = vars(transform).get("transforms") if isinstance(transform, StandIn) else None
        return (
            isinstance(inner, list)
            and type(transform).__name__ == "Compose"
            and any(self.code_of(one) is not None or self.is_own_compose(one) for one in inner)
        )

    def named(self, source: ScriptSource | None, name: str) -> FunctionStandIn | None:
        """Return a function that a file defines."""
        for one in [] if source is None else source.tree.body:
            if isinstance(one, ast.FunctionDef) and one.name == name and source is not None:
                return FunctionStandIn(name, source.path, one.lineno)
        return None


def is_static(found: Found) -> bool:
    """Tell whether a method takes no object."""
    return any(ast.unparse(one) == "staticmethod" for one in found[1].decorator_list)


def called_by(transform: Any) -> Any:
    """Return what a transform calls: a Lambda's function, or itself."""
    if type(transform).__name__ == "Lambda" and isinstance(transform, StandIn):
        return vars(transform).get("lambd", vars(transform).get("function"))
    return transform


def _as_function(node: ast.Lambda) -> ast.FunctionDef:
    function = ast.parse("def lambda_():\n    return None").body[0]
    assert isinstance(function, ast.FunctionDef)
    function.args, function.body = node.args, [ast.copy_location(ast.Return(node.body), node.body)]
    return ast.copy_location(function, node)


@dataclass
class ScriptCode:
    """Code of the script's that a module needs for one function or class: a copy, or an import of the script."""

    text: str = ""
    """Definitions, with the constants that they take."""
    imports: list[str] = field(default_factory=list)
    is_drawn: bool = False
    """Whether it draws at random."""


def script_code(source: ScriptSource, name: str) -> ScriptCode | None:
    """Return what gives a module a function or class of a script's file; None where that would not be safe.

    Its text is copied where it needs nothing but libraries, literals and functions of which that is true as well.
    Otherwise it is imported, from a script that runs nothing at import: it ends in `if __name__ == "__main__":`.
    """
    copied = _Copied(source)
    is_drawn = draws_numbers(source, name)
    if copied.take(name):
        return ScriptCode("\n\n\n".join([*copied.constants, *copied.definitions]), list(copied.imports), is_drawn)
    module = os.path.splitext(os.path.basename(source.path))[0]
    if module.isidentifier() and _has_guard(source.tree):
        return ScriptCode("", [f"from {module} import {name}"], is_drawn)
    return None


_DRAWING = ("random.", "numpy.random.", "torch.random.", "torch.nn.init.", "secrets.", "albumentations.")
"""Modules whose functions draw, or may."""
_DRAWS = {
    *("normal", "normal_", "uniform", "uniform_", "bernoulli", "bernoulli_", "multinomial", "poisson", "exponential_"),
    *("cauchy_", "geometric_", "log_normal_", "shuffle", "choice", "choices", "sample", "permutation", "default_rng"),
    *("dropout", "dropout2d", "alpha_dropout", "gumbel_softmax", "uuid4"),
    *("ColorJitter", "AutoAugment", "TrivialAugmentWide", "AugMix", "GaussianBlur", "GaussianNoise"),
    *("ElasticTransform", "ScaleJitter"),
}
"""Last part of the names of functions and transforms that draw; so do all that have `rand` in theirs."""


def draws_numbers(source: ScriptSource, name: str) -> bool:
    """Tell whether a function or class of a file calls anything that draws at random, also by others of the file."""
    defined: dict[str, ast.stmt] = {}
    for node in source.tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined[node.name] = node
        elif isinstance(node, ast.Assign):
            defined.update((one.id, node) for one in node.targets if isinstance(one, ast.Name))
    waiting, known = [name], {name}
    while waiting:
        for inner in ast.walk(defined.get(waiting.pop(), ast.Pass())):
            if isinstance(inner, ast.Call) and _is_draw(inner.func, source.names):
                return True
            if isinstance(inner, ast.Name) and inner.id not in known:
                known.add(inner.id)
                waiting.append(inner.id)
    return False


def _is_draw(called: ast.expr, names: Mapping[str, str]) -> bool:
    last = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    head, dot, rest = (dotted(called) or "").partition(".")
    name = f"{names.get(head, head)}{dot}{rest}"
    last = name.rpartition(".")[2] or last
    return name.startswith(_DRAWING) or "rand" in last.lower() or last in _DRAWS


def _has_guard(tree: ast.Module) -> bool:
    return any(isinstance(one, ast.If) and "__name__" in ast.unparse(one.test) for one in tree.body)


class _Copied:
    """Definitions that are copied out of a file, each after what it needs."""

    def __init__(self, source: ScriptSource) -> None:
        self.source = source
        self.imports: dict[str, None] = {}
        self.constants: list[str] = []
        self.definitions: list[str] = []
        self._known: set[str] = set()

    def take(self, name: str) -> bool:
        """Take what a name of the file stands for; tell whether that can be copied."""
        if name in self._known or hasattr(builtins, name):
            return True
        self._known.add(name)
        for node in self.source.tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
                if not all(self.take(one) for one in _free_names(node)):
                    return False
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                lines = self.source.text.splitlines()[first - 1 : node.end_lineno]
                self.definitions.append(textwrap.dedent("\n".join(line.rstrip() for line in lines)))
                return True
            if isinstance(node, ast.Import | ast.ImportFrom) and (statement := _imported(node, name)):
                self.imports[statement] = None
                return _is_library(node)
            if isinstance(node, ast.Assign) and [ast.unparse(one) for one in node.targets] == [name]:
                try:
                    ast.literal_eval(node.value)
                except ValueError:
                    return False
                self.constants.append(ast.unparse(node))
                return True
        return False


def _imported(node: ast.Import | ast.ImportFrom, name: str) -> str:
    """Return the statement that imports one name; empty where this one does not."""
    for alias in node.names:
        if (alias.asname or alias.name.partition(".")[0]) == name:
            only = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
            return f"import {only}" if isinstance(node, ast.Import) else f"from {node.module} import {only}"
    return ""


def _is_library(node: ast.Import | ast.ImportFrom) -> bool:
    if isinstance(node, ast.ImportFrom):
        roots = [(node.module or "").partition(".")[0]] if not node.level else [""]
    else:
        roots = [alias.name.partition(".")[0] for alias in node.names]
    return all(root in sys.stdlib_module_names or root in _LIBRARIES for root in roots)


def _free_names(node: ast.AST) -> Iterator[str]:
    """Yield names that a definition takes from around it."""
    bound = {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)}
    bound |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
    bound |= {one.name for one in ast.walk(node) if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and one.id not in bound:
            yield one.id


@dataclass(frozen=True)
class OwnStep:
    """Call of a function or an object of the script's own with a picture."""

    function: FunctionStandIn | StandIn
    arguments: tuple[Any, ...]
    """Behind the picture."""
    keywords: tuple[tuple[str, Any], ...]


def own_step_code(step: OwnStep, functions: ScriptFunctions, argument: str) -> tuple[str, ScriptCode] | None:
    """Return the call of a step with `argument`, and the code that it needs; None where that cannot be written."""
    given = [argument, *map(_written, step.arguments)]
    given += [f"{name}={_written(value)}" for name, value in step.keywords]
    if "" in given or any(one.endswith("=") for one in given):
        return None
    if isinstance(step.function, FunctionStandIn):
        found = functions.function(step.function)
        if found is None or found[1] not in found[0].tree.body:
            return None
        code = script_code(found[0], found[1].name)
        return None if code is None else (f"{found[1].name}({', '.join(given)})", code)
    called = functions.call_of(step.function)
    made = _construction(step.function, functions)
    code = None if called is None or made is None else script_code(called[0], type(step.function).__name__)
    return None if code is None else (f"{made}({', '.join(given)})", code)


def _construction(thing: StandIn, functions: ScriptFunctions) -> str | None:
    """Return what makes such an object anew: each parameter of its class is an attribute of the same name."""
    name, found = type(thing).__name__, functions.method(thing, "__init__")
    if found is None:
        return f"{name}()" if not vars(thing) else None
    parameters = [one.arg for one in found[1].args.args[1:] + found[1].args.kwonlyargs]
    held = vars(thing)
    if any(one not in held or not _written(held[one]) for one in parameters):
        return None
    return f"{name}({', '.join(f'{one}={_written(held[one])}' for one in parameters)})"


def _written(value: Any) -> str:
    """Return a plain value as Python; empty for any other."""
    if isinstance(value, list | tuple):
        return repr(value) if all(map(_written, value)) else ""
    return repr(value) if value is None or type(value) in (bool, int, float, str) else ""


def call_function(calls: Iterable[tuple[str, str]]) -> ModuleFunction:
    """Return the function for `map=` that makes these calls, each of a field."""
    lines = "\n".join(f"    sample[{name!r}] = {call}".replace("'", '"') for name, call in calls)
    head = 'def mapped(sample, rng):\n    """Run what stays the script\'s own Python on a sample."""'
    return ModuleFunction("mapped", f"{head}\n{lines}\n    return sample")


def own_call(
    functions: ScriptFunctions, step: OwnStep, name: str
) -> tuple[str, list[ModuleFunction], ScriptCode] | None:
    """Return the call of a step on a field, the definitions that it needs, and the code that they are of."""
    found = own_step_code(step, functions, f'sample["{name}"]')
    if found is None:
        return None
    call, code = found
    return call, [ModuleFunction(code.text.partition("(")[0], code.text)] if code.text else [], code
