"""No test of unpacking writes into the user's cache folder."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def spare_the_users_cache(own_cache: Path) -> None:
    """No test writes into the user's cache folder."""


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A folder to unpack into, beside the archive and not there yet."""
    return tmp_path / "target"
