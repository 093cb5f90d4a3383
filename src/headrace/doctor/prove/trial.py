"""A trial: the command run once more with remedies injected."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.doctor.attach import OUTPUT, CommandResult, Patience, run_command
from headrace.doctor.causes import failed_process
from headrace.doctor.probe import KEYS, ProbeSettings, boot_id
from headrace.doctor.prove.baseline import DIGESTS, ComparedSamples, step_durations
from headrace.doctor.session import SCRATCH, read_session
from headrace.doctor.session.after_run import Proof
from headrace.doctor.session.model import Session

DETAIL_LINES = 12
PATIENCE = Patience(grace_s=2.0, terminate_s=2.0, kill_s=3.0)
"""Patience with processes that outlive the command; their fate is not reported."""
Execute = Callable[[list[str], ProbeSettings, dict[str, str], float], CommandResult]
"""Runs a command to its end: command, settings (written), environment variables, and time limit in seconds."""


def variables(changes: dict[str, Any]) -> dict[str, str]:
    """Return the environment variables for a run with these changes."""
    return {"HEADRACE_CACHE_ONLY": "1"} if "loader" in changes else {}


@dataclass(frozen=True)
class TrialRequest:
    """Request of one run: its changes and limits."""

    changes: dict[str, Any]
    steps: int
    most_s: float
    """Time limit in seconds."""


@dataclass(frozen=True)
class Trial:
    """Outcome of one run. If it did not complete its steps, `why` has the reason, as in `Proof.why`."""

    why: str
    detail: str = ""
    duration_us: int = 0
    steps: list[int] = field(default_factory=list)
    samples: ComparedSamples = field(default_factory=ComparedSamples)

    def proof(self, remedies: list[str], changes: dict[str, Any], samples: str | None) -> Proof:
        return Proof(remedies, changes, self.why, self.detail, self.duration_us, self.steps, samples)


def execute(command: list[str], settings: ProbeSettings, environ: dict[str, str], most_s: float) -> CommandResult:
    """Run a command without showing its output or passing input."""
    return run_command(
        command,
        settings,
        output=Path(settings.folder) / OUTPUT,
        patience=PATIENCE,
        variables=environ,
        reads=False,
        most_s=most_s,
    )


def attempt(command: list[str], like: ProbeSettings, order: TrialRequest, run_it: Execute = execute) -> Trial:
    """Run `command` with the settings of the measured run, `like`, changed by `order`. Its evidence is removed."""
    unknown = sorted(set(order.changes) - KEYS)
    if unknown:
        return Trial("not applied", f"this version knows no way to apply {', '.join(unknown)}")
    folder = Path(tempfile.mkdtemp(prefix="headrace-doctor-proof-"))
    try:
        return _run(command, like, folder, order, run_it)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str], like: ProbeSettings, folder: Path, order: TrialRequest, run_it: Execute) -> Trial:
    begun = time.monotonic()
    settings = replace(
        like,
        folder=str(folder),
        origin_us=time.monotonic_ns() // 1000,
        origin_wall_us=time.time_ns() // 1000,
        boot_id=boot_id(),
        observe=False,
        scratch=str(folder / SCRATCH) if like.scratch else "",
        steps=order.steps,
        enough=0,
        replay=0,
        proves=True,
        changes=order.changes,
        digests=DIGESTS,
    )
    settings.write()
    ended = run_it(command, settings, variables(order.changes), order.most_s)
    session = read_session(folder, outcome=ended, mode="measure")
    why, detail = _verdict(session, ended, order.changes)
    steps = step_durations(session) if why == "measured" else []
    duration_us = round((time.monotonic() - begun) * 1e6)
    return Trial(why, detail, duration_us, steps, ComparedSamples.of(session))


def _verdict(session: Session, ended: CommandResult, changes: dict[str, Any]) -> tuple[str, str]:
    """Return the reason for the end of the run, and its details."""
    if ended.why in ("interrupted", "timed out"):
        return ended.why, f"after {ended.duration / 1e6:.0f} s" if ended.why == "timed out" else ""
    if session.outcome.status:
        failed = failed_process(session)
        lines = session.outcome.last_lines if failed is None else (failed.error or "").splitlines()
        if lines and lines[-1].startswith("FileExistsError"):  # what the measured run wrote stays
            return "not applied", f"the command does not run twice in one folder: {lines[-1]}"
        return "broke", "\n".join(lines[-DETAIL_LINES:])
    refused = [f"{key}: {why}" for key in changes if (why := _why_not_applied(session, key))]
    if refused:
        return "not applied", "; ".join(refused)
    if not step_durations(session):
        return "broke", "it ended before any step was measured"
    applied = [one for process in session.processes for one in process.facts.get("applied", {}).values()]
    return "measured", "; ".join(dict.fromkeys(text for one in applied for text in one["texts"]))


def _why_not_applied(session: Session, key: str) -> str:
    """Return why a change did not count; empty if it did.

    If it was switched off in any process, later measurements are without it.
    """
    for note in session.notes:
        if note.code == "hook-off" and note.text.startswith(f"remedy {key}"):
            return note.text
    found = [process.facts.get("applied", {}).get(key, {"count": 0, "texts": []}) for process in session.processes]
    if any(one["count"] for one in found):
        return ""
    return next((text for one in found for text in one["texts"]), "nothing in the run took it")
