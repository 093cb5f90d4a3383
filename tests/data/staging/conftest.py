"""A source, a folder for copies, and parts that are small enough for a test."""

from __future__ import annotations

from pathlib import Path

import pytest
from staged_trees import PART_BYTES, make_source

from headrace.data.staging import stage_folder


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_folder, "PART_BYTES", PART_BYTES)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_source(tmp_path / "source")


@pytest.fixture
def to(tmp_path: Path) -> Path:
    """A folder for copies, which is not there yet."""
    return tmp_path / "copies"
