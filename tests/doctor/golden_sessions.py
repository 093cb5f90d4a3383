"""Recorded sessions of the doctor, and what it makes of them: a change of its structure that changes a figure shows.

`golden/sessions/NAME.json.xz` holds the evidence of one run of a script of `cases/`, what was seen of the machine
meanwhile, and the script. `golden/sessions/NAME.json` holds the figures that the doctor derived from it: kinds and
numbers of findings, the step's parts, remedies and their predicted intervals. Wording is not compared, but for the
numbers in it.

With PYTHONPATH=tests:tests/doctor,
python tests/doctor/golden_sessions.py derive [NAME...]      writes the figures again, of the recorded evidence
python tests/doctor/golden_sessions.py record [NAME...]      runs the scripts again: a new recording, with its figures
"""

from __future__ import annotations

import json
import lzma
import math
import os
import platform
import re
import site
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from fault_suite import Case, cases
from observed_runs import CASES, FEW_STEPS, headrace, python
from report_pages import text

from headrace.doctor.causes import Prescription, diagnose, prescribe
from headrace.doctor.edits.script_source import ScriptSources
from headrace.doctor.measure import Diagnosis
from headrace.doctor.report import report_view
from headrace.doctor.report.html_page import html_page
from headrace.doctor.session import read_session
from headrace.doctor.session.model import Session, SessionNote
from headrace.doctor.session.storage import decode_session, encode_session

FOLDER = Path(__file__).parent / "golden" / "sessions"
KEPT, PROJECT, DATA = "/golden/session", "/golden/project", "/golden/data"
"""What stands for the folders of the recording machine."""
FROM_EVIDENCE = ("processes", "trainers", "makers", "remote")
"""What a session holds that is read from its evidence again."""
TEXTS = (
    *("ending", "verdict", "statements"),
    *("text", "evidence", "advice", "title", "why", "hint", "stop", "why_no_windows", "detail", "costs"),
)
"""Fields of a diagnosis and a prescription that are sentences: of them only the numbers are compared."""
EXACT = 1e-9


@dataclass(frozen=True)
class Recording:
    """A case, and how the doctor is asked to look at it."""

    name: str
    command: tuple[str, ...]
    options: tuple[str, ...] = ("--steps", "40")


def _remote(way: str) -> Recording:
    return Recording(f"remote_{way}", tuple(python("remote_photos.py", way)))


def _planted(case: Case) -> Recording:
    options = (
        ("--steps", "30") if case.ranks > 1 else ("--steps", "40", *(["--prove"] * (case.name == "fault_respawn")))
    )
    return Recording(case.name, tuple(case.command()), options)


def _mixture(name: str, case: str, *arguments: object) -> Recording:
    shape = ("--steps", 40, "--truth", f"{DATA}/{name}-truth", *arguments)
    return Recording(name, tuple(python("known_mixtures.py", case, *shape)), ("--observe",))


RECORDED = (
    *("fault_collate", "fault_few_workers", "fault_head_of_line", "fault_many_workers", "fault_padding"),
    *("fault_png_decode", "fault_respawn", "fault_slow_rank", "fault_tar_lookup", "fault_threads", "fault_tokeniser"),
    *("healthy_compute", "two_decode_augmentation"),
)
"""Cases with planted faults."""
RECORDINGS = [
    *(_planted(case) for case in cases() if case.name in RECORDED),
    *map(_remote, ("boto3", "fsspec", "pipe")),
    _mixture("truth_images", "images", "--workers", 2, "--start", "fork"),
    _mixture("truth_stream", "stream", "--workers", 4, "--start", "fork"),
]


def names() -> list[str]:
    """Return the names of the recorded sessions."""
    return sorted(path.name.removesuffix(".json.xz") for path in FOLDER.glob("*.json.xz"))


def derived(name: str, folder: Path) -> tuple[Session, dict[str, Any]]:
    """Read a recording's evidence, unpacked into `folder`, as today's doctor does: the session and its figures."""
    session = session_of(name, folder)
    return session, _figures(session, _unpacked(name)["sources"])


def session_of(name: str, folder: Path) -> Session:
    """Read a recording's evidence, unpacked into `folder`."""
    return _session(_unpacked(name), folder)


def prescribed(name: str, session: Session) -> tuple[Diagnosis, Prescription]:
    """Return the diagnosis and the prescription of a recording's session, by its script."""
    diagnosis = diagnose(session)
    return diagnosis, prescribe(session, diagnosis, sources(name))


def sources(name: str) -> ScriptSources:
    """Return the script of a recording, and the modules beside it."""
    return ScriptSources(_unpacked(name)["sources"].get, PROJECT)


def reports(name: str, session: Session) -> list[str]:
    """Return the reports of a recording's session: verdict, text and HTML page."""
    diagnosis, prescription = prescribed(name, session)
    view = report_view(session, diagnosis, prescription)
    return [diagnosis.verdict.text, text(view), html_page(view)]


def expected(name: str) -> dict[str, Any]:
    """Return the figures that were derived when the session was recorded."""
    figures: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return figures


def read_again(session: Session) -> Session:
    """Return what a reader of the session's file gets."""
    return decode_session(encode_session(session))


def differences(want: Any, got: Any, where: str = "$") -> Iterator[str]:
    """Yield what differs between two documents, with its place. Numbers are equal to within `EXACT`.

    A field that was added since, and says nothing, is no difference.
    """
    if isinstance(want, dict) and isinstance(got, dict):
        for key in sorted({*want, *(key for key, value in got.items() if value not in (None, "", [], {}))}):
            yield from differences(want.get(key, "(absent)"), got.get(key, "(absent)"), f"{where}.{key}")
    elif isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        for at, (one, other) in enumerate(zip(want, got, strict=True)):
            yield from differences(one, other, f"{where}[{at}]")
    elif not _same(want, got):
        yield f"{where}: expected {want}, got {got}"


def _same(want: Any, got: Any) -> bool:
    if isinstance(want, float) or isinstance(got, float):
        are_numbers = isinstance(want, int | float) and isinstance(got, int | float)
        return are_numbers and math.isclose(want, got, rel_tol=EXACT, abs_tol=EXACT)
    return bool(want == got)


def _session(recording: dict[str, Any], folder: Path) -> Session:
    """Read the evidence anew; of what else was seen, take only what is not in it."""
    (folder / "evidence").mkdir(parents=True, exist_ok=True)
    (folder / "settings.json").write_text(recording["settings"])
    for name, lines in recording["evidence"].items():
        (folder / "evidence" / name).write_text(lines)
    beside = decode_session(json.dumps(recording["beside"]).encode())
    kept = {name: getattr(beside, name) for name in ("outcome", "mode", "machines", "notes")}
    session = read_session(folder, **kept)
    session.created, session.headrace = beside.created, beside.headrace
    session.proofs, session.controls = beside.proofs, beside.controls
    return session


def _figures(session: Session, sources: dict[str, str]) -> dict[str, Any]:
    diagnosis = diagnose(session)
    prescription = prescribe(session, diagnosis, ScriptSources(sources.get, PROJECT))
    whole = {"diagnosis": diagnosis, "prescription": prescription}
    figures: dict[str, Any] = {name: _bare(msgspec.to_builtins(part)) for name, part in whole.items()}
    return figures | {"notes": sorted(note.code for note in session.notes)}


def _bare(value: Any, key: str = "") -> Any:
    """Leave wording out: a sentence (not one word, which is a kind) becomes its numbers, a diff its counts of lines."""
    if key in TEXTS and not (isinstance(value, str) and " " not in value):
        return sorted({float(number) for number in re.findall(r"\d+(?:\.\d+)?", str(value))})
    if key in ("diff", "patch"):
        lines = value.splitlines()
        return [sum(line.startswith(mark) for line in lines) for mark in ("+", "-")]
    if isinstance(value, dict):
        return {name: _bare(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [_bare(part) for part in value]
    return value


def _unpacked(name: str) -> dict[str, Any]:
    recording: dict[str, Any] = json.loads(lzma.decompress((FOLDER / f"{name}.json.xz").read_bytes()))
    return recording


def _record(recording: Recording, scratch: Path) -> None:
    kept, data = scratch / recording.name, scratch / "data"
    for folder in (kept, data):
        folder.mkdir(exist_ok=True)
    ran = headrace(
        *("doctor", "--json", str(kept / "session.json"), *recording.options, "--"),
        *(argument.replace(DATA, str(data)) for argument in recording.command),
        environment={"PLANTED_DATA": str(data)},
        replay_steps=FEW_STEPS,
        kept=kept,
    )
    assert (kept / "session.json").exists(), f"{recording.name}: {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    stands_for = _stands_for(kept, data)
    session = json.loads(_anywhere((kept / "session.json").read_text(), stands_for))
    content = {
        "settings": _anywhere((kept / "settings.json").read_text(), stands_for),
        "evidence": {
            path.name.removeprefix(f"{platform.node()}-"): _anywhere(path.read_text(), stands_for)
            for path in sorted((kept / "evidence").glob("*.jsonl"))
        },
        "beside": {
            name: value
            for name, value in session.items()
            if name not in (*FROM_EVIDENCE, "notes", "diagnosis", "prescription")
        },
        "sources": {f"{PROJECT}/{path.name}": path.read_text() for path in _scripts(recording)},
    }
    with tempfile.TemporaryDirectory() as folder:
        of_evidence = [_fields(note) for note in _session(content, Path(folder)).notes]
    content["beside"]["notes"] = [note for note in session["notes"] if note not in of_evidence]
    FOLDER.mkdir(parents=True, exist_ok=True)
    packed = lzma.compress(json.dumps(content, separators=(",", ":")).encode(), preset=9)
    (FOLDER / f"{recording.name}.json.xz").write_bytes(packed)


def _scripts(recording: Recording) -> list[Path]:
    """The case, and the modules beside it that it imports."""
    case = next(Path(argument) for argument in recording.command if argument.startswith(str(CASES)))
    imported = re.findall(r"^(?:from|import) (\w+)", case.read_text(), re.MULTILINE)
    return [case, *(path for name in imported if (path := CASES / f"{name}.py").exists())]


def _stands_for(kept: Path, data: Path) -> list[tuple[str, str]]:
    """Paths and names of this machine, the longest first, and what is written in place of them."""
    found = {
        str(kept): KEPT,
        str(data): DATA,
        str(CASES): PROJECT,
        str(CASES.parents[2]): "/golden/headrace",
        sys.prefix: "/golden/python",
        sys.base_prefix: "/golden/python",
        os.path.expanduser("~"): "/golden/home",
        tempfile.gettempdir(): "/golden/tmp",
        platform.node(): "host",
        platform.release(): "6.1.0",
        **dict.fromkeys(site.getsitepackages(), "/golden/packages"),
        **{path: "/golden/packages" for path in sys.path if path.endswith("site-packages")},
    }
    return sorted(found.items(), key=lambda pair: -len(pair[0]))


def _anywhere(text: str, stands_for: list[tuple[str, str]]) -> str:
    for path, name in stands_for:
        if len(path) > 1:
            text = re.sub(rf"(?<!\w){re.escape(path)}(?![\w-])", name, text)
    return text


def _fields(note: SessionNote) -> Any:
    return msgspec.to_builtins(note)


def _derive(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _, figures = derived(name, Path(folder))
    text = json.dumps(figures, indent=1, sort_keys=True)
    (FOLDER / f"{name}.json").write_text(re.sub(r"\[[^\[\]{}]*\]", _on_one_line, text) + "\n")


def _on_one_line(found: re.Match[str]) -> str:
    return re.sub(r"\s+", " ", found[0])


def main() -> None:
    verb, *wanted = sys.argv[1:] or ["derive"]
    if verb == "record":
        with tempfile.TemporaryDirectory() as scratch:
            for recording in RECORDINGS:
                if not wanted or recording.name in wanted:
                    _record(recording, Path(scratch))
                    _derive(recording.name)
                    print(recording.name, flush=True)
    elif verb == "derive":
        for name in wanted or names():
            _derive(name)
    else:
        sys.exit(f"expected derive or record, got {verb!r}")


if __name__ == "__main__":
    main()
