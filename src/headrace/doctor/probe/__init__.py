"""The probe: hooks inside the user's processes that time a training step and the batches of a worker."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Callable

    from .imports import ImportWatch
    from .probe import Probe


UNDO = os.path.join("scratch", "undo", "owner")
"""Of a session's folder: a file that is there where its run is to be undone."""
_active: Probe | None = None
_fork_is_watched = False


def start(folder: str, begun_ns: int | None = None) -> Probe:
    """Observes this process from now on, as `folder/settings.json` says, into a file of its own in
    `folder/evidence`. A second call gives the probe that is there. `begun_ns`: when this process began to be observed,
    by time.monotonic_ns(), if that was before."""
    global _active, _fork_is_watched
    if _active is None:
        from .probe import Probe
        from .settings import ProbeSettings

        probe = Probe(ProbeSettings.read(folder), begun_ns)
        try:
            probe.attach()
        except BaseException:
            probe.detach()
            raise
        _active = probe
        if not _fork_is_watched:
            os.register_at_fork(after_in_child=_forked)
            _fork_is_watched = True
    return _active


def start_when_needed(folder: str, failed: Callable[[str], None]) -> None:
    """The same, once the first module is imported that the probe has to do with, or the process ends by an error: most
    Python processes of a command never come to that, and should start as fast as ever. `failed(folder)` is called while
    the exception is handled that kept it from starting."""
    import atexit

    from .imports import ImportTrigger

    begun_ns, process = time.monotonic_ns(), os.getpid()
    if os.path.exists(os.path.join(folder, UNDO)):
        from . import hands_off

        hands_off.start(folder)

    def begun() -> int | None:
        return begun_ns if os.getpid() == process else None

    def start_now() -> ImportWatch | None:
        atexit.unregister(tell_error)
        try:
            return start(folder, begun()).imports
        except Exception:
            failed(folder)
            return None

    def tell_error() -> None:
        trigger.detach()
        error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
        # Of Ctrl-C there is nothing to explain, and Python forgets that it ends by it when source is executed from now
        # on, as the import of dataclasses does: its exit status would be another.
        if isinstance(error, Exception):
            try:
                _tell(folder, begun(), error)
            except Exception:
                failed(folder)

    trigger = ImportTrigger(start_now)
    if trigger.attach():
        atexit.register(tell_error)
    else:
        start(folder, begun_ns)


def _tell(folder: str, begun_ns: int | None, error: BaseException) -> None:
    """Writes what ended a process in which nothing was observed."""
    from .probe import Probe
    from .settings import ProbeSettings

    last = Probe(ProbeSettings.read(folder), begun_ns).last
    last.failed(error)
    last.write("exit")


def active() -> Probe | None:
    """The probe of this process, while there is one."""
    return _active


def stop() -> None:
    """Takes every hook out again and closes the evidence. For `watch()`; an observed command just ends."""
    global _active
    if _active is not None:
        _active.detach()
        _active = None
    hands_off = sys.modules.get(f"{__name__}.hands_off")
    if hands_off is not None:
        hands_off.stop()


def _forked() -> None:
    """Registered once: Python takes no such callback back."""
    if _active is not None:
        _active.forked()
