"""Two ranks over gloo: when each one's own gradients were done, before it waited for the other."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from observed_runs import KeptRun
from probing import spans

pytestmark = pytest.mark.alone

STEPS = 30
LATE_US = 30_000
Records = list[list[Any]]


@pytest.fixture
def ranks(two_ranks: KeptRun) -> dict[int, Records]:
    """The records of each rank's own process."""
    processes = map(_records, (two_ranks.folder / "evidence").iterdir())
    return {process[0][2]["rank"]: process for process in processes if _of("step", process)}


def test_every_fifth_step_is_stamped(ranks: dict[int, Records]) -> None:
    assert sorted(ranks) == [0, 1]
    for records in ranks.values():
        assert len(_of("step", records)) == STEPS
        stamped = [ready[1] for ready in _of("ready", records)]
        assert stamped == list(range(5, STEPS, 5))  # there were no ranks when step 0 began


def test_the_stamp_comes_before_the_wait_for_the_other(ranks: dict[int, Records]) -> None:
    waits = []
    for number in range(5, STEPS, 5):
        ready = {rank: _numbered(number, _of("ready", records))[2] for rank, records in ranks.items()}
        ends = {rank: _end_of_backward(_numbered(number, _of("step", records))) for rank, records in ranks.items()}
        assert ends[0] >= max(ready.values()) - 2000  # its backward pass lasted until both were ready
        waits.append(min(ready[1], ends[0]) - ready[0])
    assert statistics.median(waits) > LATE_US * 0.5  # rank 0 was ready while rank 1 decoded


def test_the_sum_at_the_end_is_a_collective_of_no_step(ranks: dict[int, Records]) -> None:
    for records in ranks.values():
        assert _of("collective", records) == []


def _records(path: Path) -> Records:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _of(kind: str, records: Records) -> Records:
    return [record for record in records if record[0] == kind]


def _numbered(number: int, records: Records) -> list[Any]:
    return next(record for record in records if record[1] == number)


def _end_of_backward(step: list[Any]) -> int:
    (_, offset, duration), _ = spans(step)
    return int(step[2] + offset + duration)
