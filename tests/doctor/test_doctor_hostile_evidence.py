"""Evidence that stops anywhere: what is left is read, merged and diagnosed."""

from __future__ import annotations

import random

import pytest
from observed_runs import python
from probed import merged, run_probed

from headrace.doctor.analyse import diagnose


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    """Of a whole run: each file's name and content."""
    folder = tmp_path_factory.mktemp("whole")
    ran = run_probed(python("hostile.py", "untouched"), folder)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "steps 15\n"
    return folder, {path.name: path.read_bytes() for path in (folder / "evidence").iterdir()}


def cuts(data: bytes) -> list[int]:
    """Nothing, the first bytes, and around and within every line."""
    ends = [position + 1 for position, byte in enumerate(data) if byte == ord("\n")]
    within = [random.Random(end).randrange(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    return sorted({0, 1, 2, *within, *(end + by for end in ends for by in (-1, 0, 1) if end + by <= len(data))})


def test_every_file_may_end_anywhere(evidence, tmp_path):
    folder, files = evidence
    (tmp_path / "evidence").mkdir()
    (tmp_path / "settings.json").write_bytes((folder / "settings.json").read_bytes())
    for cut_short, whole in files.items():
        for name, data in files.items():
            (tmp_path / "evidence" / name).write_bytes(data)
        for length in cuts(whole):
            (tmp_path / "evidence" / cut_short).write_bytes(whole[:length])
            session = merged(tmp_path)
            assert diagnose(session).verdict
            is_cut = length not in (0, len(whole)) and not whole[:length].endswith(b"\n")
            assert any(process.cut for process in session.processes) == is_cut or length < whole.index(b"\n") + 1
