"""`headrace check`: runs of a command for faults of its data, and what they could and could not see."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import groupby

from headrace.doctor.adopting import LOOK_S, NO_LOOK, LoaderAdoption
from headrace.doctor.attach import DOCTOR_FAILED, FAULTY_DATA
from headrace.doctor.causes import diagnose
from headrace.doctor.edits import files_here
from headrace.doctor.faults import KeyedPass, add_patches, keyed_passes, resumption, session_faults
from headrace.doctor.faults.fault_kinds import leaf_name, leaf_role
from headrace.doctor.faults.key_faults import rows_of
from headrace.doctor.quantities import counted
from headrace.doctor.report import Outputs
from headrace.doctor.run import STANDSTILL_S, Examination, evidence_kept, or_none, run_sampled, say, session_of
from headrace.doctor.session import SessionFolder, session_folder
from headrace.doctor.session.after_run import DataCheck, DataFault
from headrace.doctor.session.model import Session

WHOLE_STEPS = 5
"""Measured steps of a run whose passes cannot be cut."""
MOST_STEPS = 1_000_000


def check(command: list[str], outputs: Outputs, *, batches: int, seconds: float) -> int:
    """Run the command for two short passes and an evaluation, write the report, and return the exit status.

    Each pass makes `batches` batches, or as many as its workers have made by then. The status is 101 for a certain
    fault, 125 if no pass over a DataLoader was seen, and otherwise the command's own.

    Raises:
        UsageError: An output cannot be written; the command is not started.
    """
    outputs.check()
    asked = Examination(command)
    settings = {"check_s": seconds, "look_s": LOOK_S, "standstill_s": STANDSTILL_S}
    with session_folder(steps=MOST_STEPS, shortens=batches, **settings) as folder:
        ended, machines = run_sampled(asked, folder, outputs)
        session = session_of(asked, folder, ended, machines)
        if ended.why == "failed" and any(one.keys for one in session.trainers):
            say(f"the command failed with status {ended.status} after a short pass: it runs again with whole passes")
            folder.begin_again(shortens=0, steps=WHOLE_STEPS)
            ended, machines = run_sampled(asked, folder, outputs)
            session = session_of(asked, folder, ended, machines)
        status = 0 if session.outcome.why == "steps" else ended.status
        with evidence_kept(folder):
            _find(session, folder, command, outputs)
            if not status:
                status = DOCTOR_FAILED if not any(one.passes for one in session.trainers) else _fault_status(session)
    return status


def check_resume(command: list[str], again: list[str], outputs: Outputs) -> int:
    """Run a command, then the command that resumes it, and report whether samples are repeated or lost.

    Returns the first command's exit status if it failed, and otherwise as `check`. Raises UsageError as it does.
    """
    outputs.check()
    asked = Examination(command, observe=True)
    with session_folder(observe=True, orders=True) as folder:
        ended, machines = run_sampled(asked, folder, outputs)
        earlier = session_of(asked, folder, ended, machines)
    if ended.status:
        say(f"the first command ended with status {ended.status}: its resume is not checked")
        return ended.status
    asked = Examination(again, observe=True)
    with session_folder(observe=True, orders=True, standstill_s=STANDSTILL_S) as folder:
        ended, machines = run_sampled(asked, folder, outputs)
        status = ended.status
        with evidence_kept(folder):
            session = session_of(asked, folder, ended, machines)
            compared = resumption(earlier, session)
            session.faults = [] if compared.fault is None else [compared.fault]
            looked = (
                f"The batches of `{shlex.join(command)}` and of `{shlex.join(again)}`, by the keys of their samples."
            )
            told = [compared.text] if compared.text else []
            session.check = DataCheck([looked, *told], []) if compared.is_compared else DataCheck([looked], told)
            say(*outputs.put(session, diagnose(session), None))
            status = status or _fault_status(session)
    return status


def _fault_status(session: Session) -> int:
    return FAULTY_DATA if any(one.certainty == "certain" for one in session.faults) else 0


def _find(session: Session, folder: SessionFolder, command: list[str], outputs: Outputs) -> None:
    """Find the faults of a run that has ended, and write the report."""
    adopting = LoaderAdoption(command, folder, say, checks=True)
    or_none(lambda: adopting.explain(session), "samples were not explained: that failed")
    pictures = {}
    if outputs.html is not None:
        pictures = or_none(lambda: adopting.pictures(session.faults), "faults have no pictures: that failed") or {}
    found: dict[tuple[str, ...], DataFault] = {}
    for one in [*session.faults, *session_faults(session)]:
        found.setdefault((one.code, one.place, *one.leaves), one)
    session.faults = list(found.values())
    or_none(lambda: add_patches(session, files_here()), "faults have no patches: that failed")
    session.check = DataCheck(
        [*_passes(session), *_samples(adopting)],
        [*_unseen_passes(session), *_unseen_leaves(adopting), *_notes(session)],
    )
    say(*outputs.put(session, diagnose(session), None, pictures=pictures))


def _passes(session: Session) -> Iterator[str]:
    """Yield the passes of each loader of the first rank, and how many ranks and workers took part."""
    first = session.trainers[:1]
    passes = [one for one in keyed_passes(session) if one.trainer in first]
    for (place, feeds), some in groupby(sorted(passes, key=_role), key=_role):
        its = list(some)
        what = "training" if feeds else "evaluation"
        rows = (rows_of(one.trainer, one.pass_.number) for one in its)
        counts = [
            one.keys.count or max(map(len, leaves.values()), default=0) for one, leaves in zip(its, rows, strict=True)
        ]
        unit = "keys" if its[0].keys.count else "rows of a stream"
        yield f"{counted(len(its), 'pass')} of {what} at {place}: {', '.join(f'{each:,}' for each in counts)} {unit}"
    if not passes and first:
        yield f"{counted(len(first[0].passes), 'pass')}, {counted(len(first[0].steps.number), 'step')}"
    loaders = first[0].loaders if first else []
    workers = max((one.facts.get("num_workers") or 0 for one in loaders), default=0)
    ranks = len({one.rank for one in session.trainers})
    if first:
        yield f"{counted(ranks, 'rank')} with {counted(workers, 'worker') if workers else 'no workers'}"


def _role(one: KeyedPass) -> tuple[str, int]:
    return one.place, one.keys.feeds


def _samples(adopting: LoaderAdoption) -> Iterator[str]:
    for look, explained in adopting.looks:
        indices = {each.index for each in look.samples}
        leaves = [f"{leaf_name(path)}{leaf_role(one)}" for path, one in explained.items() if one.by is not None]
        compared = f"; compared with their files and columns: {', '.join(leaves)}" if leaves else ""
        yield f"{counted(len(indices), 'sample')} of {look.dataset}, each made again by other random numbers{compared}"


def _unseen_passes(session: Session) -> Iterator[str]:
    passes = keyed_passes(session)
    trained = [one for one in passes if one.keys.feeds]
    if passes and len([one for one in trained if one.trainer is trained[0].trainer]) < 2:
        yield "Orders of two epochs: one pass of training was seen"
    if passes and all(one.keys.feeds for one in passes):
        yield "Evaluations: none was seen"
    for one in passes:
        if not one.keys.is_whole:
            yield f"The rest of pass {one.pass_.number} at {one.place}: it was followed for a limited time"
    if not passes:
        yield "Whole passes: no pass of the training thread over torch's DataLoader ended"


def _unseen_leaves(adopting: LoaderAdoption) -> Iterator[str]:
    for look, explained in adopting.looks:
        left = [leaf_name(path) for path, one in explained.items() if one.by is None]
        if left:
            yield f"{', '.join(left)} of {look.dataset}: no file or column explains it"
        for error in look.errors[:1]:
            yield f"Some samples of {look.dataset}: {error}"
    if not adopting.looks:
        yield "Values of samples: none was looked at"


def _notes(session: Session) -> Iterator[str]:
    for note in session.notes:
        if note.code in (NO_LOOK, "thread", "hook-off"):
            yield note.text
