"""Whole runs under `headrace doctor`, as a user starts them, and what came of each."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from processes import source_paths

from headrace.doctor.analyse import diagnose
from headrace.doctor.analyse.diagnosis import Diagnosis
from headrace.doctor.session.document import decode
from headrace.doctor.session.model import Session

CASES = Path(__file__).parent / "cases"
DEADLINE_S = 280
_HEADRACE = [sys.executable, "-c", "import sys; from headrace.cli import main; sys.argv[0] = 'headrace'; main()"]


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
    """A run that has ended, and the folder of its session, evidence and all."""

    observed: Observed
    folder: Path


def python(script: str, *arguments: object) -> list[str]:
    """The command that runs one of the cases."""
    return [sys.executable, str(CASES / script), *map(str, arguments)]


def torchrun(ranks: int, script: str, *arguments: object) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return [*launcher, str(CASES / script), *map(str, arguments)]


def observe(command: list[str], folder: Path, *options: str, environment: dict[str, str] | None = None) -> Observed:
    """Runs `command` to its end under `headrace doctor --observe`."""
    document = folder / "session.json"
    ran = headrace("doctor", "--observe", "--json", str(document), *options, "--", *command, environment=environment)
    assert document.exists(), f"no session was written; exit status {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    session = decode(document.read_bytes())
    return Observed(ran.returncode, ran.stdout, ran.stderr, session, diagnose(session))


def headrace(
    *arguments: str,
    environment: dict[str, str] | None = None,
    folder: Path | None = None,
    deadline_s: float = DEADLINE_S,
) -> subprocess.CompletedProcess[str]:
    """Runs `headrace ARGUMENTS` to its end, in that folder."""
    paths = os.pathsep.join(filter(None, source_paths()))
    own = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "COLUMNS": "120", "TERM": "dumb"}
    return subprocess.run(
        [*_HEADRACE, *arguments],
        cwd=folder,
        env={**os.environ, **own, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=deadline_s,
    )
