"""torch.compile: no function of the probe is compiled."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..probe import Probe


_PACKAGE = __name__.rpartition(".hooks.")[0]


def install_compiler(probe: Probe, eval_frame: ModuleType) -> None:
    """Marks all code of the probe for the compiler to skip, once that has been imported: torch._dynamo.eval_frame."""
    for code in _code():
        eval_frame.skip_code(code)


def compiling(torch: ModuleType) -> Callable[[], bool]:
    """`torch.compiler.is_compiling`, which the compiler knows; torch before 2.3 has none that needs no compiler."""
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
    """A function's code, and that of the functions which it makes."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
