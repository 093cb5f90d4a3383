"""The probe of one process: what its hooks share, and how they come and go."""

from __future__ import annotations

import os
import sys
import time
import traceback
from types import ModuleType
from typing import Any, Callable

from .batch_production import BatchRecorder
from .evidence_file import EvidenceFile, LastRecords, Record
from .imports import ImportWatch
from .patches import Patches
from .settings import ProbeSettings, SessionClock, boot_id
from .stages import MOST_STAGES, Stages, timed, timed_by_type
from .training.training import TrainingObserver

VERSION = 1
"""Of the evidence's format."""


class Probe:
    """Holds the clock, the evidence, the stages and the patches that all hooks use. A hook is a function
    `install(probe, module)`, called when the module that it hooks has been imported."""

    def __init__(self, settings: ProbeSettings, begun_ns: int | None = None) -> None:
        """`begun_ns`: when the process began to be observed, by time.monotonic_ns(); now, if that is None."""
        self.settings = settings
        self.clock = SessionClock(settings)
        self._start_us = self.clock.now_us() if begun_ns is None else self.clock.us(begun_ns)
        self.stages = Stages(lambda error: self.fault("stages", error))
        self.patches = Patches()
        self.imports = ImportWatch()
        self.used: set[str] = set()
        """Libraries of which this process has called a function that is hooked."""
        self._faults: set[str] = set()
        self._at_detach: list[Callable[[], None]] = []
        self.evidence = EvidenceFile(self._new_path(), settings.most_bytes, self._header)
        self.last = LastRecords(self.evidence, self.clock)
        self.ending = "exit"
        """Of the `end` record; `steps` once the doctor has ended the run."""
        self.batches = BatchRecorder(self)
        self.last.add(self.batches.close)
        self.training = TrainingObserver(self)

    def attach(self) -> None:
        """Waits for torch, and for every library whose calls are stages."""
        from .hooks import HOOKS

        self.imports.attach()
        self.imports.before_import("torch", self.evidence.begin)
        if self.settings.digests:
            from . import sample_digests

            sample_digests.watch_samples(self)
        self._inject("inject_beneath")
        for module, install in HOOKS:
            self.when_imported(module, install)
        self._inject("inject_around")
        self.patches.rebind()

    def _inject(self, where: str) -> None:
        """Loaded only by a run that proves remedies."""
        if self.settings.changes:
            from . import remedies

            getattr(remedies, where)(self)

    def detach(self) -> None:
        self.training.stop()
        self.last.write(self.ending)
        self.imports.detach()
        while self._at_detach:
            self._at_detach.pop()()
        self.patches.restore()
        self.batches.close()
        self.evidence.close()

    def at_detach(self, call: Callable[[], None]) -> None:
        """Takes something back that is no patch."""
        self._at_detach.append(call)

    def when_imported(self, module: str, install: Callable[[Probe, ModuleType], None]) -> None:
        """Calls `install(self, module)` when that has been imported. One that fails is noted, and nothing else."""

        def guarded(imported: ModuleType) -> None:
            try:
                install(self, imported)
            except Exception as error:
                self.fault(f"{module} ({install.__module__}.{install.__qualname__})", error)

        self.imports.when_imported(module, guarded)

    def stage(self, category: str, label: str) -> int:
        """The number of a stage; the categories are those of docs/doctor/evidence.md. Once there are `MOST_STAGES`, all
        new ones of a category are one, labelled `other`."""
        name = f"{category}:{label}"
        if len(self.stages.categories) >= MOST_STAGES and name not in self.evidence.names:
            name = f"{category}:other"
        number = self.evidence.name(name)
        self.stages.categories[number] = category
        return number

    def time_calls(self, owner: Any, name: str, category: str, label: str) -> bool:
        """Counts calls of `owner.name` as a stage, wherever a batch is being made. False where that cannot be done."""
        return self.patches.replace(owner, name, timed(self.stages, self.stage(category, label)))

    def time_calls_by_type(self, owner: Any, name: str, category: str) -> bool:
        """The same for a method, as the stage that is named after the class of the object that it is called on."""
        make = timed_by_type(self.stages, lambda label: self.stage(category, label))
        return self.patches.replace(owner, name, make)

    def hook(self, module: ModuleType, path: str, make: Callable[[Any], Any], unseen: str) -> bool:
        """Replace `path`, dotted, of a library's module. Where there is no such thing the report says that what
        `unseen` names was not seen; and False."""
        owner: Any = module
        *outer, name = path.split(".")
        for part in outer:
            owner = getattr(owner, part, None)
        if owner is not None and self.patches.replace(owner, name, make):
            return True
        self.unknown(f"{module.__name__}.{path}", unseen)
        return False

    def unknown(self, what: str, unseen: str) -> None:
        """Note that `what`, of a library of another version than the doctor knows, is not as it knows it."""
        library = what.partition(".")[0]
        version = getattr(sys.modules.get(library), "__version__", None)
        its = f"{library} {version}'s" if version else f"{library}'s"
        self.note("not-known", f"{its} {what} is not known to this doctor: {unseen} not seen.")

    def note(self, code: str, text: str) -> None:
        """Something that the report must say: see docs/doctor/evidence.md for the codes."""
        self.evidence.write(("note", self.clock.now_us(), code, text))

    def fault(self, hook: str, error: BaseException) -> None:
        """Notes, once, that a hook of ours failed and is off from now on. Never raises: what failed may be what notes
        are written by."""
        if hook in self._faults:
            return
        self._faults.add(hook)
        try:
            last = traceback.format_exception_only(type(error), error)[-1].strip()
            self.note("hook-off", f"{hook}: {last}")
        except Exception:
            self.evidence.close()

    def forking(self) -> None:
        """Before a fork: no thread of ours goes through one."""
        self.batches.forking()

    def forked(self) -> None:
        """In the child of a fork: a file of its own, and locks that nobody holds."""
        self._start_us = self.clock.now_us()
        self.evidence.forked(self._new_path())
        self.used.clear()
        self.stages.forked()
        self.batches.forked()
        self.training.forked()

    def _new_path(self) -> str:
        name = f"{os.uname().nodename}-{os.getpid()}-{time.monotonic_ns():x}.jsonl"
        return os.path.join(self.settings.evidence, name)

    def _header(self) -> Record:
        facts = {
            "version": VERSION,
            "pid": os.getpid(),
            "parent": os.getppid(),
            "host": os.uname().nodename,
            "boot_id": boot_id(),
            "python": sys.version.split()[0],
            "executable": sys.executable,
            "argv": list(getattr(sys, "orig_argv", None) or getattr(sys, "argv", [])),
            "rank": _int("RANK"),
            "local_rank": _int("LOCAL_RANK"),
            "world_size": _int("WORLD_SIZE"),
        }
        return ("process", self._start_us, facts)


def _int(variable: str) -> int | None:
    value = os.environ.get(variable, "")
    return int(value) if value.isdigit() else None
