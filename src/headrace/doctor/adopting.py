"""Adoption of the Loader in a diagnosis: inspection of the run's samples, and the trial of the result."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headrace.doctor.adoption import Adoption, adopt, described_loader, loader_trial
from headrace.doctor.attach import OUTPUT, run_command
from headrace.doctor.explain.look import Look, read_look
from headrace.doctor.explain.samples import explain_look
from headrace.doctor.faults import (
    FaultPicture,
    fault_pictures,
    faults_between,
    find_faults,
    leaked_split,
    loader_place,
    normalized_by_loop,
    same_draws_of_streams,
)
from headrace.doctor.faults.fault_kinds import Explained
from headrace.doctor.measure import BOUND, Diagnosis, TrainerView, main_view_of
from headrace.doctor.probe.look.value_look import LOOK_FILE, MOST_S, PARTIAL
from headrace.doctor.quantities import about
from headrace.doctor.session import SessionFolder, read_session, session_folder
from headrace.doctor.session.after_run import DataFault, LoaderTrial
from headrace.doctor.session.model import Session, SessionNote
from headrace.doctor.session.trainers import Trainer
from headrace.errors import SessionError

LOOK_S = MOST_S
OTHER_S = 3.0
"""CPU time limit of the explanation of another loader's samples."""
STARTED_AGAIN_S = 60.0
"""Time limit of a second start of the command that only looks at its samples."""
NO_LOOK = "no-look"
"""Code of the note that says why there is no look."""


@dataclass
class LoaderAdoption:
    """One run's Loader: derived once the command has ended, then tried."""

    command: list[str]
    folder: SessionFolder
    announce: Callable[[str], None]
    """Called before anything slow."""
    checks: bool = False
    """True in a check for faults of the data: always with a look, and of further loaders as well."""
    adoption: Adoption | None = field(default=None, init=False)
    look: Look | None = field(default=None, init=False)
    looks: list[tuple[Look, Explained]] = field(default_factory=list, init=False)
    """Looks with their explained leaves, the training's first."""

    @property
    def _look(self) -> Path:
        return self.folder.path / LOOK_FILE

    def explain(self, session: Session) -> None:
        """Explain the inspected samples. A run with data stalls that ended without inspection is restarted for it."""
        view = main_view_of(session)
        if view is None or not (self.checks or view.batch_production) or session.mode != "measure":
            return
        session.notes += _cut_short(self.folder.path, session.notes)
        is_of_run = self._look.exists()
        if not is_of_run and self._is_worth_a_start(session, view):
            self._start_again(session, view)
        if self._look.exists():
            try:
                self.look = read_look(self._look)
            except SessionError as error:
                session.notes.append(SessionNote(NO_LOOK, f"The look at its samples cannot be read: {error}"))
        look = self.look
        loader = described_loader(view)
        self.adoption = adopt(session, view, look, self.folder.path)
        if self.adoption is None or loader is None:
            return
        session.looked_image = self.adoption.recipe.image
        if look is not None:
            session.faults = find_faults(look, self.adoption.explained, loader.facts["described"])
            session.faults += normalized_by_loop(session, self.adoption.explained, view.trainer)
            for fault in session.faults:
                fault.place = loader_place(view.trainer, loader.number)
            session.faults += leaked_split(session, view.trainer, loader.number, look, is_of_run=is_of_run)
            session.faults += same_draws_of_streams(session, look, self.adoption.explained)
            self.looks.append((look, self.adoption.explained))
            self._compare_others(session, view.trainer)

    def _compare_others(self, session: Session, trainer: Trainer) -> None:
        """Find faults between the training's samples and those of further loaders."""
        for path in sorted(self.folder.path.glob(f"{LOOK_FILE}-[0-9]")):
            try:
                other = read_look(path)
            except SessionError:
                continue
            if other.samples:
                self.looks.append((other, explain_look(other, OTHER_S)))
                codes = {(fault.code, fault.place) for fault in session.faults}
                found = faults_between(session, trainer, self.looks[0], self.looks[-1])
                session.faults += [one for one in found if (one.code, one.place) not in codes]

    def pictures(self, faults: Sequence[DataFault]) -> dict[int, FaultPicture]:
        """Return pictures of the faults that `explain` found, by their place."""
        return fault_pictures(faults, self.look, {} if self.adoption is None else self.adoption.explained)

    def _is_worth_a_start(self, session: Session, view: TrainerView) -> bool:
        is_bound = view.wait_share is not None and view.wait_share >= BOUND
        was_tried = any(note.code == NO_LOOK for note in session.notes)
        return (is_bound or self.checks) and not was_tried and session.outcome.why in ("finished", "steps")

    def _start_again(self, session: Session, view: TrainerView) -> None:
        start_s = min((one.start for one in view.trainer.passes), default=0) / 1e6
        self.announce(
            "starting the command again, up to its first batch, to look at its samples, since the run ended before a "
            f"look at them: {about(start_s + LOOK_S)}, at most {STARTED_AGAIN_S:.0f} s"
        )
        with session_folder(look_s=LOOK_S, looks_first=True, shortens=int(self.checks)) as again:
            ended = run_command(
                self.command, again.settings, output=again.path / OUTPUT, reads=False, most_s=STARTED_AGAIN_S
            )
            for path in again.path.glob(f"{LOOK_FILE}*"):
                shutil.move(path, self.folder.path / path.name)
            told = read_session(again.path, outcome=ended, mode="measure").notes
            session.notes += [note for note in told if note.code == NO_LOOK]
            session.notes += _cut_short(self.folder.path, session.notes)

    def trial(self, session: Session, diagnosis: Diagnosis) -> LoaderTrial | None:
        """Try the Loader on the run's files; None if there is none to try."""
        view = main_view_of(session)
        if view is None or not view.batch_production:
            return None
        return loader_trial(session, view, diagnosis.ranks, self.adoption, self._look, self.announce)


def _cut_short(folder: Path, notes: Sequence[SessionNote]) -> list[SessionNote]:
    """Return a note on an unfinished inspection, unless the process has reported one."""
    if not (folder / (LOOK_FILE + PARTIAL)).exists() or any(note.code == NO_LOOK for note in notes):
        return []
    return [SessionNote(NO_LOOK, "The process was ended while the dataset's samples were looked at.")]
