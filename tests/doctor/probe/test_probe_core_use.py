"""What a batch and a step used of the cores."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from probing import LibraryProbe, probed, records
from training_loops import Loop, loader

from headrace.doctor.probe import settings
from headrace.doctor.probe.probe import Probe
from headrace.doctor.probe.settings import core_use

LONG_NS = 50_000_000


@pytest.fixture
def schedstat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for the kernel's file."""
    path = tmp_path / "schedstat"
    monkeypatch.setattr(settings, "_SCHEDSTAT", str(path))
    return path


@pytest.fixture
def probe(tmp_path: Path) -> Iterator[Probe]:
    probe = LibraryProbe(tmp_path / "session").probe
    yield probe
    probe.detach()


def burn(ns: int) -> None:
    until = time.thread_time_ns() + ns
    while time.thread_time_ns() < until:
        pass


def test_waiting_for_a_core_is_told(schedstat: Path) -> None:
    schedstat.write_text("1000 2000 3\n")
    before = core_use(LONG_NS)
    schedstat.write_text("9000 7000 4\n")
    assert core_use(LONG_NS).us_since(before)[1] == 5


@pytest.mark.parametrize("text", ["0 0 0\n", "", "1000 2000\n"])
def test_a_kernel_may_not_count_it(text: str, schedstat: Path) -> None:
    schedstat.write_text(text)
    assert core_use(LONG_NS).delay is None


def test_all_threads_of_the_process_count() -> None:
    before = core_use(0)
    thread = threading.Thread(target=burn, args=[5_000_000])
    thread.start()
    thread.join()
    assert core_use(0).us_since(before)[0] >= 5_000


def batches(probe: Probe) -> list[Any]:
    lines = [json.loads(line) for line in Path(probe.evidence.path).read_text().splitlines()]
    return [line for line in lines if line[0] == "batch"]


def test_a_batch_tells_what_it_used(probe: Probe, schedstat: Path) -> None:
    schedstat.write_text("1 2000000 3\n")
    for index in range(2):  # the first tells how long batches are
        batch = probe.batches.begin(0, index)
        batch.start -= LONG_NS
        burn(3_000_000)
        schedstat.write_text(f"1 {6_000_000 + index * 1_000_000} 3\n")
        probe.batches.end(batch)
        probe.batches.write(batch, sent=0, serialise=0)
    first, second = batches(probe)
    assert first[9] >= 3_000
    assert first[10] is None
    assert second[10] == 1_000


def test_a_step_tells_what_it_used(tmp_path: Path) -> None:
    """But for the first, of which nobody saw the beginning."""
    with probed(tmp_path, observe=False, steps=10_000):
        Loop().train(loader(24))
    first, *others = records(tmp_path, "step")
    assert len(first) == 6
    assert all(step[6] >= 0 for step in others)
    assert sum(step[6] for step in others) > 0
