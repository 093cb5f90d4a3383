"""The doctor derives from recorded evidence the figures that it derived when it was recorded."""

from __future__ import annotations

from html import escape
from pathlib import Path

import pytest
from golden_sessions import FOLDER, RECORDINGS, derived, differences, expected, names, read_again, reports

MOST_BYTES = 120_000
"""Of one recording."""


@pytest.mark.parametrize("name", names())
@pytest.mark.one_in(32)
def test_figures_of_recorded_evidence_are_unchanged(name: str, tmp_path: Path) -> None:
    session, figures = derived(name, tmp_path)
    assert list(differences(expected(name), figures)) == []
    assert read_again(session) == session


@pytest.mark.parametrize("name", ["fault_respawn", "fault_slow_rank", "truth_images"])
@pytest.mark.one_in(4)
def test_reports_of_recorded_evidence_begin_with_the_verdict(name: str, tmp_path: Path) -> None:
    """One of each kind: with proofs, with ranks, only observed."""
    verdict, text, page = reports(name, derived(name, tmp_path)[0])
    lead = verdict.rstrip(".")
    assert " ".join(text.split()).startswith(lead)
    assert str(escape(lead)) in page


def test_every_recording_is_there_and_small() -> None:
    assert names() == sorted(recording.name for recording in RECORDINGS)
    assert max(path.stat().st_size for path in FOLDER.iterdir()) < MOST_BYTES
