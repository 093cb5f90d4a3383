"""`headrace doctor --prove`, as a user starts it. test_prove_prover.py holds the same to runs that are made."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from observed_runs import DEADLINE_S, headrace, python
from processes import source_paths

from headrace.doctor.session.storage import decode_session
from headrace.tools.bench.runs import tree

pytestmark = pytest.mark.timeout(2 * DEADLINE_S)

SHORT = ("doctor", "--prove", "--steps", "40")
_HEADRACE = "import sys; from headrace.tools.command_line import main; sys.argv[0] = 'headrace'; main()"


@pytest.mark.long
def test_remedies_are_proved_beside_what_was_predicted(photo_tar: Path, tmp_path: Path) -> None:
    document = tmp_path / "session.json"
    ran = headrace(*SHORT, "--json", str(document), "--", *python("proved.py", photo_tar, 1))
    assert ran.returncode == 0, ran.stderr
    proofs = decode_session(document.read_bytes()).proofs
    assert "trying " in ran.stderr
    assert proofs
    assert {proof.why for proof in proofs} <= {"measured", "not tried"}
    assert any(proof.samples == "same" for proof in proofs)
    assert "proved" in ran.stdout
    assert '"outcomes":[{' in document.read_text()


@pytest.mark.long
@pytest.mark.parametrize(
    ("runs", "control", "proofs"),
    [(1, "interrupted", []), (2, "measured", ["interrupted"])],
    ids=["control", "proof"],
)
def test_ctrl_c_in_a_proof_reports_what_there_is(
    photo_tar: Path, tmp_path: Path, temporary: Path, runs: int, control: str, proofs: list[str]
) -> None:
    document = tmp_path / "session.json"
    environment = {"PYTHONPATH": os.pathsep.join(source_paths()), "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}
    options = [*SHORT, "--json", str(document)]
    command = [sys.executable, "-c", _HEADRACE, *options, "--", *python("proved.py", photo_tar, 1)]
    with subprocess.Popen(
        command,
        env=os.environ | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        tried = (line for line in process.stderr if line.startswith("headrace: trying "))
        for _ in range(runs):
            assert next(tried, None), process.stdout.read()
        processes = tree(process.pid)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    session = decode_session(document.read_bytes())
    assert session.control is not None
    assert session.control.why == control
    assert [proof.why for proof in session.proofs] == proofs
    assert not [pid for pid in processes if Path(f"/proc/{pid}").exists()]
    assert not list(temporary.glob("headrace-*"))


def test_proofs_need_a_run_that_the_doctor_may_repeat() -> None:
    ran = headrace("doctor", "--observe", "--prove", "--", "true")
    assert ran.returncode == 2
    assert "--prove" in ran.stderr
