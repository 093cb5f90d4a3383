"""Loaders by name: a function of a module, a training script, or a module that `headrace doctor --draft` wrote."""

from __future__ import annotations

import ast
import runpy
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.errors import UsageError
from headrace.tools.bench.against import factory_of


@contextmanager
def named_loader(name: str, option: str) -> Iterator[Any]:
    """Yield the loader of `MODULE:FUNCTION`, `SCRIPT.py ARGUMENT…`, `-m MODULE ARGUMENT…` or `DRAFT.py`.

    A script runs up to its first training pass over a DataLoader, with its trackers offline. Raises
    UsageError or HeadraceError, which name the option.
    """
    words = shlex.split(name)
    if not words or not (words[0] == "-m" or words[0].endswith(".py")):
        yield factory_of(name, option=option)()
        return
    if words[0] != "-m" and not Path(words[0]).is_file():
        raise UsageError(f"{option}: expected a script, got {words[0]}, which is no file")
    if words[0] != "-m" and {"make_loader", "batches"} <= _functions(Path(words[0])):
        module = runpy.run_path(words[0])
        yield _DraftedLoader(module["make_loader"](), module["batches"])
        return
    from headrace.doctor.adoption import script_loader
    from headrace.doctor.attach import trackers_offline
    from headrace.doctor.session import session_folder
    from headrace.loader import Loader, LoaderDataLoader

    # The DataLoader of `as_dataloader` iterates over a Loader, whose batches have another structure.
    with session_folder() as folder, trackers_offline(folder.settings):
        yield script_loader(words, (LoaderDataLoader, Loader))


def _functions(script: Path) -> set[str]:
    """Return the names of the functions at a file's top level."""
    return {node.name for node in ast.parse(script.read_text()).body if isinstance(node, ast.FunctionDef)}


class _DraftedLoader:
    """Loader of a draft, whose `batches` give its batches the script's form."""

    def __init__(self, loader: Any, batches: Callable[[Any], Any]) -> None:
        self._loader, self._batches = loader, batches

    def set_epoch(self, epoch: int) -> None:
        if hasattr(self._loader, "set_epoch"):
            self._loader.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches(self._loader))
