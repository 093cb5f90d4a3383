"""The kernel's texts are read in whatever form they come."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_double import MOUNTINFO_V2, Texts, stat_text

from headrace.doctor.attach.process_tree import parse_process_stat
from headrace.doctor.machine.host import Cores, Disks, MachineMemory, Pressure
from headrace.doctor.machine.kernel import Kernel, MachinePart, mount_of, span
from headrace.doctor.machine.processes import Processes, ProcessReadings, process_stat
from headrace.system import ControlGroups, mounts, pairs, whole

FILES = (
    *(f"/proc/7/{file}" for file in ("stat", "status", "io", "schedstat", "smaps_rollup", "cgroup", "mountinfo")),
    *("/proc/stat", "/proc/meminfo", "/proc/vmstat", "/proc/diskstats", "/proc/cpuinfo", "/proc/pressure/io"),
    *("/proc/pressure/cpu", "/proc/version", "/proc/7/fdinfo/3", "/sys/devices/system/cpu/online"),
    *(f"/sys/fs/cgroup/{file}" for file in ("cpu.max", "cpu.stat", "memory.max", "memory.events", "memory.current")),
)
KERNELISH = st.text(alphabet="some full total=avg10 0123456789:-/,() kB\nmax9", max_size=200)
PARTS: list[Callable[[Texts], MachinePart]] = [
    lambda texts: Cores(texts, 7, ControlGroups(texts.text, 7)),
    lambda texts: MachineMemory(texts, ControlGroups(texts.text, 7)),
    lambda texts: Pressure(texts, ControlGroups(texts.text, 7)),
    lambda texts: Processes(texts, 7, 0.0, lambda ticks: ticks),
    Disks,
]


@given(texts=st.dictionaries(st.sampled_from(FILES), KERNELISH | st.text(max_size=40)))
@pytest.mark.parametrize("make", PARTS)
@pytest.mark.one_in(3)
def test_no_text_makes_a_part_fail(make: Callable[[Texts], MachinePart], texts: dict[str, str]) -> None:
    machine = Texts(texts, links={"/proc/7/fd/3": "/data/a.jpg"})
    part = make(machine)
    part.read(1.0)
    part.read(2.0)
    part.facts()


@pytest.mark.parametrize("make", PARTS)
def test_a_machine_that_tells_nothing_has_no_figure(make: Callable[[Texts], MachinePart]) -> None:
    part = make(Texts())
    part.read(1.0)
    row = part.read(2.0)
    row.pop("command_processes", None)
    assert set(row.values()) <= {None}  # no figure where nothing was told


def test_kilobytes_are_bytes_and_odd_lines_are_left_out() -> None:
    assert pairs("MemTotal:   24684096 kB\npswpin 5\nName: python\n\nHugePages_Total: 0\n") == {
        "MemTotal": 24684096 * 1024,
        "pswpin": 5,
        "HugePages_Total": 0,
    }


def test_lists_of_cores() -> None:
    assert span("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    assert span("") == set()
    assert span("none") == set()


def test_only_a_whole_number_is_one() -> None:
    assert (whole("12\n"), whole("max\n"), whole(""), whole(None), whole("-1")) == (12, None, None, None, None)


def test_a_process_name_may_hold_anything() -> None:
    machine = Texts()
    machine.process(7, name="a) R (b", parent=3, started=9)
    found = process_stat(machine, 7)
    assert found is not None
    assert (found.name, found.parent, found.started_ticks) == ("a) R (b", 3, 9)


@pytest.mark.parametrize(
    "text", ["", "7", "7 (sh", "7 sh) S 1", "7 (sh) S 1 2 3", stat_text(7).replace(" 4194304 ", " ? ")]
)
def test_a_stat_in_no_form_of_the_kernels_tells_nothing(text: str) -> None:
    assert parse_process_stat(text) is None
    assert parse_process_stat(stat_text(7)) is not None


def test_mounts_with_spaces_servers_and_places_within_one_another() -> None:
    found = mounts(Texts({"/proc/7/mountinfo": MOUNTINFO_V2}).text, 7)
    data = mount_of("/data/train/a.jpg", found)
    assert data is not None
    assert (data.source, data.is_network) == ("server:/export two", True)
    home = mount_of("/datasets/a.jpg", found)
    assert home is not None
    assert (home.point, home.is_network) == ("/", False)


def test_the_later_of_two_mounts_at_one_place_holds() -> None:
    text = "1 0 8:1 / /data rw - ext4 /dev/sda1 rw\n2 0 8:2 / /data rw - xfs /dev/sdb1 rw\n"
    found = mount_of("/data/a", mounts(Texts({"/proc/7/mountinfo": text}).text, 7))
    assert found is not None
    assert found.kind == "xfs"


def test_the_real_kernel_gives_none_for_what_is_not_there() -> None:
    kernel = Kernel()
    assert kernel.text("/proc/no-such-file") is None
    assert kernel.link("/proc/no-such-file") is None
    assert kernel.space("/no-such-folder") is None
    assert kernel.names("/no-such-folder") == []


def test_a_process_that_ends_while_it_is_read_keeps_its_last_figures() -> None:
    machine = Texts()
    machine.process(7, user=50)
    machine.texts["/proc/7/io"] = "rchar: 70\nread_bytes: 4096\n"
    seen = process_stat(machine, 7)
    assert seen is not None
    process = ProcessReadings(machine, 7, seen)
    process.read(seen, 1.0)
    machine.end(7)
    process.read(seen, 2.0)
    assert process.figures["read_call_bytes"] == 70
    assert process.figures["read_bytes"] == 4096
    assert process.figures["cpu_wait_s"] is None
