"""A probe with the hooks of libraries alone, for the tests of what these count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from probing import LibraryProbe, library_probe


@pytest.fixture
def probed(tmp_path: Path) -> Iterator[LibraryProbe]:
    with library_probe(tmp_path / "session") as probed:
        yield probed
