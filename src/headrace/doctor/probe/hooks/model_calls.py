"""Calls of the model: the forward pass begins with the first call after a batch.

Modules call one another by the hundred, and only the outermost call matters. So `torch.nn.Module.__call__` is hooked
only between the arrival of a batch and the model's call. Only the *code* of the function is exchanged meanwhile. A new
class attribute would invalidate Python's caches of all subclasses at each step, torch.compile checks the function's
identity, and changes of torch's global hooks trigger a recompilation.
"""

from __future__ import annotations

import weakref
from threading import get_ident
from types import FunctionType, ModuleType
from typing import Any

from ..first_batches import ReplicaInputs
from ..overhead import NOBODY
from ..patches import Patches
from ..training.training import TrainingObserver

NAME = "_headrace_module_called"
"""Name of `ModelCalls.called` in the module that defines torch.nn.Module, while hooked."""
MOST_KNOWN = 4096
"""Maximum number of cached modules that are no model."""


def install_model_calls(
    patches: Patches, training: TrainingObserver, inputs: ReplicaInputs | None, torch: ModuleType
) -> None:
    """Watch for the model's call whenever the training thread has received a batch."""
    function = vars(torch.nn.Module).get("__call__")
    if not isinstance(function, FunctionType) or function.__code__.co_freevars:
        patches.unknown("torch.nn.Module.__call__", "where the forward pass begins was")
        return
    calls = ModelCalls(training, function, inputs)
    function.__globals__[NAME] = calls.called
    patches.at_restore(calls.remove)
    work = training.work
    work.watch, work.ignore, work.is_hooked = calls.watch, calls.ignore, True


def _hooked(*args: Any, **kwargs: Any) -> Any:
    return _headrace_module_called(*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821  # of torch's module


_HOOKED_CODE = _hooked.__code__


class ModelCalls:
    """Watch for module calls, through the code of the function that all of them run."""

    def __init__(self, training: TrainingObserver, function: FunctionType, inputs: ReplicaInputs | None) -> None:
        self._training = training
        self._inputs = inputs
        self._function = function
        self._code = function.__code__
        self._original = FunctionType(
            self._code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
        )
        self._original.__kwdefaults__ = function.__kwdefaults__
        self._plain: dict[int, weakref.ref[Any]] = {}
        """Modules without parameters, such as transforms, by id."""

    def watch(self) -> None:
        self._function.__code__ = _HOOKED_CODE

    def ignore(self) -> None:
        """Stop observing; modules run as without a hook."""
        self._function.__code__ = self._code

    def remove(self) -> None:
        self.ignore()
        self._training.work.is_hooked = False
        self._function.__globals__.pop(NAME, None)

    def called(self, *args: Any, **kwargs: Any) -> Any:
        try:
            self._look(args[0], args[1:], kwargs)
        except Exception as error:
            self._function.__code__ = self._code
            self._training.work.is_hooked = False
            self._training.fault("first call of the model", error)
        return self._original(*args, **kwargs)

    def _look(self, module: Any, args: Any, kwargs: Any) -> None:
        thread = self._training.thread
        if not self._training.work.is_under_way or thread.observed == NOBODY:
            self.ignore()
        elif get_ident() == thread.observed and not self._is_plain(module):
            self._training.model_called()
            if self._inputs is not None:
                self._inputs.called(module, args, kwargs)

    def _is_plain(self, module: Any) -> bool:
        """Return True for a module without parameters, such as a data transform or a loss."""
        known = self._plain.get(id(module))
        if known is not None and known() is module:
            return True
        if next(module.parameters(), None) is not None:
            return False
        if len(self._plain) >= MOST_KNOWN:
            self._plain.clear()
        self._plain[id(module)] = weakref.ref(module)
        return True
