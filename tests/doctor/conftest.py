"""Runs under the doctor that several modules look at, each made once: every one imports torch in its processes."""

from __future__ import annotations

import hashlib
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from observed_runs import KeptRun, measured, observe, on_two_ranks, python

from headrace.doctor.simulate import prediction
from headrace.doctor.simulate.pipeline import SimulatedSteps, simulated

Simulations = dict[bytes, SimulatedSteps]
"""Results by all that they depend on."""


@pytest.fixture(scope="session")
def all_simulations() -> Simulations:
    return {}


@pytest.fixture
def kept_simulations(all_simulations: Simulations, monkeypatch: pytest.MonkeyPatch) -> Simulations:
    """Simulate nothing twice: prescriptions of similar runs try the same setups, 30 times each in a module."""

    def once(setup: Any, work: Any, *, first: int = 0, steps: int) -> SimulatedSteps:
        key = hashlib.sha256(pickle.dumps((setup, work, first, steps))).digest()
        if key not in all_simulations:
            all_simulations[key] = simulated(setup, work, first=first, steps=steps)
        return all_simulations[key]

    monkeypatch.setattr(prediction, "simulated", once)
    return all_simulations


@pytest.fixture
def temporary() -> Iterator[Path]:
    """An empty TMPDIR with a short path.

    Workers pass on tensors through a socket below TMPDIR, whose path has at most 107 bytes. A worker that cannot bind
    its socket drops the batch, and the training waits for it forever.
    """
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def odd(tmp_path_factory: pytest.TempPathFactory) -> KeptRun:
    """A run whose keys are hostile, with every output that there is, and which a hostile error ends."""
    folder = tmp_path_factory.mktemp("odd")
    outputs = ("--verbose", "--html", str(folder / "report.html"))
    return KeptRun(observe(python("hostile.py", "odd-texts"), folder, *outputs, is_kept=True), folder)


@pytest.fixture(scope="session")
def paced_run(tmp_path_factory: pytest.TempPathFactory) -> KeptRun:
    """Measured, with all its windows, and what it measured of itself in `truth.json`."""
    folder = tmp_path_factory.mktemp("paced")
    return KeptRun(measured(python("floor.py", "--truth", folder / "truth.json"), folder, "--steps", "20"), folder)


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> KeptRun:
    """DistributedDataParallel on two ranks. Rank 1 decodes more slowly, and its images are larger."""
    folder = tmp_path_factory.mktemp("ranks")
    return KeptRun(observe(on_two_ranks("ranks.py", "--slow", "1", "--shapes"), folder, is_kept=True), folder)
