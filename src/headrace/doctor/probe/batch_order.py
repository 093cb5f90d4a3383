"""Order of an observed run's batches, and when it saved: a resumed run is compared with it."""

from __future__ import annotations

import os
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

from .evidence_file import EvidenceFile
from .patches import Fault, HookGuard, Patches
from .sample_digests import keep_keys, next_keys
from .training.received_batches import ATTRIBUTE

if TYPE_CHECKING:
    from .settings import SessionClock
    from .training.state import TrainingState

MOST_BATCHES = 20_000
"""Maximum number of recorded batches."""
SAVES = {"torch.serialization": ("save", "f"), "safetensors": ("serialize_file", "filename")}
"""Functions that write a checkpoint, by module, with the name of their second argument: the file."""


class BatchOrder:
    """Digests of the keys of each batch that the process takes, and the number of batches at each checkpoint."""

    def __init__(self, training: TrainingState, evidence: EvidenceFile, clock: SessionClock, fault: Fault) -> None:
        self._training, self._evidence, self._clock = training, evidence, clock
        self._taken, self._saved = 0, (0, False)
        guard = HookGuard(fault, "the order of batches")
        self._drawn, self._delivered, self._save = guard(keep_keys), guard(self._deliver), guard(self._note)

    def hooks(self, patches: Patches) -> list[tuple[str, Callable[[ModuleType], object]]]:
        """Return the modules to hook, and the function that installs each hook."""
        saves = [(module, partial(self._watch, patches, *call)) for module, call in SAVES.items()]
        return [("torch.utils.data.dataloader", partial(self._install, patches)), *saves]

    def _install(self, patches: Patches, dataloader: ModuleType) -> None:
        iterator = dataloader._BaseDataLoaderIter
        patches.around(iterator, "_next_index", self._next_index)
        patches.around(iterator, "__next__", self._next)

    def _watch(self, patches: Patches, name: str, argument: str, module: ModuleType) -> None:
        def save(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            self._save(args[1] if len(args) > 1 else kwargs.get(argument))
            return result

        patches.around(module, name, save)

    def _next_index(self, original: Callable[[Any], Any], iterator: Any) -> Any:
        keys = original(iterator)
        if self._taken < MOST_BATCHES:
            self._drawn(iterator, keys, MOST_BATCHES)
        return keys

    def _next(self, original: Callable[[Any], Any], iterator: Any) -> Any:
        batch = original(iterator)
        if self._taken < MOST_BATCHES:
            self._delivered(iterator)
        return batch

    def _deliver(self, iterator: Any) -> None:
        pass_, keys = getattr(iterator, ATTRIBUTE, None), next_keys(iterator)
        if pass_ is not None and keys is not None:
            self._taken += 1
            self._evidence.write(("drawn", pass_.number, self._training.steps.number, keys))

    def _note(self, file: Any) -> None:
        """Note a checkpoint. Lightning writes into memory first; so may code that saves none."""
        is_file = isinstance(file, (str, os.PathLike)) or hasattr(file, "name")
        if (self._taken, is_file) != self._saved:
            self._saved = self._taken, is_file
            self._evidence.write(("saved", self._clock.now_us(), self._taken, int(is_file)))
