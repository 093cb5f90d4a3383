"""Evidence that stops anywhere: what is left is read, merged and diagnosed."""

from __future__ import annotations

import random

import pytest
from probed import merged

from headrace.doctor.causes import diagnose


@pytest.fixture
def evidence(odd):
    """Of a whole run, with two workers: each file's name and content."""
    files = {path.name: path.read_bytes() for path in (odd.folder / "evidence").iterdir()}
    assert len(files) == 3
    return odd.folder, files


def cuts(data: bytes) -> list[int]:
    """Nothing, the first bytes, and around and within every line."""
    ends = [position + 1 for position, byte in enumerate(data) if byte == ord("\n")]
    within = [random.Random(end).randrange(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    return sorted({0, 1, 2, *within, *(end + by for end in ends for by in (-1, 0, 1) if end + by <= len(data))})


@pytest.mark.parametrize("one_in", [8, pytest.param(1, marks=pytest.mark.long)])
def test_every_file_may_end_anywhere(evidence, tmp_path, one_in):
    folder, files = evidence
    (tmp_path / "evidence").mkdir()
    (tmp_path / "settings.json").write_bytes((folder / "settings.json").read_bytes())
    for cut_short, whole in files.items():
        for name, data in files.items():
            (tmp_path / "evidence" / name).write_bytes(data)
        for length in random.Random(one_in).sample(found := cuts(whole), len(found) // one_in):
            (tmp_path / "evidence" / cut_short).write_bytes(whole[:length])
            session = merged(tmp_path)
            assert diagnose(session).verdict
            is_cut = length not in (0, len(whole)) and not whole[:length].endswith(b"\n")
            assert any(process.cut for process in session.processes) == is_cut or length < whole.index(b"\n") + 1
