"""Remedy for a whole loader: Headrace's Loader in place of a DataLoader, by the module that was tried."""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

from ..hooks.dataloader import NUMBER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..patches import Function
    from . import InjectedRemedy

MODULE = "headrace_adopted_loader"
_REPLACED = "_headrace_replaced"
"""Attribute of a DataLoader: True if its batches come from the Loader."""


def install_loader(remedy: InjectedRemedy, wanted: dict[str, Any]) -> None:
    """Replace the DataLoaders that `wanted` numbers by Headrace's Loader.

    `wanted` has the text of the `module` and the numbers of the `loaders`. The Loader is created once, at the first
    pass, and each pass of the DataLoader is its next epoch. The hooks observe it like any Loader.
    """
    training = remedy.training
    made: list[Callable[[], Any]] = []

    def is_wanted(loader: Any) -> bool:
        """Return True if a pass of this DataLoader, begun now in the training thread, should be replaced."""
        thread = training.thread
        if not thread.is_its_thread() or thread.is_fetching:
            return False
        replaced = getattr(loader, _REPLACED, None)
        if replaced is None:  # it gets the next number, unless it was described before
            file, number = getattr(loader, NUMBER, (None, None))
            number = number if file == training.evidence.path else training.counter.loaders
            replaced = number in wanted["loaders"]
            object.__setattr__(loader, _REPLACED, replaced)
        return bool(replaced)

    @remedy.guarded
    def batches_of(loader: Any) -> Any:
        if not is_wanted(loader) or remedy.headrace is None:
            return None
        if not made:
            module = ModuleType(MODULE)
            sys.modules[MODULE] = module  # subprocesses look up its functions there
            exec(compile(wanted["module"], f"<{MODULE}>", "exec"), module.__dict__)
            made.append(functools.partial(module.batches, module.make_loader()))
        remedy.took()
        return _digested(made[0](), remedy)

    def begin(original: Function, loader: Any) -> Any:
        batches = batches_of(loader)
        return original(loader) if batches is None else batches

    remedy.around("torch.utils.data.dataloader", "DataLoader.__iter__", begin)


def _digested(batches: Any, remedy: InjectedRemedy) -> Iterator[Any]:
    """Yield batches, recording their digests if the run's samples are compared."""
    for batch in batches:
        if remedy.digests is not None:
            remedy.digests.received(remedy.training.counter.passes - 1, batch)
        yield batch
