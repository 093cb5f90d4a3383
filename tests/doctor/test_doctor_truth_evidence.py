"""The size that is promised of the evidence of a long run on many ranks, held to a short cut of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

PROMISED_BYTES = 50_000_000
PROMISED_STEPS = 10_000 * 8
"""Of all ranks."""
LONGER_TIMES = 30
"""Bytes a step that times late in a run need beyond those of its first seconds: three digits in each of ten."""


@pytest.fixture
def make_evidence(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    from made_evidence import make_evidence

    yield make_evidence
    del sys.modules["made_evidence"]


def test_a_steps_evidence_keeps_the_promise(make_evidence, tmp_path):
    sizes = []
    for steps in (100, 400):
        folder = tmp_path / str(steps)
        make_evidence(folder, steps=steps, ranks=1, workers=4)
        sizes.append(sum(path.stat().st_size for path in (folder / "evidence").iterdir()))
    a_step = (sizes[1] - sizes[0]) / 300
    assert 300 < a_step + LONGER_TIMES <= PROMISED_BYTES / PROMISED_STEPS
