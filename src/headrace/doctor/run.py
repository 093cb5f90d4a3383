"""Run of a command with the probe, and the report of its data stalls; reports of saved sessions."""

from __future__ import annotations

import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headrace.doctor.adopting import LOOK_S, LoaderAdoption
from headrace.doctor.attach import DOCTOR_FAILED, CommandResult, exit_status, run_command
from headrace.doctor.causes import Prescription, diagnose, prescribe
from headrace.doctor.edits import files_here
from headrace.doctor.faults import FaultPicture, add_patches, session_faults
from headrace.doctor.machine import MachineSampler
from headrace.doctor.measure import Diagnosis
from headrace.doctor.prove import DIGESTS, Prover, remedy_attempts
from headrace.doctor.report import Outputs, document, write_whole
from headrace.doctor.session import (
    SESSION_FILE,
    FailedReplay,
    SessionFolder,
    merged,
    read_session,
    saved_session,
    session_folder,
)
from headrace.doctor.session.model import Machine, Session, SessionNote

Result = TypeVar("Result")
PROVE_S = 120.0
"""Time limit of all proofs. A script with steps of 100 ms is measured in about a minute, and proved in two."""
REPLAY_STEPS = 40
"""Steps of the replay window."""
STANDSTILL_S = 30.0
"""Time without a step or a batch after which a run that stands still is ended."""
ENOUGH_STEPS = 20
"""Measured steps after which a run that clearly waits for no data ends, unless more were requested."""


@dataclass(frozen=True)
class Examination:
    """Request of one examination: the command, and its options."""

    command: list[str]
    steps: int | None = None
    observe: bool = False
    fail_above: float | None = None
    tries_loader: bool = True
    """True if Headrace's Loader is tried on the run's files."""
    proves: bool = False
    """True if remedies are proved by further runs of the command."""


def examine(asked: Examination, outputs: Outputs) -> int:
    """Run the command, write the report, and return the exit status of docs/doctor/README.md.

    Raises:
        UsageError: An output cannot be written; the command is not started.
    """
    outputs.check()
    with session_folder(
        observe=asked.observe,
        steps=asked.steps,
        enough=ENOUGH_STEPS if asked.steps is None and asked.fail_above is None else 0,
        replay=0 if asked.observe else REPLAY_STEPS,
        look_s=0.0 if asked.observe or not asked.tries_loader else LOOK_S,
        digests=DIGESTS if asked.proves else 0,
        standstill_s=STANDSTILL_S,
    ) as folder:
        ended, machines = _announced_run(asked, folder, outputs)
        failed = _failed_in_replay(folder, ended)
        if failed is not None:
            say(f"{failed.text} It runs again without them.")
            folder.begin_again(replay=0)
            ended, machines = _announced_run(asked, folder, outputs)
        wait_share, status = None, ended.status
        with evidence_kept(folder):
            session, diagnosis, prescription, pictures = _reported(asked, outputs, folder, ended, machines, failed)
            say(*outputs.put(session, diagnosis, prescription, pictures=pictures))
            wait_share = diagnosis.data_share
            status = 0 if session.outcome.why == "steps" else ended.status  # ended by the doctor
    return exit_status(status, wait_share=wait_share, fail_above=asked.fail_above)


@contextmanager
def evidence_kept(folder: SessionFolder) -> Iterator[None]:
    """Report an error, and keep the evidence: after the command has ended, none may lose its exit status."""
    try:
        yield
    except KeyboardInterrupt:
        folder.is_kept = True
        say(f"interrupted while reporting; the evidence is in {folder.path}")
    except Exception:
        folder.is_kept = True
        say(f"the report failed, which is a fault of the doctor's; the evidence is in {folder.path}")
        say(traceback.format_exc())


def _announced_run(asked: Examination, folder: SessionFolder, outputs: Outputs) -> tuple[CommandResult, list[Machine]]:
    if not asked.observe:
        say("the report comes about a minute after the script's start if a step takes 100 ms")
    return run_sampled(asked, folder, outputs)


def _failed_in_replay(folder: SessionFolder, ended: CommandResult) -> FailedReplay | None:
    """Return how the script failed in a replay window that measured nothing; None if it did not."""
    if ended.why != "failed" or not folder.settings.replay:
        return None
    try:
        session = read_session(folder.path, outcome=ended, mode="measure")
        return FailedReplay.of(session.outcome, session.processes)
    except Exception:  # the report reads it again, and reports the error
        return None


def run_sampled(asked: Examination, folder: SessionFolder, outputs: Outputs) -> tuple[CommandResult, list[Machine]]:
    """Run the command, and sample the machine meanwhile."""
    samplers: list[MachineSampler] = []
    with ExitStack() as stack:
        stack.enter_context(outputs.standard_output_aside())
        stack.callback(lambda: [sampler.stop() for sampler in samplers])
        ended = run_command(
            asked.command,
            folder.settings,
            on_start=lambda pid: samplers.append(MachineSampler(folder.clock, pid).start()),
        )
    return ended, [sampler.machine() for sampler in samplers]


def _reported(
    asked: Examination,
    outputs: Outputs,
    folder: SessionFolder,
    ended: CommandResult,
    machines: list[Machine],
    failed: FailedReplay | None,
) -> tuple[Session, Diagnosis, Prescription | None, Mapping[int, FaultPicture]]:
    """Return the results of a run that has ended, with pictures of its faults, by their places, if a page shows them.

    `failed` is how an earlier run failed on repeated batches.
    """
    session = session_of(asked, folder, ended, machines)
    session.notes += [] if failed is None else [failed.note]
    adopting = LoaderAdoption(asked.command, folder, say)
    if asked.tries_loader:
        or_none(lambda: adopting.explain(session), "samples were not explained: that failed")
    pictures: Mapping[int, FaultPicture] = {}
    if outputs.html is not None:
        pictures = or_none(lambda: adopting.pictures(session.faults), "faults have no pictures: that failed") or {}
    session.faults += session_faults(session)
    or_none(lambda: add_patches(session, files_here()), "faults have no patches: that failed")
    try:
        diagnosis = diagnose(session)
    except Exception:
        write_whole(folder.path / SESSION_FILE, [document(session, None)])  # for another version to show
        raise
    if asked.tries_loader:
        session.loader_trial = or_none(
            lambda: adopting.trial(session, diagnosis), "Headrace's Loader was not tried: that failed"
        )
    prescription = prescribed(session, diagnosis)
    if prescription is not None and not prescription.stop and asked.proves and ended.why == "finished":
        _prove(asked, folder, session, prescription)
        diagnosis = diagnose(session)  # two unchanged runs show the noise of figures
        prescription = prescribed(session, diagnosis)
    return session, diagnosis, prescription, pictures


def _prove(asked: Examination, folder: SessionFolder, session: Session, prescription: Prescription) -> None:
    prover = Prover.of(session, asked.command, folder.settings, say, PROVE_S)
    if prover is None:
        return
    attempts = remedy_attempts(prescription, prover)
    or_none(lambda: prover.prove(attempts), "remedies were not all tried: that failed")
    session.proofs = [one for one in prover.proofs if one.remedies]
    session.controls = [one for one in prover.proofs if not one.remedies]


def session_of(asked: Examination, folder: SessionFolder, ended: CommandResult, machines: list[Machine]) -> Session:
    """Return the session that the run has left in the folder."""
    fates = {"left": "goes on, since it detached itself", "stuck": "goes on, since not even SIGKILL ends it"}
    notes = []
    for process in ended.leftovers:
        fate = fates.get(process.fate, f"was {process.fate}")
        text = f"{shlex.join(process.command)} outlived the command and {fate}"
        notes.append(SessionNote("leftover", text, process.pid))
    return read_session(
        folder.path,
        outcome=ended,
        mode="observe" if asked.observe else "measure",
        machines=machines,
        notes=notes,
    )


def prescribed(session: Session, diagnosis: Diagnosis) -> Prescription | None:
    """Return the remedies, or None after reporting a fault."""
    return or_none(lambda: prescribe(session, diagnosis, files_here()), "no remedies: their computation failed")


def or_none(work: Callable[[], Result], failed: str) -> Result | None:
    """Return the result of `work`, or None after reporting a fault."""
    try:
        return work()
    except Exception:
        say(f"{failed}, which is a fault of the doctor's")
        say(traceback.format_exc())
        return None


def say(*messages: str) -> None:
    with suppress(OSError):  # a full disk, or a closed pipe, must not lose the exit status
        for message in messages:
            sys.stderr.write(f"headrace: {message}\n")
        sys.stderr.flush()


def show_again(path: Path, outputs: Outputs, *, fail_above: float | None) -> int:
    """Render a saved session and return the exit status.

    Raises:
        SessionError: The file is no session.
        UsageError: An output cannot be written.
    """
    outputs.check()
    return _shown(saved_session(path), path, outputs, fail_above)


def show_merged(paths: Sequence[Path], outputs: Outputs, *, fail_above: float | None) -> int:
    """Merge the sessions of one training's nodes, render them as one, and return the exit status.

    Raises:
        SessionError: A file is no session, or they are not of one training.
        UsageError: An output cannot be written.
    """
    outputs.check()
    return _shown(merged([saved_session(path) for path in paths]), None, outputs, fail_above)


def _shown(session: Session, saved: Path | None, outputs: Outputs, fail_above: float | None) -> int:
    try:
        diagnosis = diagnose(session)
        say(*outputs.put(session, diagnosis, prescribed(session, diagnosis), saved=saved))
    except Exception:
        which = "" if saved is None else f"{saved}: "
        say(f"{which}the report failed: the file was changed after it was written, or it is a fault of the doctor's")
        say(traceback.format_exc())
        return DOCTOR_FAILED
    return exit_status(0, wait_share=diagnosis.data_share, fail_above=fail_above)
