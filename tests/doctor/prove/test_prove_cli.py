"""`headrace doctor --prove`, as a user starts it. test_prove_prover.py holds the same to runs that are made."""

from __future__ import annotations

from pathlib import Path

import pytest
from observed_runs import DEADLINE_S, headrace, python

from headrace.doctor.session.storage import decode_session

pytestmark = pytest.mark.timeout(2 * DEADLINE_S)

SHORT = ("doctor", "--prove", "--steps", "40")


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
