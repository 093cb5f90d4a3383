"""`headrace doctor`: which options mean what, what is refused, and how that is said."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from file_trees import patch
from made_prescriptions import helping, made
from made_reports import made_diagnosis, made_session
from made_sessions import MadeRun
from typer.testing import CliRunner

from headrace.doctor.attach.command import DOCTOR_FAILED, FAILED_ABOVE, exit_status
from headrace.doctor.report.outputs import Outputs, document
from headrace.doctor.run import Examination
from headrace.doctor.session.after_run import Proof
from headrace.errors import UsageError
from headrace.tools.command_line import app

Asked = list[tuple[Examination, Outputs]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What would have been examined; the status is given."""
    seen: Asked = []

    def examine(examination: Examination, outputs: Outputs) -> int:
        seen.append((examination, outputs))
        return 7

    monkeypatch.setattr("headrace.doctor.run.examine", examine)
    return seen


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["doctor", *arguments])


def words(text: str) -> str:
    """Without the box that typer draws around what it says."""
    return re.sub(r"[\s│╭╮╰╯─]+", " ", text)


def test_everything_behind_the_dashes_is_the_command(asked: Asked) -> None:
    result = invoke("--steps", "9", "--", "python", "x.py", "--steps", "3", "--", "show", "--help", "")
    assert result.exit_code == 7
    assert asked[0][0] == Examination(["python", "x.py", "--steps", "3", "--", "show", "--help", ""], steps=9)


def test_a_command_named_show_is_a_command(asked: Asked) -> None:
    invoke("--", "show", "session.json")
    assert asked[0][0].command == ["show", "session.json"]


def test_every_option_arrives(asked: Asked) -> None:
    files = ["--html", "r.html", "--json", "-", "--apply", "a.diff", "--draft", "d.py"]
    invoke("--steps", "9", "--prove", *files, "--fail-above", "2.5%", "-v", "--", "x")
    examination, outputs = asked[0]
    assert examination == Examination(["x"], steps=9, proves=True, fail_above=0.025)
    assert outputs == Outputs(html=Path("r.html"), json="-", apply=Path("a.diff"), draft=Path("d.py"), verbose=True)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--"], "expected -- and the command, got none: headrace doctor [options] -- python train.py"),
        (["python", "x.py"], "expected options, then -- and the command, got 'python'"),
        (["x", "--", "y"], "expected options, then -- and the command, got 'x'"),
        (["--steps", "0", "--", "x"], "--steps"),
        (["--steps", "5", "--observe", "--", "x"], "--steps ends the run, --observe lets it go on"),
        (["--observe", "--prove", "--", "x"], "--prove"),
        (["--fail-above", "0.05", "--", "x"], "expected a share such as 5%, got '0.05'"),
        (["--fail-above", "101%", "--", "x"], "expected a share such as 5%, got '101%'"),
        (["--verbose", "show", "x"], "expected --verbose behind show, got it before"),
    ],
)
def test_what_makes_no_sense_is_refused(asked: Asked, arguments: list[str], says: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert says in words(result.stderr)
    assert asked == []


def test_without_anything_it_explains_itself() -> None:
    result = invoke()
    assert result.exit_code == 0
    assert "doctor -- python" in words(result.stdout)


def test_an_error_of_ours_is_one_line_and_a_status_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def examine(examination: Examination, outputs: Outputs) -> int:
        raise UsageError("--html: got x")

    monkeypatch.setattr("headrace.doctor.run.examine", examine)
    result = invoke("--", "x")
    assert (result.exit_code, result.stderr) == (DOCTOR_FAILED, "headrace: --html: got x\n")


@pytest.mark.parametrize(
    ("command", "wait_share", "fail_above", "status"),
    [
        (0, 0.7, None, 0),
        (3, 0.7, None, 3),
        (137, None, None, 137),
        (0, 0.7, 0.05, FAILED_ABOVE),
        (0, 0.05, 0.05, 0),
        (3, 0.7, 0.05, 3),
        (0, None, 0.05, DOCTOR_FAILED),
    ],
)
def test_exit_statuses(command: int, wait_share: float | None, fail_above: float | None, status: int) -> None:
    assert exit_status(command, wait_share=wait_share, fail_above=fail_above) == status


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "session.json"
    path.write_text(document(made_session(40), made_diagnosis()), encoding="utf-8")
    return path


@pytest.mark.long
def test_show_renders_a_saved_session_again(saved: Path, tmp_path: Path) -> None:
    page, again = tmp_path / "r.html", tmp_path / "again.json"
    files = ["--html", str(page), "--json", str(again)]
    result = invoke("show", str(saved), *files)
    assert result.exit_code == 0
    assert f"headrace doctor show {again}" in re.sub(r"\s+", " ", result.stdout)
    assert f"headrace doctor show {again}" in page.read_text(encoding="utf-8")
    assert CliRunner().invoke(app, ["doctor", "show", str(again)]).stdout.splitlines()[0] in result.stdout


SCRIPT = (
    "from torch.utils.data import DataLoader\nloader = DataLoader(data, 4, num_workers=2)\nfor _ in loader:\n    pass\n"
)


def test_apply_writes_what_patch_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    session = made(MadeRun(facts={"file": str(tmp_path / "train.py"), "line": 3}))
    (tmp_path / "session.json").write_text(document(session, None))
    monkeypatch.chdir(tmp_path)
    assert invoke("show", "session.json", "--apply", "all.diff").exit_code == 0
    patch(tmp_path, "all.diff")
    assert (tmp_path / "train.py").read_text() == SCRIPT.replace("num_workers=2", "num_workers=3")


@pytest.mark.long
def test_apply_leaves_out_what_a_proof_refuted_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    session = made(MadeRun(facts={"file": str(tmp_path / "train.py"), "line": 3}))
    session.proofs = [Proof(["workers"], {}, "measured", steps=[5_000] * 40, samples="same")]
    (tmp_path / "session.json").write_text(document(session, None))
    monkeypatch.chdir(tmp_path)
    result = invoke("show", "session.json", "--verbose", "--apply", "all.diff")
    assert "num_workers=3" not in (tmp_path / "all.diff").read_text()
    assert "proved 5.0 ms" in " ".join(result.stdout.split())
    assert helping(session, "workers").title in result.stderr


def test_apply_of_a_script_elsewhere_says_where_it_applies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "elsewhere").mkdir()
    script = tmp_path / "code" / "train.py"
    script.write_text(SCRIPT)
    session = made(MadeRun(facts={"file": str(script), "line": 3}))
    (tmp_path / "session.json").write_text(document(session, None))
    monkeypatch.chdir(tmp_path / "elsewhere")
    result = invoke("show", "../session.json", "--apply", "all.diff")
    command = result.stderr.partition("applies by `")[2].partition("`")[0]
    subprocess.run(shlex.split(command), check=True, capture_output=True, timeout=60)
    assert script.read_text() == SCRIPT.replace("num_workers=2", "num_workers=3")


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("run", "why"),
    [
        (MadeRun(facts={"file": "/gone/train.py"}), "no change of a source file can be made with certainty"),
        (MadeRun(stages={"decode:a": 10}, forward=20_000), "not input-bound"),
        (MadeRun(steps=8), "4 measured steps"),
    ],
    ids=["nothing certain", "not input-bound", "few steps"],
)
def test_apply_of_nothing_says_why(run: MadeRun, why: str, tmp_path: Path) -> None:
    (tmp_path / "session.json").write_text(document(made(run), None))
    result = invoke("show", str(tmp_path / "session.json"), "--apply", str(tmp_path / "all.diff"))
    assert why in result.stderr
    assert (tmp_path / "all.diff").read_text() == ""


def test_json_on_standard_output_is_utf_8_whatever_the_locale(saved: Path) -> None:
    said = saved.read_text(encoding="utf-8").replace('"host":"box"', '"host":"bo\u00df"')
    saved.write_text(said, encoding="utf-8")
    result = CliRunner(charset="ascii").invoke(app, ["doctor", "show", str(saved), "--json", "-"])
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout_bytes.decode("utf-8"))["machines"][0]["host"] == "bo\u00df"


def test_show_of_facts_that_are_none_says_so(saved: Path) -> None:
    changed = json.loads(saved.read_text(encoding="utf-8"))
    for process in changed["processes"]:
        process["facts"]["facts"] = "two"
    saved.write_text(json.dumps(changed))
    result = invoke("show", str(saved))
    assert result.exit_code == DOCTOR_FAILED
    assert result.stderr.startswith(f"headrace: {saved}: ")


@pytest.mark.long
def test_show_fails_above(saved: Path) -> None:
    assert invoke("show", str(saved), "--fail-above", "5%").exit_code == FAILED_ABOVE
    assert invoke("show", str(saved), "--fail-above", "100%").exit_code == 0


@pytest.mark.one_in(2)
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format":"x"}', b"\xff\xfe", b"\x00" * 10])
def test_show_says_what_is_no_session(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    result = invoke("show", str(path))
    assert result.exit_code == DOCTOR_FAILED
    assert result.stderr.startswith(f"headrace: {path}: expected ")


def test_show_says_what_is_not_there(tmp_path: Path) -> None:
    result = invoke("show", str(tmp_path / "none.json"))
    assert result.exit_code == DOCTOR_FAILED
    assert str(tmp_path / "none.json") in result.stderr
