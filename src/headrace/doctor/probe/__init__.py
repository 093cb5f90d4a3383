"""The probe: hooks in the user's processes that time training steps and the production of batches.

Standard library only, Python 3.9 and later, since the probe runs in the user's own environment. It is loaded by path
under a name of its own, so Headrace need not be installed there; hence the relative imports. A hook must never break a
run: a hook that fails switches itself off and leaves a note.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from .imports import ImportWatch
    from .probe import Probe

_active: Probe | None = None
"""Probe of this process; None until it has started."""


def start(folder: str, begun_ns: int | None = None) -> Probe:
    """Observe this process as `folder/settings.json` specifies and write its evidence file in `folder/evidence`.

    `begun_ns` is the start of observation by time.monotonic_ns(), if earlier than this call.
    """
    global _active
    from .hooks import attach
    from .probe import Probe
    from .settings import ProbeSettings

    probe = Probe(ProbeSettings.read(folder), begun_ns)
    try:
        attach(probe)
    except BaseException:
        probe.detach()
        raise
    _active = probe
    os.register_at_fork(after_in_child=probe.forked)
    return probe


def start_when_needed(folder: str, failed: Callable[[str], None]) -> None:
    """Start when the process imports a module that the probe hooks, or when an error ends the process.

    Most Python processes of a command never import such a module and should start without delay. If the probe cannot
    start, `failed(folder)` is called while the exception is being handled.
    """
    import atexit

    from .imports import ImportTrigger

    begun_ns, process = time.monotonic_ns(), os.getpid()

    def begun() -> int | None:
        return begun_ns if os.getpid() == process else None

    def start_now() -> ImportWatch | None:
        atexit.unregister(report_error)
        try:
            return start(folder, begun()).imports
        except Exception:
            failed(folder)
            return None

    def report_error() -> None:
        """Write the error that ended a process in which nothing was observed."""
        trigger.detach()
        error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
        # Ctrl-C needs no explanation. If source is executed from here on, as the import of dataclasses does, Python
        # forgets that Ctrl-C ended the process, and the exit status changes.
        if not isinstance(error, Exception):
            return
        try:
            from .probe import Probe
            from .settings import ProbeSettings

            last = Probe(ProbeSettings.read(folder), begun()).last
            last.failed(error)
            last.write()
        except Exception:
            failed(folder)

    trigger = ImportTrigger(start_now)
    if trigger.attach():
        atexit.register(report_error)
    else:
        start(folder, begun_ns)
