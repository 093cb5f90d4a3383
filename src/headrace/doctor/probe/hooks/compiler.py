"""Hook on torch.compile: no function of the probe's is compiled.

After a break in a graph the compiler looks at every function that Python calls, the probe's among them. What a traced
function itself calls of ours is another matter: that asks `is_compiling()` first, and leads straight to the original.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, Callable

_PACKAGE = __name__.rpartition(".hooks.")[0]


def install_compiler(eval_frame: ModuleType) -> None:
    """Mark all code of the probe for the compiler to skip, once torch._dynamo.eval_frame has been imported."""
    for code in _code():
        eval_frame.skip_code(code)


def compiling(torch: ModuleType) -> Callable[[], bool]:
    """Return `torch.compiler.is_compiling`, which a trace takes for a constant.

    A torch without one (before 2.1) is taken to compile nothing; torch._dynamo is not asked, since the mere question
    imports it, which takes seconds.
    """
    known: Callable[[], bool] | None = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    return (lambda: False) if known is None else known


def _code() -> Iterator[CodeType]:
    for name, module in list(sys.modules.items()):
        if name == _PACKAGE or name.startswith(_PACKAGE + "."):
            for value in list(vars(module).values()):
                yield from _code_of(value, module.__name__)


def _code_of(value: Any, module: str) -> Iterator[CodeType]:
    value = getattr(value, "__func__", value)
    if getattr(value, "__module__", None) != module:
        return
    if isinstance(value, FunctionType):
        yield from _nested(value.__code__)
    elif isinstance(value, property) and value.fget is not None:
        yield from _nested(value.fget.__code__)
    elif isinstance(value, type):
        for member in list(vars(value).values()):
            yield from _code_of(member, module)


def _nested(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code, and that of the functions which it makes."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
