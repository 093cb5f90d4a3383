"""Processes with the probe in them and no doctor beside them, so that their evidence can be looked at."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

from headrace.doctor.attach.injection import probe_environment
from headrace.doctor.probe.settings import ProbeSettings, boot_id
from headrace.doctor.session.evidence_reader import read_session
from headrace.doctor.session.model import CommandOutcome, Session

DEADLINE_S = 500


def run_probed(command: list[str], folder: Path, **changed: Any) -> subprocess.CompletedProcess[str]:
    """Runs `command` to its end, its evidence going to `folder`, with these settings."""
    settings = ProbeSettings(
        str(folder),
        origin_us=time.monotonic_ns() // 1000,
        origin_wall_us=time.time_ns() // 1000,
        boot_id=boot_id(),
        **{"observe": True, **changed},
    )
    settings.write()
    return subprocess.run(
        command, env=probe_environment(folder, os.environ), capture_output=True, text=True, timeout=DEADLINE_S
    )


def merged(folder: Path) -> Session:
    outcome = CommandOutcome(command=["train"], status=0, why="finished", duration=1_000_000)
    return read_session(folder, outcome=outcome, mode="observe")
