"""Functions that open a file to read it by a path: while a batch is made, the path is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from ...timed import stand_in

if TYPE_CHECKING:
    from ...probe import Probe

Function = Callable[..., Any]


def count_paths(probe: Probe, owner: Any, name: str, argument: str) -> bool:
    """Of `owner.name`, whose first argument, called `argument`, is a path. False where that cannot be done."""
    return probe.patches.replace(owner, name, counted(probe, argument))


def counted(probe: Probe, argument: str, reads: Callable[[Any, Any], bool] = lambda args, kwargs: True) -> Function:
    """Makes a function that counts its path where `reads(args, kwargs)`, and does what it did."""
    stages, add = probe.stages, probe.batches.opened.add

    def make(original: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            if stages.is_counting and reads(args, kwargs):
                add(args[0] if args else kwargs.get(argument))
            return original(*args, **kwargs)

        return stand_in(original, call)

    return make
