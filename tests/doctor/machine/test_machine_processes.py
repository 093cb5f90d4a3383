"""Which processes belong to a command, and what each used, on machines made of texts."""

from __future__ import annotations

import os
from statistics import fmean

from machine_double import MOUNTINFO_V2, Texts, disk_line, rollup_text

from headrace.doctor.machine.host import TICKS_A_SECOND, Disks
from headrace.doctor.machine.kernel import Rates
from headrace.doctor.machine.processes import (
    Processes,
    ProcessMemoryReadings,
    ProcessTree,
    ReadingBudget,
)
from headrace.doctor.machine.sampler import ReadingTable

KIB = 1024


def processes(machine: Texts, root: int = 10) -> Processes:
    return Processes(machine, root, 0.0, lambda ticks: ticks * 1_000_000 // TICKS_A_SECOND)


def test_children_of_children_belong_and_others_do_not() -> None:
    machine = Texts()
    for pid, parent in ((10, 1), (11, 10), (12, 11), (20, 1), (21, 20)):
        machine.process(pid, parent=parent)
    assert ProcessTree(machine, 10).scan() == {10, 11, 12}


def test_a_child_with_a_lower_number_than_its_parent_belongs() -> None:
    machine = Texts()
    for pid, parent in ((10, 1), (900, 10), (3, 900)):
        machine.process(pid, parent=parent)
    assert ProcessTree(machine, 10).scan() == {3, 10, 900}


def test_who_is_given_to_another_parent_stays() -> None:
    machine = Texts()
    for pid, parent in ((10, 1), (11, 10), (12, 11)):
        machine.process(pid, parent=parent)
    tree = ProcessTree(machine, 10)
    tree.scan()
    machine.end(11)
    machine.process(12, parent=1)
    assert tree.scan() == {10, 12}


def test_who_lost_its_parent_before_it_was_seen_belongs_by_group_or_session() -> None:
    machine = Texts()
    machine.process(10, parent=1, group=10, session=10)
    machine.process(30, parent=1, group=10, session=5)
    machine.process(31, parent=1, group=31, session=10)
    machine.process(32, parent=1, group=32, session=5)
    assert ProcessTree(machine, 10).scan() == {10, 30, 31}


def test_an_orphan_in_a_session_of_its_own_that_the_doctor_adopted_belongs() -> None:
    machine = Texts()
    machine.process(10)
    machine.process(30, parent=os.getpid(), group=30, session=30)
    machine.process(31, parent=os.getpid(), group=os.getpgrp(), session=5)
    assert ProcessTree(machine, 10).scan() == {10, 30}  # no helper of the doctor's own, which is in its group


def test_the_orphan_of_a_session_whose_leader_has_just_gone_belongs() -> None:
    machine = Texts()
    machine.process(10)
    machine.process(11, parent=10, session=11)
    tree = ProcessTree(machine, 10)
    tree.scan()
    machine.end(11)
    machine.process(12, parent=1, group=12, session=11)
    assert tree.scan() == {10, 12}


def test_foreign_processes_are_looked_at_once() -> None:
    machine = Texts()
    machine.process(10)
    for pid in range(100, 200):
        machine.process(pid, parent=1)
    tree = ProcessTree(machine, 10)
    tree.scan()
    machine.asked.clear()
    tree.scan()
    assert machine.asked == []


def test_a_number_given_to_a_foreign_process_is_no_longer_ours() -> None:
    machine = Texts()
    machine.process(10)
    machine.process(11, parent=10, started=100, user=500)
    found = processes(machine)
    found.read(1.0)
    machine.end(11)
    found.read(2.0)
    machine.process(11, parent=1, started=900, user=7)
    assert found.read(3.0)["command_processes"] == 1
    assert found.figures()[11]["cpu_s"] == 500 / TICKS_A_SECOND


def test_a_number_given_again_within_the_command_is_the_later_process() -> None:
    machine = Texts()
    machine.process(10)
    machine.process(11, parent=10, started=100, user=500)
    found = processes(machine)
    found.read(1.0)
    machine.process(11, parent=10, started=900, user=7)
    found.read(2.0)
    found.read(3.0)
    assert found.figures()[11]["cpu_s"] == 7 / TICKS_A_SECOND
    assert found.figures()[11]["started"] == 900 * 1_000_000 // TICKS_A_SECOND


def test_what_a_process_used_without_permission_to_look_into_it() -> None:
    """Another user's process: stat only."""
    machine = Texts()
    machine.process(10, name="python", parent=4, user=150, system=50)
    found = processes(machine)
    row = found.read(1.0)
    figures = found.figures()[10]
    assert figures["cpu_s"] == 200 / TICKS_A_SECOND
    for unknown in ("read_call_bytes", "read_bytes", "pss_bytes_peak", "private_bytes_peak", "cow_bytes", "cpu_wait_s"):
        assert figures[unknown] is None
    assert row["command_pss_bytes"] is None
    assert row["command_read_bytes_per_s"] is None


def test_rates_are_of_all_processes_that_ever_were() -> None:
    machine = Texts()
    machine.process(10, user=0)
    machine.process(11, parent=10, user=100)
    found = processes(machine)
    found.read(0.0)
    machine.end(11)
    machine.process(10, user=TICKS_A_SECOND)
    assert found.read(2.0)["cpu_cores_command"] == 0.5


def test_what_a_worker_used_before_its_end_its_parent_tells() -> None:
    """Seen with 1 s, it ended with 1.5, and the trainer has waited for it; before, for one that had used 9."""
    second = TICKS_A_SECOND
    machine = Texts()
    machine.process(10, waited=9 * second)
    machine.process(11, parent=10, user=second)
    found = processes(machine)
    found.read(0.0)
    machine.end(11)
    machine.process(10, waited=9 * second + second * 3 // 2)
    assert found.read(2.0)["cpu_cores_command"] == 0.25
    assert found.read(4.0)["cpu_cores_command"] == 0


def test_an_orphan_keeps_what_it_was_seen_to_use() -> None:
    machine = Texts()
    machine.process(10)
    machine.process(11, parent=1, group=10, session=10, user=TICKS_A_SECOND)
    found = processes(machine)
    found.read(0.0)
    machine.end(11)
    machine.process(10, user=TICKS_A_SECOND)
    assert found.read(2.0)["cpu_cores_command"] == 0.5


def test_a_worker_that_came_between_readings_counts_with_all_it_used() -> None:
    machine = Texts()
    machine.process(10)
    found = processes(machine)
    found.read(0.0)
    machine.process(11, parent=10, user=TICKS_A_SECOND // 2)
    assert found.read(1.0)["cpu_cores_command"] == 0.5


def test_a_zombie_has_used_what_it_used_and_holds_nothing() -> None:
    machine = Texts()
    machine.process(10)
    machine.process(11, parent=10, user=10)
    machine.texts["/proc/11/io"] = "rchar: 5\nread_bytes: 6\nwrite_bytes: 7\n"
    found = processes(machine)
    found.read(0.0)
    del machine.texts["/proc/11/io"]
    machine.process(11, parent=10, state="Z", user=12)
    assert found.read(1.0)["command_processes"] == 1
    assert found.figures()[11]["cpu_s"] == 12 / TICKS_A_SECOND
    assert found.figures()[11]["read_call_bytes"] == 5


def test_mounts_of_files_that_are_open_to_read() -> None:
    machine = Texts({"/proc/10/mountinfo": MOUNTINFO_V2})
    machine.process(10)
    machine.texts["/proc/diskstats"] = disk_line(259, "nvme0n1", 1) + disk_line(259, "nvme0n1p2", 2)
    machine.texts["/sys/block/nvme0n1/queue/rotational"] = "0\n"
    files = ["/data/a.tar", "/cache/b.bin", "/data/log.txt", "/dev/null", "socket:[7]", "/home/x"]
    for number, path in enumerate(files):
        machine.links[f"/proc/10/fd/{number}"] = path
    machine.texts["/proc/10/fdinfo/0"] = "pos:\t0\nflags:\t0100000\n"
    machine.texts["/proc/10/fdinfo/2"] = "pos:\t0\nflags:\t0102001\n"
    found = processes(machine)
    found.read(0.0)
    told = {mount["path"]: mount for mount in found.facts()["mounts"]}
    assert set(told) == {"/data", "/cache", "/"}
    assert told["/data"] == {
        "path": "/data",
        "kind": "nfs4",
        "source": "server:/export two",
        "network": True,
        "disk": None,
        "files_seen": 1,
    }
    assert told["/cache"]["disk"] == "nvme0n1"  # the disk of btrfs's source, since its number is its own


def test_copying_is_what_shared_memory_lost_to_private_memory() -> None:
    memory = ProcessMemoryReadings()
    memory.read(smaps(anonymous=1000, private=100))
    assert memory.figures["cow_bytes"] is None  # growth needs two looks
    memory.read(smaps(anonymous=1000, private=400))
    assert memory.figures["cow_bytes"] == 300 * KIB
    assert memory.figures["shared_bytes_first"] == 900 * KIB


def test_new_memory_is_no_copy() -> None:
    memory = ProcessMemoryReadings()
    memory.read(smaps(anonymous=1000, private=100))
    memory.read(smaps(anonymous=1500, private=600))
    assert memory.figures["cow_bytes"] == 0


def test_inherited_memory_that_is_freed_is_no_copy() -> None:
    memory = ProcessMemoryReadings()
    memory.read(smaps(anonymous=1000, private=100))
    memory.read(smaps(anonymous=200, private=100))
    assert memory.figures["cow_bytes"] == 0


def test_a_sandbox_without_rollup_has_no_memory_figures() -> None:
    memory = ProcessMemoryReadings()
    memory.read({})
    memory.read({"Pss": 5})
    assert memory.figures == {
        "pss_bytes_peak": 5,
        "private_bytes_peak": None,
        "shared_bytes_first": None,
        "cow_bytes": None,
    }


def test_dear_readings_are_rare_and_no_one_is_passed_over() -> None:
    machine = Texts()
    for pid in (10, 11, 12):
        machine.process(pid, parent=10)
        machine.texts[f"/proc/{pid}/smaps_rollup"] = rollup_text(Pss=pid)
    found = processes(machine)
    found.read(0.0)
    assert {figures["pss_bytes_peak"] for figures in found.figures().values()} == {10 * KIB, 11 * KIB, 12 * KIB}
    machine.asked.clear()
    found.read(1.0)
    assert not [path for path in machine.asked if path.endswith("smaps_rollup")]
    found.read(6.0)
    assert len([path for path in machine.asked if path.endswith("smaps_rollup")]) == 3


def test_a_budget_that_is_overdrawn_waits_until_it_has_earned() -> None:
    budget = ReadingBudget(share=0.01, most_s=0.1, now_s=0.0)
    budget.left_s -= 0.15
    budget.earn(4.0)
    assert budget.left_s <= 0
    budget.earn(6.0)
    assert budget.left_s > 0
    budget.earn(10_000.0)
    budget.left_s -= 0.1
    assert budget.left_s <= 0  # no more than most_s to be saved up


def test_disks_without_their_partitions() -> None:
    machine = Texts()
    machine.texts["/sys/block/nvme0n1/queue/rotational"] = "0\n"
    machine.texts["/proc/diskstats"] = disk_line(259, "nvme0n1", 0, reads=1) + disk_line(259, "nvme0n1p1", 1, reads=1)
    disks = Disks(machine)
    disks.read(0.0)
    machine.texts["/proc/diskstats"] = disk_line(259, "nvme0n1", 0, reads=201, sectors=4000, read_ms=500) + disk_line(
        259, "nvme0n1p1", 1, reads=201
    )
    row = disks.read(2.0)
    assert {name.removeprefix("disk_nvme0n1_"): value for name, value in row.items()} == {
        "read_bytes_per_s": 4000 * 512 / 2,
        "read_latency_us": 2500,
    }
    assert disks.facts() == {"disks": {"nvme0n1": {"rotational": False}}}


def test_a_disk_that_was_never_used_is_left_out() -> None:
    machine = Texts({"/proc/diskstats": disk_line(7, "loop0", 0) + disk_line(8, "sda", 0, reads=1)})
    machine.texts |= {f"/sys/block/{name}/queue/rotational": "0" for name in ("loop0", "sda")}
    assert list(Disks(machine).facts()["disks"]) == ["sda"]


def test_a_counter_that_went_back_has_no_rate() -> None:
    rates = Rates()
    assert [rates.per_second("a", value, float(now)) for now, value in enumerate([5, 8, 2, None, 4, 5])] == [
        None,
        3,
        None,
        None,
        None,
        1,
    ]


def test_a_long_run_keeps_its_means_in_bounded_memory() -> None:
    """Each reading is the mean of the seconds since the one before, and there are fewer the longer the run."""
    table = ReadingTable(most_rows=8)
    second = 0
    while second < 64:
        second += table.merged
        seconds = range(second - table.merged + 1, second + 1)
        late: dict[str, float | None] = {"late": 1.0} if second > 32 else {}
        table.append(second, {"seconds": fmean(seconds), **late})
    assert (table.time, table.merged) == ([16, 32, 48, 64], 16)
    assert table.columns["seconds"] == [8.5, 24.5, 40.5, 56.5]
    assert table.columns["late"] == [None, None, 1.0, 1.0]


def test_two_readings_of_which_one_is_unknown_are_the_one_that_is_known() -> None:
    table = ReadingTable(most_rows=4)
    for reading, value in enumerate([None, 4.0, None, None]):
        table.append(reading, {"a": value})
    assert (table.time, table.columns["a"]) == ([1, 3], [4.0, None])


def smaps(*, anonymous: int, private: int) -> dict[str, int]:
    return {"Pss": anonymous * KIB, "Anonymous": anonymous * KIB, "Private_Dirty": private * KIB}
