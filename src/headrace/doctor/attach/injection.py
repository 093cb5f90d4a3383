"""Inject the probe into a command's Python processes, and find processes without it (docs/doctor/internals.md)."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest.mock import patch

from headrace.doctor.attach.process_tree import Descendants, command_line, mapped_files
from headrace.doctor.probe import ProbeSettings
from headrace.doctor.session.model import UnreachedProcess

SITE_FOLDER = Path(__file__).parent / "site"
"""Folder of the sitecustomize.py, which must come first on PYTHONPATH."""
FOLDER_VARIABLE = "HEADRACE_DOCTOR"
"""Environment variable with the session's folder; without it the sitecustomize does nothing."""
TRACKERS = "trackers"
"""Folder in the scratch folder for the output of experiment trackers."""
_OFFLINE = {
    "WANDB_MODE": ("offline", {"disabled", "dryrun"}),
    "NEPTUNE_MODE": ("offline", {"debug", "disabled", "read-only"}),
    "SWANLAB_MODE": ("offline", {"disabled", "local"}),
    "CLEARML_OFFLINE_MODE": ("1", {"true", "yes"}),
    "COMET_START_ONLINE": ("0", {"false"}),
}
"""The value that takes each tracker offline, and user values with the same effect."""
_TRACKER_FOLDERS = ("WANDB_DIR", "COMET_OFFLINE_DIRECTORY", "NEPTUNE_DATA_DIRECTORY", "NEPTUNE_LOG_DIRECTORY")
_TRACKER_ADDRESSES = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")
_SERVER_IDS = ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID")
"""Ids that are only valid on their server."""
TORCH = "libtorch_python"
NO_SITE = (
    "its Python ran no sitecustomize of ours: an option -I, -E or -S, an environment or PYTHONPATH without it, or a "
    "Python before 3.9"
)
MOST_SECONDS_BETWEEN = 16.0


def probe_environment(folder: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the probe added. The previous PYTHONPATH follows the probe's folder."""
    paths = [str(SITE_FOLDER), *filter(None, [inherited.get("PYTHONPATH")])]
    return {**inherited, FOLDER_VARIABLE: str(folder.absolute()), "PYTHONPATH": os.pathsep.join(paths)}


def offline_environment(inherited: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the environment with each experiment tracker offline and writing only to `folder`."""
    environment = {name: value for name, value in inherited.items() if name not in _SERVER_IDS}
    for name, (value, others) in _OFFLINE.items():
        if environment.get(name, "").lower() not in others:
            environment[name] = value
    environment.update(dict.fromkeys(_TRACKER_FOLDERS, str(folder)))
    environment.update(dict.fromkeys(_TRACKER_ADDRESSES, (folder / "mlflow").as_uri()))
    return environment


@contextmanager
def trackers_offline(settings: ProbeSettings) -> Iterator[None]:
    """Take the trackers of this process offline in the context; they write to the scratch folder of the settings."""
    with patch.dict(os.environ, offline_environment(os.environ, Path(settings.scratch) / TRACKERS), clear=True):
        yield


class UnreachedWatch:
    """Search for processes with torch but without the probe.

    A probe begins its file before torch is loaded. So a process with torch and no file has no probe, unless it is a
    fork of an observed process and has written nothing yet. Reading a process's memory map makes it wait, so each is
    read less and less often, until it has evidence or torch.
    """

    def __init__(self, evidence: Path, *, now: Callable[[], float] = time.monotonic) -> None:
        self._evidence = evidence
        self._now = now
        self._next: dict[int, tuple[float, float]] = {}
        self._reached_commands: set[tuple[str, ...]] = set()
        self.reached: set[int] = set()
        self.missed: dict[int, UnreachedProcess] = {}

    def look(self, descendants: Descendants) -> None:
        """Check the processes that are due."""
        written = {int(file.name.rsplit("-", 2)[1]) for file in self._evidence.glob("*-*-*.jsonl")}
        for pid in written.intersection(descendants.live) - self.reached:
            self.reached.add(pid)
            self.missed.pop(pid, None)
            self._reached_commands.add(tuple(command_line(pid)))
        now = self._now()
        for pid in descendants.live.keys() - self.reached - self.missed.keys():
            at, pause = self._next.get(pid, (now, 0.1))
            if at <= now:
                self._next[pid] = (now + pause, min(2 * pause, MOST_SECONDS_BETWEEN))
                self._judge(pid)

    def _judge(self, pid: int) -> None:
        arguments = command_line(pid)
        if TORCH not in mapped_files(pid) or not arguments:
            return
        failed = self._evidence / f"failed-{pid}.txt"
        if tuple(arguments) in self._reached_commands and not failed.exists():
            self.reached.add(pid)
            return
        why = NO_SITE
        with suppress(OSError):
            why = f"its probe failed to start: {failed.read_text(errors='replace').strip().splitlines()[-1]}"
        self.missed[pid] = UnreachedProcess(pid, shlex.join(arguments), why)
