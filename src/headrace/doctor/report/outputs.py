"""Where a diagnosis goes: the terminal, a text file, a session file, a trace."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from headrace.doctor.analyse.diagnosis import Diagnosis
from headrace.doctor.session.model import Session

from .document import document
from .files import write_whole
from .terminal import show, text
from .trace import trace

STANDARD_OUTPUT = "-"


@dataclass(frozen=True)
class Outputs:
    """What was asked for. One that cannot be written is named and leaves the others be."""

    report: Path | None = None
    json: str | None = None
    """`-` for standard output: then everything else goes to standard error."""
    trace: Path | None = None
    verbose: bool = False

    @property
    def json_to_standard_output(self) -> bool:
        return self.json == STANDARD_OUTPUT

    def console(self) -> Console:
        return Console(stderr=self.json_to_standard_output)

    def put(self, session: Session, diagnosis: Diagnosis, *, saved: Path | None) -> list[str]:
        """Writes everything; says what failed. `saved` is a session file that is there already."""
        json = None if self.json in (None, STANDARD_OUTPUT) else Path(str(self.json))
        failed: list[str] = []
        for option, path, pieces in (
            ("--json", json, lambda: [document(session, diagnosis)]),
            ("--trace", self.trace, lambda: trace(session, diagnosis)),
        ):
            failed += _written(option, path, pieces)
        again = _again(json if json is not None and not failed else saved)
        failed += _written("--report", self.report, lambda: [text(session, diagnosis, again=again)])
        show(session, diagnosis, self.console(), verbose=self.verbose, again=again)
        if self.json_to_standard_output:
            sys.stdout.write(document(session, diagnosis))
            sys.stdout.flush()
        return failed


def _written(option: str, path: Path | None, pieces: Callable[[], Iterable[str]]) -> Iterator[str]:
    """Nothing where all went well."""
    if path is None:
        return
    try:
        write_whole(path, pieces())
    except OSError as error:
        yield f"{option}: expected a file to write, got {path} ({error.strerror or error})"


def _again(saved: Path | None) -> str:
    if saved is None:
        return "run it with --json session.json, then: headrace doctor show session.json"
    return f"headrace doctor show {shlex.quote(str(saved))}"
