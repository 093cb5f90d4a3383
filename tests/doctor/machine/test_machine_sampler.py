"""The sampler on this machine: beside a real command, and against psutil."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil
import pytest
from processes import DEADLINE_S, eventually

from headrace.doctor.machine import MachineSampler, Rates
from headrace.doctor.machine.host import Processes, ProcessReadings
from headrace.doctor.machine.sampler import MOST_SHARE
from headrace.doctor.session.model import Machine

pytestmark = pytest.mark.alone

INHERITED_BYTES = 64 << 20
FAMILY = f"""
    import os, sys
    parents = bytearray({INHERITED_BYTES})
    for page in range(0, len(parents), 4096): parents[page] = 1
    child = os.fork()
    if child == 0:
        sys.stdin.readline()  # "copy"
        for page in range(0, len(parents), 4096): parents[page] = 2
        os.write(1, b"copied\\n")
        sys.stdin.readline()  # "end"
        os._exit(0)
    os.write(1, b"%d\\n" % child)
    os.waitpid(child, 0)
"""


class Clock:
    """This machine's monotonic clock, from when this was made."""

    def __init__(self) -> None:
        self._zero_ns = time.monotonic_ns()

    def now_us(self) -> int:
        return self.us(time.monotonic_ns())

    def us(self, monotonic_ns: int) -> int:
        return (monotonic_ns - self._zero_ns) // 1000


@contextmanager
def command(source: str) -> Iterator[tuple[Callable[[str], int], Callable[[], str]]]:
    """A Python that runs `source`: what tells it a line (and gives its pid), and what waits for its next. At the end it
    is told that no more comes, and waited for."""
    line = [sys.executable, "-c", textwrap.dedent(source)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        reads, says = process.stdin, process.stdout
        assert reads is not None
        assert says is not None

        def tell(text: str) -> int:
            if text:
                reads.write(text + "\n")
                reads.flush()
            return process.pid

        try:
            yield tell, says.readline
            process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()


@contextmanager
def sampling(root: int) -> Iterator[MachineSampler]:
    sampler = MachineSampler(Clock(), root, interval_s=0.01)
    sampler.start()
    try:
        yield sampler
    finally:
        sampler.stop()


def has_rows(sampler: MachineSampler, rows: int) -> bool:
    return len(sampler.machine().time) >= rows


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_command_from_its_start_until_its_end() -> None:
    with command(FAMILY) as (tell, said), sampling(tell("")) as sampler:
        child = int(said())
        assert eventually(lambda: child in sampler.machine().processes)
        tell("copy")
        tell("end")
        assert eventually(lambda: has_ended(child))
        machine = sampler.stop()
    figures = machine.processes[child]
    assert machine.host == socket.gethostname()
    assert machine.time == sorted(machine.time)
    assert {len(values) for values in machine.columns.values()} == {len(machine.time)}
    assert figures["last"] > figures["started"]
    assert machine.facts["cores"] <= len(os.sched_getaffinity(0))
    assert machine.facts["sampler_off"].keys() <= {"gpus"}  # without a driver


def test_what_was_measured_is_a_document() -> None:
    with sampling(os.getpid()) as sampler:
        assert eventually(lambda: has_rows(sampler, 2))
        machine = sampler.stop()
    again = msgspec.json.decode(msgspec.json.encode(machine), type=Machine)
    assert again.processes == machine.processes
    assert again.facts == machine.facts


def test_a_command_that_is_gone_before_the_first_reading() -> None:
    with command("") as (tell, said):
        root = tell("")
        assert said() == ""
    with sampling(root) as sampler:
        machine = sampler.stop()
    assert machine.processes == {}
    assert machine.facts["memory_bytes"] == psutil.virtual_memory().total


def test_a_part_that_fails_is_named_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise ValueError("a kernel of tomorrow")

    monkeypatch.setattr(psutil, "virtual_memory", fails)
    with sampling(os.getpid()) as sampler:
        assert eventually(lambda: has_rows(sampler, 2))
        machine = sampler.stop()
    assert machine.facts["sampler_off"]["memory"] == "ValueError: a kernel of tomorrow"
    assert len(machine.columns["cpu_cores_busy"]) == len(machine.time)


def test_a_dear_reading_is_made_less_often() -> None:
    sampler = MachineSampler(Clock(), os.getpid(), interval_s=0.5)
    assert sampler._pause_s(0.0) == 0.5
    assert sampler._pause_s(1.0) == pytest.approx(1 / MOST_SHARE)


def test_a_worker_that_writes_to_what_it_inherited_grows_by_that_much() -> None:
    """psutil's figures against the number of pages that the worker is told to write to."""
    with command(FAMILY) as (tell, said):
        worker = ProcessReadings(psutil.Process(int(said())), 0)
        worker.read_memory()
        tell("copy")
        assert said() == "copied\n"
        worker.read_memory()
    assert worker.figures["shared_bytes_first"] >= 0.9 * INHERITED_BYTES
    assert worker.figures["cow_bytes"] == pytest.approx(INHERITED_BYTES, rel=0.1)


def test_processes_are_the_doctors_descendants_with_what_they_used_and_read(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(b"x" * 1_000_000)
    source = f"""
        file = open({str(data)!r}, "rb")
        file.read()
        while sum(__import__("os").times()[:2]) < 0.5: pass
        print("used", flush=True)
        input()
    """
    with command(source) as (tell, said):
        pid = tell("")
        rates = Rates()
        processes = Processes(pid, rates)
        processes.read()
        assert said() == "used\n"
        rates.now_s = 10.0
        row = processes.read()
        figures = processes.figures()[pid]
        tell("end")
    assert row["cpu_cores_command"] == pytest.approx(0.05, abs=0.03)
    assert figures["cpu_s"] >= 0.5
    assert figures["read_call_bytes"] >= 1_000_000
    assert (row["command_pss_bytes"] or 0) > 0
    rates.now_s = 11.0
    processes.read()
    assert processes.figures()[pid]["cpu_s"] >= 0.5
