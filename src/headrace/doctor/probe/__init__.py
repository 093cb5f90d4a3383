"""What runs inside the user's processes: hooks that time what a training step and a worker's batch are made of.

Standard library only and Python 3.9 on, since it runs in whatever environment the user trains in. It is loaded by its
path, under a name of its own, so nothing of Headrace need be installed there; hence imports in it are relative. No hook
may break a run: one that fails switches itself off and leaves a note.
"""

from __future__ import annotations

import os

from .probe import Probe
from .settings import Settings

_active: Probe | None = None
_fork_is_watched = False


def start(folder: str) -> Probe:
    """Observes this process from now on, as `folder/settings.json` says, into a file of its own in
    `folder/evidence`. A second call gives the probe that is there."""
    global _active, _fork_is_watched
    if _active is None:
        probe = Probe(Settings.read(folder))
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


def active() -> Probe | None:
    """The probe of this process, while there is one."""
    return _active


def stop() -> None:
    """Takes every hook out again and closes the evidence. For `watch()`; an observed command just ends."""
    global _active
    if _active is not None:
        _active.detach()
        _active = None


def _forked() -> None:
    """Registered once: Python takes no such callback back."""
    if _active is not None:
        _active.forked()
