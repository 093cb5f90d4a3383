"""Two ranks over gloo: when each one's own gradients were done, before it waited for the other."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ddp_script import SLEEP_S, STEPS
from probing import records, settings

from headrace.doctor.attach.environment import environment

SCRIPT = Path(__file__).parent / "ddp_script.py"


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Sessions of one rank each, by rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    folders = {rank: tmp_path_factory.mktemp(f"rank{rank}") for rank in (0, 1)}
    running = []
    for rank, folder in folders.items():
        settings(folder, origin_us=0).write()
        variables = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        paths = os.pathsep.join([*filter(None, sys.path), str(SCRIPT.parent)])
        env = environment(folder, {**os.environ, "PYTHONPATH": paths, **variables})
        running.append(subprocess.Popen([sys.executable, str(SCRIPT)], env=env, stderr=subprocess.PIPE, text=True))
    errors = [process.communicate(timeout=240)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0], errors
    return folders


def test_every_fifth_step_is_stamped(ranks: dict[int, Path]) -> None:
    for folder in ranks.values():
        assert len(records(folder, "step")) == STEPS
        assert [ready[1] for ready in records(folder, "ready")] == [5, 10]  # there were no ranks when step 0 began


def test_the_stamp_comes_before_the_wait_for_the_other(ranks: dict[int, Path]) -> None:
    late_us = SLEEP_S * 1e6
    for number in (5, 10):
        ready = {rank: _of(records(folder, "ready"), number)[2] for rank, folder in ranks.items()}
        ends = {rank: _end_of_backward(folder, number) for rank, folder in ranks.items()}
        assert ready[1] - ready[0] > late_us * 0.5  # rank 0 was ready while rank 1 slept
        assert ends[0] >= ready[1] - 2000  # and its backward pass lasted until rank 1 was, too
        assert ready[0] < ends[0] - late_us * 0.5


def test_the_sum_at_the_end_is_a_collective_of_no_step(ranks: dict[int, Path]) -> None:
    for folder in ranks.values():
        assert records(folder, "collective") == []


def _of(found: list[list[Any]], number: int) -> list[Any]:
    return next(record for record in found if record[1] == number)


def _end_of_backward(folder: Path, number: int) -> int:
    step = _of(records(folder, "step"), number)
    (_, offset, duration), _ = step[4]
    return int(step[2] + offset + duration)
