"""Output files and printed reports of a diagnosis."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import msgspec
from rich.console import Console

from headrace.doctor.adoption import files_beside
from headrace.doctor.causes import Prescription, is_unsure
from headrace.doctor.faults import FaultPicture
from headrace.doctor.measure import Diagnosis
from headrace.doctor.quantities import counted
from headrace.doctor.report.html_page import html_page
from headrace.doctor.report.remedy_text import first_screen
from headrace.doctor.report.terminal import TEXT_WIDTH, show
from headrace.doctor.report.terminal_layout import safe_json
from headrace.doctor.report.view import report_view
from headrace.doctor.session import encode_session
from headrace.doctor.session.model import Session
from headrace.errors import UsageError


def can_be_written(path: Path) -> bool:
    """Return True if `write_whole` can be expected to succeed, as a check before a run."""
    if path.exists() and not path.is_file():
        return not path.is_dir() and os.access(path, os.W_OK)
    folder = path.resolve().parent
    return folder.is_dir() and os.access(folder, os.W_OK)


def write_whole(path: Path, pieces: Iterable[str]) -> None:
    """Write the file by renaming a temporary one; a pipe or device directly. Raises OSError that names `path`."""
    try:
        if path.exists() and not path.is_file():
            _write(path, pieces)
            return
        target = path.resolve()  # keep symbolic links
        half = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            _write(half, pieces)
            os.replace(half, target)
        finally:
            half.unlink(missing_ok=True)
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def _write(path: Path, pieces: Iterable[str]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(pieces)


def document(session: Session, diagnosis: Diagnosis | None, prescription: Prescription | None = None) -> str:
    """Return the JSON report: the session, which can be shown again, and its results for other programs.

    Readers recompute `diagnosis`, `prescription` and `first_screen` rather than read them. The first two are null if
    the analysis failed.
    """
    parts: dict[str, object] = {"diagnosis": diagnosis, "prescription": prescription}
    if diagnosis is not None:
        parts["first_screen"] = first_screen(diagnosis, prescription)
    beside = [b'"%s":%s' % (name.encode(), msgspec.json.encode(part)) for name, part in parts.items()]
    whole = b",".join([encode_session(session)[:-1], *beside]) + b"}\n"
    return safe_json(whole.decode())


STANDARD_OUTPUT = "-"


@dataclass(frozen=True)
class Outputs:
    """Requested outputs. If one output cannot be written, an error names it and the others are still written."""

    html: Path | None = None
    json: str | None = None
    """Path of the session file. With `-`, JSON goes to standard output and everything else to standard error."""
    apply: Path | None = None
    """File for a diff of all remedies' changes to the user's files."""
    draft: Path | None = None
    """New file for the module with Headrace's Loader."""
    verbose: bool = False

    @property
    def json_to_standard_output(self) -> bool:
        return self.json == STANDARD_OUTPUT

    def console(self) -> Console:
        """Return the report's console. Without a terminal, its width is `TEXT_WIDTH`."""
        console = UnreadConsole(stderr=self.json_to_standard_output)
        if not console.is_terminal and "COLUMNS" not in os.environ:
            console.width = TEXT_WIDTH
        return console

    def check(self) -> None:
        """Raise UsageError if a file cannot be written, before a run that may take hours."""
        files = {"--html": self.html, "--json": self._json_path, "--apply": self.apply, "--draft": self.draft}
        if self.draft is not None and os.path.lexists(self.draft):
            raise UsageError(f"--draft: expected a new file, got {self.draft}, which exists; name another or remove it")
        for option, path in files.items():
            if path is not None and not can_be_written(path):
                raise UsageError(f"{option}: expected a file in a folder that can be written, got {path}")

    @contextmanager
    def standard_output_aside(self) -> Iterator[None]:
        """Redirect the command's standard output to standard error if JSON goes to standard output."""
        if not self.json_to_standard_output:
            yield
            return
        sys.stdout.flush()
        ours = os.dup(1)
        os.dup2(2, 1)
        try:
            yield
        finally:
            os.dup2(ours, 1)
            os.close(ours)

    def put(
        self,
        session: Session,
        diagnosis: Diagnosis,
        prescription: Prescription | None,
        *,
        saved: Path | None = None,
        pictures: Mapping[int, FaultPicture] = MappingProxyType({}),
    ) -> list[str]:
        """Write everything to files and return the failures. `saved` is an existing session file."""
        failed = _written("--json", self._json_path, lambda: [document(session, diagnosis, prescription)])
        source = saved if failed else self._json_path or saved
        again = "run it with --json session.json, then: headrace doctor show session.json"
        if source is not None:
            again = f"headrace doctor show {shlex.quote(str(source))}"
        failed += _applied(self.apply, session, prescription)
        failed += _drafted(self.draft, session)
        view = report_view(session, diagnosis, prescription, again=again)
        if self.html is not None:
            failed += _written("--html", self.html, lambda: [html_page(view, pictures)])
        console, descriptor = self.console(), 2 if self.json_to_standard_output else 1
        failed += _printed("the report", descriptor, lambda: show(view, console, verbose=self.verbose))
        if self.json_to_standard_output:
            failed += _printed("--json -", 1, lambda: _print_json(document(session, diagnosis, prescription)))
        return failed

    @property
    def _json_path(self) -> Path | None:
        return None if self.json is None or self.json_to_standard_output else Path(self.json)


def _written(option: str, path: Path | None, pieces: Callable[[], Iterable[str]]) -> list[str]:
    """Write one file and return error messages."""
    if path is None:
        return []
    try:
        write_whole(path, pieces())
    except OSError as error:
        return [f"{option}: expected a file to write, got {path} ({error.strerror or error})"]
    return []


def _applied(path: Path | None, session: Session, prescription: Prescription | None) -> list[str]:
    """Write the patch, empty without changes, and return messages. Patches of faults take precedence."""
    mends = list(dict.fromkeys(one.patch for one in session.faults if one.patch))
    if path is not None and mends:
        if failed := _written("--apply", path, lambda: mends):
            return failed
        command = f"patch -p1 -i {shlex.quote(str(path.resolve()))}"
        print(f"headrace: --apply: {path} mends the data, and applies by `{command}` here", file=sys.stderr)
        return []
    patch = "" if prescription is None else prescription.patch
    failed = _written("--apply", path, lambda: [patch])
    if path is None or failed:
        return failed
    if prescription is not None and patch:
        command = f"patch -p1 -d {shlex.quote(prescription.patch_root)} -i {shlex.quote(str(path.resolve()))}"
        print(f"headrace: --apply: {path} applies by `{command}`{_left_out(prescription)}", file=sys.stderr)
        return []
    return [f"--apply: {path} is empty: {_why_empty(prescription)}{_left_out(prescription)}"]


def _why_empty(prescription: Prescription | None) -> str:
    """Return why a prescription changes no source file."""
    if prescription is None:
        return "the run was too short, or its remedies could not be computed"
    if prescription.stop:
        return prescription.stop
    helping = [one.title for one in prescription.remedies if one.helps and one.code not in prescription.left_out]
    if not helping:
        return "no remedy helps this run"
    return f"no change of a source file can be made with certainty; the report has hints for: {'; '.join(helping)}"


def _drafted(path: Path | None, session: Session) -> list[str]:
    """Write the tried module to a new file and return messages to print."""
    if path is None:
        return []
    trial = session.loader_trial
    if trial is None or not trial.module:
        reason = "" if trial is None else trial.reason or trial.detail
        why = reason or "what the script's dataset does is not known"
        return [f"--draft: no Loader can be written, so there is no {path}: {why}"]
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(files_beside(trial.module, trial.files, path))
    except UsageError as error:
        path.unlink()
        return [f"--draft: {error}"]
    except OSError as error:
        return [f"--draft: expected a new file to write, got {path} ({error.strerror or error})"]
    checks = sum(map(is_unsure, trial.parts))
    marked = f"{counted(checks, 'part')} to check, marked by comments" if checks else "no part to check"
    print(f"headrace: --draft: {path} has {marked}; `headrace equal SCRIPT {path}` compares samples", file=sys.stderr)
    return []


def _left_out(prescription: Prescription | None) -> str:
    left_out = [] if prescription is None else prescription.left_out
    titles = [one.title for one in (prescription.remedies if prescription is not None else []) if one.code in left_out]
    return f"; left out, since a proof refuted it: {'; '.join(titles)}" if titles else ""


def _printed(what: str, descriptor: int, put: Callable[[], None]) -> list[str]:
    """Print and return error messages. A reader that has closed the pipe, such as `head`, is no failure."""
    try:
        put()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)  # prevents an error from Python's flush at exit
        os.close(nowhere)
    except OSError as error:
        return [f"{what} could not be printed ({error.strerror or error})"]
    return []


def _print_json(text: str) -> None:
    """Print JSON in UTF-8, independent of the locale."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


class UnreadConsole(Console):
    """Console that raises if its reader is gone, whereas rich's own Console exits the program."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError
