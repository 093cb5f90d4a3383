"""Steps and batches as the probe counts them under frameworks that fetch ahead, accumulate and evaluate."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from probing import kinds, notes, records, settings

from headrace.doctor.attach.injection import probe_environment

SCRIPT = Path(__file__).parents[1] / "framework_loops.py"


def _runs(folder: Path, framework: str) -> None:
    settings(folder).write()
    paths = os.pathsep.join([*filter(None, sys.path), str(SCRIPT.parent)])
    env = probe_environment(folder, {**os.environ, "PYTHONPATH": paths})
    run = subprocess.run([sys.executable, str(SCRIPT), framework], env=env, capture_output=True, text=True, timeout=280)
    assert run.returncode == 0, run.stderr


def _steps(folder: Path) -> list[str]:
    """Each step's spans, and the batches that training waited for up to its end."""
    steps, gets = records(folder, "step"), records(folder, "get")
    assert "hook-off" not in notes(folder)
    return [f"{kinds(step)} {sum(step[2] <= get[3] < step[3] for get in gets)}" for step in steps]


def _evaluated(folder: Path) -> int:
    return len(records(folder, "fetch"))


@pytest.mark.long
def test_accelerate_fetches_one_batch_ahead(tmp_path: Path) -> None:
    _runs(tmp_path, "accelerate")
    assert _steps(tmp_path) == ["bbo 3", "bbo 2", "bbo 1", *["ebbo 3", "bbo 2", "bbo 1"] * 3]
    assert _evaluated(tmp_path) == 3 * 2  # those of the last evaluation belong to no step
    assert records(tmp_path, "loader")[0][3]["file"] == str(SCRIPT)


@pytest.mark.long
def test_lightning_runs_forward_and_backward_within_the_optimizer(tmp_path: Path) -> None:
    _runs(tmp_path, "lightning")
    assert _steps(tmp_path) == ["ebobo 2", "bobo 2", "bobo 2"] * 2
    assert _evaluated(tmp_path) == 2 * 2  # before the first step, and after the first epoch


@pytest.mark.long
def test_transformers_fetches_a_steps_batches_together(tmp_path: Path) -> None:
    _runs(tmp_path, "transformers")
    assert _steps(tmp_path) == ["bbo 3", "bbo 2", "bbo 1", "ebbo 3", "bbo 2", "bbo 1"]
    assert _evaluated(tmp_path) == 2
