"""User-defined peer loader, `module:make_loader`, as an iterator over its batch sizes."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from headrace.compare import batch_size_of
from headrace.errors import HeadraceError, UsageError
from headrace.tools.bench.settings import BenchSettings

KEYWORDS = ("path", "batch_size", "num_workers", "seed")
"""Keywords that a factory may accept: PATH, --batch-size, --threads, and a number that differs in each round."""


def check_name(against: str, *, option: str = "--against") -> tuple[str, str]:
    """Split `module:attribute`. Raises UsageError, which names the option, if it has another form."""
    module, colon, name = against.partition(":")
    if not colon or not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise UsageError(
            f"{option}: expected module:function, as in train:make_loader, got {against!r}. "
            "The module is imported from the current folder."
        )
    return module, name


def against_batch_sizes(settings: BenchSettings, round_number: int) -> Iterator[int]:
    """Create the loader and yield the size of each batch while the batch is alive, epoch after epoch.

    Raises HeadraceError if there is no such loader, or if it yields no batches or empty ones.
    """
    assert settings.against is not None
    values = (settings.path, settings.batch_size, settings.threads, settings.seed + round_number)
    factory = factory_of(settings.against)
    batches = factory(**accepted_arguments(factory, dict(zip(KEYWORDS, values, strict=True))))
    if not isinstance(batches, Iterable):
        raise HeadraceError(
            f"--against {settings.against}: expected something to iterate over, got a {type(batches).__name__}. "
            "Return the loader itself."
        )
    while True:
        count = 0
        for batch in batches:
            size = batch_size_of(batch)
            if not size:
                unknown = f"a {type(batch).__name__}, in which no tensor, array or list tells how many"
                raise HeadraceError(
                    f"--against {settings.against}: expected samples in batch {count}, got "
                    f"{'no sample' if size == 0 else unknown}. Give a batch of tensors, arrays or lists, alone, in a "
                    "tuple or in a dict, or one that has a len."
                )
            yield size
            count += 1
        if not count:
            raise HeadraceError(
                f"--against {settings.against}: expected batches, and its loader gave none. A generator can be "
                "iterated once only: return what begins anew each time, as a DataLoader does."
            )


def accepted_arguments(factory: Callable[..., Any], wanted: Mapping[str, object]) -> dict[str, object]:
    """Return the subset of `wanted` that the factory accepts as keywords."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # possibly a C function
        return {}
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return dict(wanted)
    named = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    return {name: value for name, value in wanted.items() if name in named}


def factory_of(against: str, *, option: str = "--against") -> Callable[..., Any]:
    """Import `module:function` from the current folder. Raises UsageError or HeadraceError, which name the option."""
    module_name, name = check_name(against, option=option)
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module exists but one of its imports does not
        raise HeadraceError(
            f"{option} {against}: expected a module {module_name} that can be imported from {os.getcwd()}, and there "
            f"is none. Run this in the folder that holds it, or set PYTHONPATH."
        ) from None
    except SystemExit as error:
        raise HeadraceError(
            f"{option} {against}: expected a module that can be imported, got its exit with {error.code!r}. Move what "
            "runs the program below `if __name__ == '__main__':`."
        ) from None
    factory = getattr(module, name, None)
    if factory is None:
        own = {found for found, value in vars(module).items() if getattr(value, "__module__", None) == module_name}
        names = sorted(found for found in own if callable(vars(module)[found]))
        raise HeadraceError(
            f"{option} {against}: expected a function {name} in {module.__file__}, and there is none. "
            f"It has: {', '.join(names) or 'nothing to call'}."
        )
    if not callable(factory):
        raise HeadraceError(
            f"{option} {against}: expected a function that makes a loader, got a {type(factory).__name__}. "
            "Wrap it in one, so that each round has a loader of its own."
        )
    return factory  # type: ignore[no-any-return]
