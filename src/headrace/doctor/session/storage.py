"""The folder of one diagnosis: settings, evidence and, where it is kept, the session."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.doctor.attach.hands_off import holds_files
from headrace.doctor.probe.clock import Clock, boot_id
from headrace.doctor.probe.settings import FILE, Settings
from headrace.errors import UsageError

SCRATCH = "scratch"
"""Folder of a session whose run is undone."""

SESSION_FILE = "session.json"


@dataclass
class SessionFolder:
    """Where the probes write. `is_kept` may become true while it is open: then it stays."""

    path: Path
    settings: Settings
    is_kept: bool

    @property
    def clock(self) -> Clock:
        return Clock(self.settings)


@contextmanager
def session_folder(
    keep: Path | None = None,
    *,
    observe: bool = False,
    warmup: int | None = None,
    steps: int | None = None,
    ranges: bool = False,
    replay: int = 0,
    drain_s: float = 0.0,
    digests: int = 0,
) -> Iterator[SessionFolder]:
    """A folder with its settings written. A temporary one, without `keep`, is removed at the end, unless it holds files
    of the user's that are nowhere else.

    Raises UsageError where `keep` holds a session already, or cannot be made.
    """
    path = _temporary() if keep is None else _made(keep)
    settings = _settings(
        path,
        observe=observe,
        warmup=warmup,
        steps=steps,
        ranges=ranges,
        replay=replay,
        drain_s=drain_s,
        digests=digests,
    )
    folder = SessionFolder(path, settings, is_kept=keep is not None)
    try:
        _write(settings)
        yield folder
    finally:
        folder.is_kept |= holds_files(path)
        if not folder.is_kept:
            shutil.rmtree(path, ignore_errors=True)  # a process that outlives the command may write there still


def _temporary() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="headrace-doctor-"))
    except OSError as error:
        raise UsageError(
            f"expected a folder for the evidence, got none ({error.strerror}: {error.filename}); "
            "set TMPDIR, or give --keep"
        ) from error


def _write(settings: Settings) -> None:
    try:
        settings.write()
    except OSError as error:
        raise UsageError(
            f"expected a folder that takes the evidence, got {settings.folder} ({error.strerror}); "
            "make room there, set TMPDIR, or give --keep"
        ) from error


def _made(keep: Path) -> Path:
    if (keep / FILE).exists():
        raise UsageError(f"--keep: expected a new folder, got {keep}, which holds a session; name another or remove it")
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--keep: expected a folder that can be made, got {keep} ({error.strerror})") from error
    return keep.resolve()


def _settings(path: Path, *, observe: bool, steps: int | None, **asked: Any) -> Settings:
    settings = Settings(
        folder=str(path),
        origin_us=time.monotonic_ns() // 1000,
        origin_wall_us=time.time_ns() // 1000,
        boot_id=boot_id(),
        observe=observe,
        scratch="" if observe else str(path / SCRATCH),
        **asked,
    )
    return settings if steps is None else Settings(**(vars(settings) | {"steps": steps}))
