"""The sampler on this machine: beside a real command, and against psutil."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import psutil
import pytest
from machine_double import Texts
from processes import DEADLINE_S, eventually

from headrace.doctor.machine import MachineSampler
from headrace.doctor.machine.host import Cores, MachineMemory, diskstats
from headrace.doctor.machine.kernel import Kernel
from headrace.doctor.machine.processes import ProcessReadings, ProcessTree, process_stat
from headrace.doctor.machine.sampler import MOST_SHARE
from headrace.doctor.session.model import Machine
from headrace.system import ControlGroups

pytestmark = pytest.mark.alone

WITHOUT_GPUS = (None, "no GPUs in this test")
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
def sampling(root: int, **options: Any) -> Iterator[MachineSampler]:
    sampler = MachineSampler(Clock(), root, interval_s=0.01, **{"open_gpus": lambda: WITHOUT_GPUS, **options})
    sampler.start()
    try:
        yield sampler
    finally:
        sampler.stop()


def has_rows(sampler: MachineSampler, rows: int) -> bool:
    return len(sampler.machine().time) >= rows


def test_a_command_from_its_start_until_its_end() -> None:
    with command(FAMILY) as (tell, said), sampling(tell("")) as sampler:
        child = int(said())
        assert eventually(lambda: child in sampler.machine().processes)
        tell("copy")
        tell("end")
        assert eventually(lambda: sampler.machine().columns["command_processes"][-1] == 0)
        machine = sampler.stop()
    figures = machine.processes[child]
    assert machine.host == socket.gethostname()
    assert machine.time == sorted(machine.time)
    assert {len(values) for values in machine.columns.values()} == {len(machine.time)}
    assert figures["parent"] in machine.processes
    assert machine.processes[figures["parent"]]["parent"] == os.getpid()
    assert figures["last"] > figures["started"]
    assert machine.facts["cores_affinity"] == len(os.sched_getaffinity(0))
    assert machine.facts["gpus_unknown"] == "no GPUs in this test"
    assert machine.facts["sampler_off"] == {}


def test_what_was_measured_is_a_document() -> None:
    with sampling(os.getpid()) as sampler:
        assert eventually(lambda: has_rows(sampler, 2))
        machine = sampler.stop()
    again = msgspec.json.decode(msgspec.json.encode(machine), type=Machine)
    assert again.processes == machine.processes
    assert again.facts == machine.facts


def test_stopping_again_gives_the_same() -> None:
    with sampling(os.getpid()) as sampler:
        assert sampler.stop() is sampler.stop()


def test_a_command_that_is_gone_before_the_first_reading() -> None:
    with command("") as (tell, said):
        root = tell("")
        assert said() == ""
    with sampling(root) as sampler:
        machine = sampler.stop()
    assert machine.processes == {}
    assert machine.facts["memory_bytes"] == psutil.virtual_memory().total


def test_its_thread_has_a_name_and_is_joined() -> None:
    with sampling(os.getpid()):
        assert "headrace-doctor-machine" in {thread.name for thread in threading.enumerate()}
    assert "headrace-doctor-machine" not in {thread.name for thread in threading.enumerate()}


class FailingDisks(Kernel):
    def text(self, path: str) -> str | None:
        if path == "/proc/diskstats":
            raise ValueError("a kernel of tomorrow")
        return super().text(path)


def test_a_part_that_fails_is_named_and_the_others_go_on() -> None:
    with sampling(os.getpid(), kernel=FailingDisks()) as sampler:
        assert eventually(lambda: has_rows(sampler, 2))
        machine = sampler.stop()
    assert machine.facts["sampler_off"]["disks"] == "ValueError: a kernel of tomorrow"
    assert machine.columns["memory_available_bytes"][-1] is not None


def test_a_part_that_cannot_begin_is_named() -> None:
    def fails() -> tuple[None, str]:
        raise OSError("a library of tomorrow")

    with sampling(os.getpid(), open_gpus=fails) as sampler:
        machine = sampler.stop()
    assert machine.facts["sampler_off"] == {"gpus": "OSError: a library of tomorrow"}
    assert machine.facts["memory_bytes"] == psutil.virtual_memory().total


def test_a_machine_that_tells_nothing() -> None:
    with sampling(os.getpid(), kernel=Texts()) as sampler:
        assert eventually(lambda: has_rows(sampler, 2))
        machine = sampler.stop()
    assert machine.processes == {}
    assert machine.facts["sampler_off"] == {}
    assert {name for name, values in machine.columns.items() if any(value for value in values)} <= {"cpu_cores_doctor"}


def test_a_dear_reading_is_made_less_often() -> None:
    sampler = MachineSampler(Clock(), os.getpid(), interval_s=0.5)
    assert sampler._pause_s(0.0) == 0.5
    assert sampler._pause_s(1.0) == pytest.approx(1 / MOST_SHARE)


def test_its_own_cost_is_in_the_facts() -> None:
    with sampling(os.getpid()) as sampler:
        assert eventually(lambda: has_rows(sampler, 2))
        facts = sampler.stop().facts
    assert 0 < facts["sampler_cpu_s"] <= time.process_time()
    assert 0 < facts["sampler_cores"] < 1


def test_a_worker_that_writes_to_what_it_inherited_grows_by_that_much() -> None:
    """The kernel's figures against the number of pages that the worker is told to write to."""
    with command(FAMILY) as (tell, said):
        worker = _process(int(said()))
        worker.read_details(0.0)
        tell("copy")
        assert said() == "copied\n"
        worker.read_details(1.0)
    assert worker.figures["shared_bytes_first"] >= INHERITED_BYTES
    assert worker.figures["cow_bytes"] == pytest.approx(INHERITED_BYTES, rel=0.1)


def test_figures_of_a_process_are_psutils() -> None:
    reference, process = psutil.Process(), _process(os.getpid())
    process.read_details(0.0)
    figures, memory, io = process.figures, reference.memory_full_info(), reference.io_counters()
    assert figures["cpu_s"] == pytest.approx(sum(reference.cpu_times()[:2]), abs=0.5)
    assert figures["pss_bytes_peak"] == pytest.approx(memory.pss, rel=0.1)
    assert figures["read_call_bytes"] == pytest.approx(io.read_chars, rel=0.2)
    assert figures["read_bytes"] == io.read_bytes
    assert figures["parent"] == reference.ppid()
    assert figures["name"] == reference.name()


def test_the_start_of_a_process_is_psutils() -> None:
    clock = Clock()
    sampler = MachineSampler(clock, os.getpid())
    seen = process_stat(Kernel(), os.getpid())
    assert seen is not None
    age_s = (clock.now_us() - sampler._started_us(seen.started_ticks)) / 1e6
    assert age_s == pytest.approx(time.time() - psutil.Process().create_time(), abs=2.0)


def test_the_tree_is_psutils() -> None:
    with command(FAMILY) as (tell, said):
        root, child = tell(""), int(said())
        expected = {root, *(found.pid for found in psutil.Process(root).children(recursive=True))}
        assert child in expected
        assert ProcessTree(Kernel(), root).scan() == expected


def test_memory_and_disks_are_psutils() -> None:
    kernel = Kernel()
    groups = ControlGroups(kernel.text, os.getpid())
    row, facts = MachineMemory(kernel, groups).read(0.0), MachineMemory(kernel, groups).facts()
    shm = psutil.disk_usage("/dev/shm")
    assert facts["memory_bytes"] == psutil.virtual_memory().total
    assert facts["shm_bytes"] == shm.total
    assert row["memory_available_bytes"] == pytest.approx(psutil.virtual_memory().available, rel=0.2)
    before = {name: counters[0] for name, counters in diskstats(kernel).items()}
    for name, counters in psutil.disk_io_counters(perdisk=True).items():
        assert before[name] <= counters.read_count


def test_cores_are_psutils() -> None:
    kernel = Kernel()
    cores = Cores(kernel, os.getpid(), ControlGroups(kernel.text, os.getpid()))
    assert cores.facts()["cores_affinity"] == len(psutil.Process().cpu_affinity())
    busy = [sum(psutil.cpu_times()[:3])]
    cores.read(0.0)
    for _ in itertools.takewhile(lambda _: sum(psutil.cpu_times()[:3]) - busy[0] < 0.2, itertools.count()):
        sum(range(10_000))
    passed = sum(psutil.cpu_times()[:3]) - busy[0]
    row = cores.read(1.0)
    user, system = row["cpu_cores_user"], row["cpu_cores_system"]
    assert user is not None
    assert system is not None
    assert user + system == pytest.approx(passed, abs=0.15)


def _process(pid: int) -> ProcessReadings:
    kernel = Kernel()
    seen = process_stat(kernel, pid)
    assert seen is not None
    process = ProcessReadings(kernel, pid, seen)
    process.read(seen, 0.0)
    return process
