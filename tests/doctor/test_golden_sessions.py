"""The doctor derives from recorded evidence the figures that it derived when it was recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_sessions import FOLDER, RECORDINGS, derived, differences, expected, names, read_again

MOST_BYTES = 120_000
"""Of one recording."""


@pytest.mark.parametrize("name", names())
def test_figures_of_recorded_evidence_are_unchanged(name: str, tmp_path: Path) -> None:
    session, figures = derived(name, tmp_path)
    assert list(differences(expected(name), figures)) == []
    assert read_again(session) == session


def test_every_recording_is_there_and_small() -> None:
    assert names() == sorted(recording.name for recording in RECORDINGS)
    assert max(path.stat().st_size for path in FOLDER.iterdir()) < MOST_BYTES
