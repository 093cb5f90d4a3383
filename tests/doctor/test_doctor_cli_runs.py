"""`headrace doctor -- …` with commands that end, fail, are not there, or whose report cannot be made."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from processes import run_python

from headrace.doctor.attach.command import DOCTOR_FAILED
from headrace.doctor.probe.settings import ProbeSettings
from headrace.doctor.report.outputs import Outputs
from headrace.doctor.run import Examination, examine
from headrace.doctor.session.storage import decode_session
from headrace.errors import UsageError

Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders go, so that a test sees what is left there."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")  # whoever measures in a folder has it alone
    return folder


def python(source: str) -> list[str]:
    return [sys.executable, "-c", source]


@pytest.mark.parametrize("status", [0, 3, 255])
def test_the_status_is_the_commands_own(status: int, capfd: Out, temporary: Path) -> None:
    assert examine(Examination(python(f"import sys; print('hello'); sys.exit({status})")), Outputs()) == status
    out = capfd.readouterr().out
    assert out.startswith("hello\n")
    assert list(temporary.iterdir()) == []


def test_a_command_that_is_not_there(capfd: Out, temporary: Path) -> None:
    assert examine(Examination(["no-such-program-here"]), Outputs()) == 127
    assert "no-such-program-here" in capfd.readouterr().out.splitlines()[0]
    assert list(temporary.iterdir()) == []


def test_json_on_standard_output_stands_alone(capfd: Out) -> None:
    examine(Examination(python("print('from the command')")), Outputs(json="-"))
    captured = capfd.readouterr()
    assert json.loads(captured.out)["outcome"]["status"] == 0
    assert "from the command" in captured.err
    assert "Again: " in captured.err


def test_without_a_wait_there_is_nothing_to_judge() -> None:
    assert examine(Examination(python("pass"), fail_above=0.05), Outputs()) == DOCTOR_FAILED


@pytest.mark.parametrize("option", ["html", "json"])
def test_a_file_that_cannot_be_written_is_refused_before_the_command_runs(option: str, tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    where = tmp_path / "nowhere" / "x"
    outputs = Outputs(**{option: str(where) if option == "json" else where})
    with pytest.raises(UsageError, match=f"--{option}: expected a file in a folder that can be written, got {where}"):
        examine(Examination(python(f"open({str(witness)!r}, 'w')")), outputs)
    assert not witness.exists()


def test_without_room_nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    witness = tmp_path / "ran"
    command = python(f"open({str(witness)!r}, 'w')")

    def full(self: ProbeSettings) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("tempfile.tempdir", str(tmp_path / "none"))
        with pytest.raises(UsageError, match=r"expected a folder for the evidence, got none \(No such file .*TMPDIR"):
            examine(Examination(command), Outputs())
    monkeypatch.setattr(ProbeSettings, "write", full)
    with pytest.raises(UsageError, match=r"got .* \(No space left on device\); make room there, or set TMPDIR"):
        examine(Examination(command), Outputs())
    assert not witness.exists()
    assert list(temporary.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, which takes nothing")
def test_a_full_disk_is_named_and_leaves_the_rest_be(capfd: Out) -> None:
    full = Path("/dev/full")
    assert examine(Examination(python("raise SystemExit(4)")), Outputs(html=full, json=str(full))) == 4
    captured = capfd.readouterr()
    for option in ("--html", "--json"):
        said = f"headrace: {option}: expected a file to write, got /dev/full (No space left on device)"
        assert said in captured.err
    assert "exit status 4" in captured.out


def test_no_half_of_a_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Out) -> None:
    def half(path: Path, _: object) -> None:
        path.write_text("x" * 100_000)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headrace.doctor.report.outputs._write", half)
    kept = tmp_path / "report.html"
    kept.write_text("older")
    examine(Examination(python("pass")), Outputs(html=kept))
    assert kept.read_text() == "older"
    assert [path.name for path in tmp_path.iterdir() if "report" in path.name] == ["report.html"]
    assert "--html: " in capfd.readouterr().err


@pytest.mark.parametrize("part", ["read_session", "diagnose"])
def test_evidence_outlives_reports(part: str, monkeypatch: pytest.MonkeyPatch, capfd: Out, temporary: Path) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(f"headrace.doctor.run.{part}", fail)
    assert examine(Examination(python("raise SystemExit(5)")), Outputs()) == 5
    error = capfd.readouterr().err
    (kept,) = temporary.iterdir()
    assert str(kept) in error
    assert "RuntimeError: ours" in error
    assert (kept / "session.json").exists() == (part == "diagnose")
    assert examine(Examination(python("pass"), fail_above=0.05), Outputs()) == DOCTOR_FAILED


def test_ctrl_c_in_the_report_leaves_the_evidence(monkeypatch: pytest.MonkeyPatch, capfd: Out, temporary: Path) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headrace.doctor.report.outputs.show", interrupted)
    assert examine(Examination(python("raise SystemExit(6)")), Outputs()) == 6
    (kept,) = temporary.iterdir()
    assert capfd.readouterr().err.endswith(f" {kept}\n")


@pytest.mark.parametrize("descriptors", ["1", "12", "2"])
@pytest.mark.one_in(4)
@pytest.mark.long
def test_a_reader_that_goes_away_is_no_failure(descriptors: str, tmp_path: Path) -> None:
    """As `head` does; and where nobody reads what goes wrong either, the status still comes through."""
    source = """
        import os, sys
        from headrace.doctor.report.outputs import Outputs
        from headrace.doctor.run import Examination, examine
        read, write = os.pipe()
        os.close(read)
        for descriptor in sys.argv[2]:
            os.dup2(write, int(descriptor))
        status = examine(Examination([sys.executable, "-c", "raise SystemExit(4)"]), Outputs(json=sys.argv[1]))
        sys.exit(status)
    """
    status, _, error = run_python(source, tmp_path / "s.json", descriptors)
    said = [line for line in error.splitlines() if "after the script's start" not in line]
    assert (status, said) == (4, [])
    assert json.loads((tmp_path / "s.json").read_text())["outcome"]["status"] == 4


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    examine(Examination(python("pass")), Outputs(html=tmp_path / "link"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text()


def test_hostile_arguments_reach_the_command_and_come_back_harmless(tmp_path: Path, capfd: Out) -> None:
    evil = ["a\nb", "\x1b[2J", "[red]x", "\udcff", "\u202egnp", ""]
    source = f"import os, sys; open({str(tmp_path / 'got')!r}, 'wb').write(b'|'.join(map(os.fsencode, sys.argv[1:])))"
    examine(Examination([*python(source), *evil]), Outputs(json=str(tmp_path / "s.json")))
    assert (tmp_path / "got").read_bytes() == b"|".join(map(os.fsencode, evil))
    out = capfd.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert decode_session((tmp_path / "s.json").read_bytes()).outcome.command[-4:-2] == ["[red]x", "\\xff"]
