"""The probe of one process: its parts, and installation and removal of its hooks."""

from __future__ import annotations

import os
import sys
import time
import traceback
from types import ModuleType
from typing import Callable

from .batch_production import BatchRecorder
from .evidence_file import EvidenceFile, LastRecords, Record
from .imports import ImportWatch
from .look.digests import ReceivedDigests
from .patches import Patches
from .settings import ProbeSettings, SessionClock
from .stages import CallTimer, Stages
from .training.training import TrainingObserver


class Probe:
    """Owner of a probe's parts. `hooks.hooks_of` passes them to the hooks."""

    def __init__(self, settings: ProbeSettings, begun_ns: int | None = None) -> None:
        """`begun_ns`: start of observation by time.monotonic_ns(), or None for now."""
        self.settings = settings
        self.clock = SessionClock(settings)
        self._start_us = self.clock.now_us() if begun_ns is None else self.clock.us(begun_ns)
        self._faults: set[str] = set()
        self.evidence = EvidenceFile(self._new_path(), settings.most_bytes, self._header)
        self.last = LastRecords(self.evidence, self.clock)
        # The file begins before torch's import, which takes seconds: without a file, a process that has mapped torch
        # counts as missed.
        self.imports = ImportWatch({"torch": self.evidence.write})
        self.patches = Patches(self.note)
        self.stages = Stages(lambda error: self.fault("stages", error))
        self.timer = CallTimer(self.stages, self.patches, self.evidence)
        self.batches = BatchRecorder(self.timer, self.evidence, self.clock, self.fault)
        self.last.add(self.batches.close)
        self.training = TrainingObserver(
            settings, self.evidence, self.clock, self.last, note=self.note, fault=self.fault
        )
        self.digests: ReceivedDigests | None = None
        """Digests of batches in a run to be compared with another."""
        self.used: set[str] = set()
        """Libraries with a hooked function that this process has called."""

    def detach(self) -> None:
        self.training.stop()
        self.last.write()
        self.imports.detach()
        self.patches.restore()
        self.batches.close()
        self.evidence.close()

    def when_imported(self, module: str, install: Callable[[ModuleType], object]) -> None:
        """Call `install(module)` once the module is imported. A failure is noted and otherwise ignored."""

        def guarded(imported: ModuleType) -> None:
            try:
                install(imported)
            except Exception as error:
                function = getattr(install, "func", install)
                self.fault(f"{module} ({function.__module__}.{function.__qualname__})", error)

        self.imports.when_imported(module, guarded)

    def note(self, code: str, text: str) -> None:
        """Write a note for the report. docs/doctor/internals.md lists the codes."""
        self.evidence.write(("note", self.clock.now_us(), code, text))

    def fault(self, hook: str, error: BaseException) -> None:
        """Note, once, that one of the probe's hooks failed and is disabled.

        Never raises: the failure may be in writing notes itself.
        """
        if hook in self._faults:
            return
        self._faults.add(hook)
        try:
            last = traceback.format_exception_only(type(error), error)[-1].strip()
            self.note("hook-off", f"{hook}: {last}")
        except Exception:
            self.evidence.close()

    def forking(self) -> None:
        """Stop the probe's threads before a fork."""
        self.batches.forking()
        self.training.work.forking()
        self.training.standstill.stop()

    def forked(self) -> None:
        """Start a new evidence file and unheld locks in the child of a fork."""
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
        rank = os.environ.get("RANK", "")
        facts = {
            "pid": os.getpid(),
            "parent": os.getppid(),
            "host": os.uname().nodename,
            "python": sys.version.split()[0],
            "executable": sys.executable,
            "argv": list(getattr(sys, "orig_argv", None) or getattr(sys, "argv", [])),
            "rank": int(rank) if rank.isdigit() else None,
        }
        return ("process", self._start_us, facts)
