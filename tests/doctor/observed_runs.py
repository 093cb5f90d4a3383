"""Whole runs under `headrace doctor`, as a user starts them, and what came of each."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import rank_launcher
from processes import source_paths

from headrace.doctor.causes import diagnose
from headrace.doctor.measure.diagnosis import Diagnosis
from headrace.doctor.session.model import Session
from headrace.doctor.session.storage import decode_session

CASES = Path(__file__).parent / "cases"
DEADLINE_S = 280
FEW_STEPS = 12
"""For the windows of a run that is not about how precise their figures are."""
_HEADRACE = "import sys; from headrace.tools.command_line import main; sys.argv[0] = 'headrace'; main()"
_OTHER_WINDOWS = "from headrace.doctor import run; run.REPLAY_STEPS = {}; "
_OTHER_STANDSTILL = "from headrace.doctor import run; run.STANDSTILL_S = {}; "
_NO_TRIAL = (
    "from dataclasses import replace; from headrace.doctor import run; examine = run.examine; "
    "run.examine = lambda asked, outputs: examine(replace(asked, tries_loader=False), outputs); "
)
_KEPT = """
import contextlib, shutil
from headrace.doctor import run
temporary = run.session_folder
@contextlib.contextmanager
def session_folder(**given):
    with temporary(**given) as folder:
        yield folder
        shutil.copytree(folder.path, {!r}, dirs_exist_ok=True)
run.session_folder = session_folder
"""
_SHORT_TRIAL = (
    "from dataclasses import replace; from headrace.doctor.adoption import trial; whole = trial.tried_loader; "
    "trial.tried_loader = lambda request: whole(replace(request, alone_s=0.3, alongside_s=0.5)); "
)


@dataclass(frozen=True)
class Observed:
    """A run that has ended."""

    status: int
    out: str
    error: str
    session: Session
    diagnosis: Diagnosis

    @property
    def codes(self) -> set[str]:
        """Of its notes."""
        return {note.code for note in self.session.notes}


@dataclass(frozen=True)
class KeptRun:
    """A run that has ended, and the folder with what is left of it."""

    observed: Observed
    folder: Path


def python(script: str, *arguments: object) -> list[str]:
    """The command that runs one of the cases."""
    return [sys.executable, str(CASES / script), *map(str, arguments)]


def on_two_ranks(script: str, *arguments: object) -> list[str]:
    """The command that runs one of the cases on two ranks, in less time than torchrun."""
    return [sys.executable, rank_launcher.__file__, str(CASES / script), *map(str, arguments)]


def torchrun(ranks: int, script: str, *arguments: object) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return [*launcher, str(CASES / script), *map(str, arguments)]


def observe(
    command: list[str], folder: Path, *options: str, environment: dict[str, str] | None = None, is_kept: bool = False
) -> Observed:
    """Runs `command` to its end under `headrace doctor --observe`; its evidence stays in `folder` if `is_kept`."""
    document = folder / "session.json"
    call = ("doctor", "--observe", "--json", str(document), *options, "--", *command)
    ran = headrace(*call, environment=environment, kept=folder if is_kept else None)
    assert document.exists(), f"no session was written; exit status {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    session = decode_session(document.read_bytes())
    return Observed(ran.returncode, ran.stdout, ran.stderr, session, diagnose(session))


def measured(
    command: list[str],
    folder: Path,
    *options: str,
    replay_steps: int | None = FEW_STEPS,
    standstill_s: float | None = None,
) -> Observed:
    """Runs `command` under `headrace doctor` until the doctor ends it. None: windows as long as a user's."""
    document = folder / "session.json"
    paths = ":".join([*filter(None, source_paths()), str(CASES.parent), str(CASES)])
    call, paths_only = ("doctor", "--json", str(document), *options, "--", *command), {"PYTHONPATH": paths}
    ran = headrace(*call, environment=paths_only, replay_steps=replay_steps, standstill_s=standstill_s)
    assert document.exists(), f"no session was written; exit status {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    session = decode_session(document.read_bytes())
    return Observed(ran.returncode, ran.stdout, ran.stderr, session, diagnose(session))


def headrace(
    *arguments: str,
    environment: dict[str, str] | None = None,
    folder: Path | None = None,
    deadline_s: float = DEADLINE_S,
    replay_steps: int | None = None,
    tries_loader: bool = False,
    kept: Path | None = None,
    standstill_s: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs `headrace ARGUMENTS` to its end, in that folder, or in an empty one: whoever measures has it alone. Its
    windows have `replay_steps` where that is given, and else as many as a user's. It tries no Loader
    unless `tries_loader` says so, and with few steps not for long. `kept` receives its settings and evidence."""
    if folder is None:
        with tempfile.TemporaryDirectory() as empty:
            return headrace(
                *arguments,
                environment=environment,
                folder=Path(empty),
                deadline_s=deadline_s,
                replay_steps=replay_steps,
                tries_loader=tries_loader,
                kept=kept,
                standstill_s=standstill_s,
            )
    program = "" if kept is None else _KEPT.format(str(kept))
    program += "" if replay_steps is None else _OTHER_WINDOWS.format(replay_steps) + _SHORT_TRIAL
    program += "" if standstill_s is None else _OTHER_STANDSTILL.format(standstill_s)
    program += ("" if tries_loader else _NO_TRIAL) + _HEADRACE
    paths = os.pathsep.join(filter(None, source_paths()))
    own = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "COLUMNS": "120", "TERM": "dumb"}
    environment = {**os.environ, **own, **(environment or {})}
    ran = {"env": environment, "capture_output": True, "text": True, "timeout": deadline_s}
    return subprocess.run([sys.executable, "-c", program, *arguments], cwd=folder, **ran)
