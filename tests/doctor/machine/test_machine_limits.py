"""Quotas and limits of control groups: version 1, version 2, nested, and as containers see them."""

from __future__ import annotations

import pytest
from machine_double import MOUNTINFO_V1, MOUNTINFO_V2, Texts

from headrace.doctor.machine.host import TICKS_A_SECOND, Cores, MachineMemory, Pressure
from headrace.doctor.machine.kernel import Space
from headrace.system import ControlGroups

GIB = 1 << 30
UNLIMITED_V1 = "9223372036854771712\n"


def unified(path: str, **files: str) -> Texts:
    """A machine of version 2; files as `a__cpu_max` for /sys/fs/cgroup/a/cpu.max."""
    texts = {"/proc/7/mountinfo": MOUNTINFO_V2, "/proc/7/cgroup": f"0::{path}\n"}
    for name, text in files.items():
        folder, _, file = name.rpartition("__")
        texts["/".join(filter(None, ["/sys/fs/cgroup", folder.replace("__", "/"), file.replace("_", ".", 1)]))] = text
    return Texts(texts)


def legacy(path: str, files: dict[str, str]) -> Texts:
    cgroup = f"4:memory:{path}\n2:cpu,cpuacct:{path}\n0::/\n"
    return Texts({"/proc/7/mountinfo": MOUNTINFO_V1, "/proc/7/cgroup": cgroup, **files})


def test_the_smallest_quota_on_the_path_binds() -> None:
    machine = unified(
        "/pod/run", pod__cpu_max="350000 100000\n", pod__run__cpu_max="max 100000\n", cpu_max="800000 100000"
    )
    assert ControlGroups(machine.text, 7).quota_cores() == 3.5


def test_without_a_quota_none_is_known() -> None:
    assert ControlGroups(unified("/run", run__cpu_max="max 100000\n").text, 7).quota_cores() is None


def test_a_quota_of_version_1() -> None:
    folder = "/sys/fs/cgroup/cpu,cpuacct/docker/ab"
    machine = legacy(
        "/docker/ab", {f"{folder}/cpu.cfs_quota_us": "150000\n", f"{folder}/cpu.cfs_period_us": "100000\n"}
    )
    assert ControlGroups(machine.text, 7).quota_cores() == 1.5


def test_version_1_says_no_quota_as_minus_one() -> None:
    folder = "/sys/fs/cgroup/cpu,cpuacct"
    machine = legacy("/", {f"{folder}/cpu.cfs_quota_us": "-1\n", f"{folder}/cpu.cfs_period_us": "100000\n"})
    assert ControlGroups(machine.text, 7).quota_cores() is None


@pytest.mark.parametrize("path", ["/docker/ab", "/", "/../../elsewhere"])
def test_a_container_sees_its_own_group_at_the_mount_point(path: str) -> None:
    """Docker mounts the container's group alone (the mount's root); a namespace shows it as `/`, or as outside."""
    root = "/docker/ab" if path == "/docker/ab" else "/"
    text = f"31 23 0:28 {root} /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
    machine = Texts(
        {"/proc/7/mountinfo": text, "/proc/7/cgroup": f"0::{path}\n", "/sys/fs/cgroup/cpu.max": "200000 100000\n"}
    )
    assert ControlGroups(machine.text, 7).quota_cores() == 2


def test_no_control_groups_mounted() -> None:
    groups = ControlGroups(Texts({"/proc/7/cgroup": "0::/\n"}).text, 7)
    assert (groups.quota_cores(), groups.memory_limit_bytes(), groups.memory_used_bytes(), groups.oom_kills()) == (
        None,
    ) * 4
    assert groups.path is None


def test_the_smallest_memory_limit_binds_and_its_group_tells_the_use() -> None:
    machine = unified(
        "/pod/run",
        pod__memory_max=f"{8 * GIB}\n",
        pod__memory_current=f"{6 * GIB}\n",
        pod__memory_stat=f"anon 5\ninactive_file {1 * GIB}\n",
        pod__run__memory_max="max\n",
        pod__run__memory_current=f"{2 * GIB}\n",
    )
    groups = ControlGroups(machine.text, 7)
    assert groups.memory_limit_bytes() == 8 * GIB
    assert groups.memory_used_bytes() == 5 * GIB


def test_an_unlimited_group_of_version_1_has_use_and_no_limit() -> None:
    folder = "/sys/fs/cgroup/memory/a"
    machine = legacy(
        "/a",
        {
            f"{folder}/memory.limit_in_bytes": UNLIMITED_V1,
            f"{folder}/memory.usage_in_bytes": "170487808\n",
            f"{folder}/memory.stat": "inactive_file 1\ntotal_inactive_file 46657536\n",
        },
    )
    groups = ControlGroups(machine.text, 7)
    assert groups.memory_limit_bytes() is None
    assert groups.memory_used_bytes() == 170487808 - 46657536


def test_kills_of_the_run_are_those_since_its_start() -> None:
    machine = unified("/run", run__memory_events="low 0\noom 3\noom_kill 3\n", memory_events="oom_kill 40\n")
    memory = MachineMemory(machine, ControlGroups(machine.text, 7))
    machine.texts["/sys/fs/cgroup/run/memory.events"] = "oom 5\noom_kill 5\n"
    machine.texts["/sys/fs/cgroup/memory.events"] = "oom_kill 77\n"
    assert memory.facts()["oom_kills"] == 2


def test_kills_are_the_machines_where_no_group_counts_them() -> None:
    machine = Texts({"/proc/vmstat": "pswpin 0\noom_kill 1\n"})
    memory = MachineMemory(machine, ControlGroups(machine.text, 7))
    assert memory.facts()["oom_kills"] == 0
    machine.texts["/proc/vmstat"] = "pswpin 0\noom_kill 2\n"
    assert memory.facts()["oom_kills"] == 1


def test_throttling_is_a_share_of_periods_and_cores_held_back() -> None:
    machine = unified("/run", run__cpu_stat="usage_usec 9\nnr_periods 100\nnr_throttled 10\nthrottled_usec 1000000\n")
    cores = Cores(machine, 7, ControlGroups(machine.text, 7))
    cores.read(0.0)
    machine.texts["/sys/fs/cgroup/run/cpu.stat"] = "nr_periods 120\nnr_throttled 15\nthrottled_usec 4000000\n"
    row = cores.read(2.0)
    assert row["cpu_throttled_periods_share"] == 0.25
    assert row["cpu_throttled_cores"] == 1.5


def test_throttling_of_version_1_is_in_nanoseconds() -> None:
    file = "/sys/fs/cgroup/cpu,cpuacct/cpu.stat"
    machine = legacy("/", {file: "nr_periods 10\nnr_throttled 0\nthrottled_time 0\n"})
    cores = Cores(machine, 7, ControlGroups(machine.text, 7))
    cores.read(0.0)
    machine.texts[file] = "nr_periods 20\nnr_throttled 10\nthrottled_time 500000000\n"
    assert cores.read(1.0)["cpu_throttled_cores"] == 0.5


def test_only_the_cores_of_the_affinity_count() -> None:
    machine = Texts({"/proc/7/status": "Name:\tpython\nCpus_allowed_list:\t1-2\n"})
    cores = Cores(machine, 7, ControlGroups(machine.text, 7))
    tick = TICKS_A_SECOND
    machine.texts["/proc/stat"] = "cpu 0 0 0\n" + "".join(f"cpu{core} 0 0 0 0 0 0 0 0\n" for core in range(4))
    cores.read(0.0)
    machine.texts["/proc/stat"] = (
        f"cpu0 {tick} 0 0 0 0 0 0 0 0 0\ncpu1 {tick} 0 {tick // 2} 0 {tick // 2} 0 0 0 0 0\n"
        f"cpu2 0 {tick // 2} 0 0 0 0 0 {tick // 4} 0 0\ncpu3 {tick} 0 0 0 0 0 0 0 0 0\n"
    )
    row = cores.read(1.0)
    assert row["cpu_cores_user"] == 1.5
    assert row["cpu_cores_system"] == 0.5
    assert row["cpu_cores_busy"] == 2.0
    assert row["cpu_cores_waiting"] == 0.5
    assert row["cpu_cores_stolen"] == 0.25
    assert cores.facts()["cores_affinity"] == 2


def test_a_sandbox_whose_times_stand_still_has_no_busy_cores() -> None:
    """gVisor writes zeros, and 0 busy cores would be a lie."""
    machine = Texts({"/proc/stat": "cpu 0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n"})
    cores = Cores(machine, 7, ControlGroups(machine.text, 7))
    cores.read(0.0)
    row = cores.read(1.0)
    assert {name: value for name, value in row.items() if value is not None} == {}


def test_cores_are_the_lesser_of_affinity_and_quota() -> None:
    machine = unified("/run", run__cpu_max="150000 100000\n")
    machine.texts["/proc/7/status"] = "Cpus_allowed_list:\t0-7\n"
    machine.texts["/proc/cpuinfo"] = "processor\t: 0\nmodel name\t: AMD EPYC\nsiblings\t: 16\n"
    facts = Cores(machine, 7, ControlGroups(machine.text, 7)).facts()
    assert (facts["cores"], facts["cores_affinity"], facts["cores_quota"]) == (1.5, 8, 1.5)
    assert facts["cpu_model"] == "AMD EPYC"


def test_pressure_is_of_the_own_group_where_it_has_any() -> None:
    machine = unified("/run", run__cpu_pressure="some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n")
    machine.texts["/proc/pressure/cpu"] = "some total=99\n"
    pressure = Pressure(machine, ControlGroups(machine.text, 7))
    pressure.read(0.0)
    machine.texts["/sys/fs/cgroup/run/cpu.pressure"] = "some avg10=0.00 total=1500000\n"
    row = pressure.read(2.0)
    assert row["pressure_cpu_some_share"] == 0.25
    assert pressure.facts() == {"pressure_of": "cgroup"}


def test_pressure_of_the_machine_else() -> None:
    machine = Texts({"/proc/pressure/cpu": "some total=0\n", "/proc/pressure/io": "some total=0\nfull total=0\n"})
    pressure = Pressure(machine, ControlGroups(machine.text, 7))
    pressure.read(0.0)
    machine.texts["/proc/pressure/io"] = "some avg10=1.0 total=700000\nfull avg10=1.0 total=400000\n"
    row = pressure.read(1.0)
    assert row["pressure_io_some_share"] == 0.7
    assert row["pressure_memory_some_share"] is None
    assert pressure.facts() == {"pressure_of": "machine"}


def test_memory_swap_and_shared_memory() -> None:
    info = "MemTotal: 1000 kB\nMemAvailable: 400 kB\nCached: 300 kB\nSwapTotal: 200 kB\nSwapFree: 50 kB\n"
    machine = Texts({"/proc/meminfo": info, "/proc/vmstat": "pswpin 10\npswpout 0\n"})
    machine.spaces["/dev/shm"] = Space(total_bytes=64 << 20, used_bytes=60 << 20)
    memory = MachineMemory(machine, ControlGroups(machine.text, 7))
    memory.read(0.0)
    machine.texts["/proc/vmstat"] = "pswpin 14\npswpout 2\n"
    row = memory.read(2.0)
    page = 4096
    assert row["memory_available_bytes"] == 400 * 1024
    assert row["swap_used_bytes"] == 150 * 1024
    assert (row["swap_in_bytes_per_s"], row["swap_out_bytes_per_s"]) == (2 * page, page)
    assert row["shm_used_bytes"] == 60 << 20
    assert memory.facts()["shm_bytes"] == 64 << 20
    assert memory.facts()["memory_limit_bytes"] is None


@pytest.mark.parametrize(
    ("texts", "container"),
    [
        ({"/proc/7/cgroup": "0::/kubepods.slice/pod1/cri-ab\n"}, "Kubernetes"),
        ({"/proc/7/cgroup": "4:memory:/docker/ab\n"}, "Docker"),
        ({"/.dockerenv": ""}, "Docker"),
        ({"/run/.containerenv": ""}, "Podman"),
        ({"/proc/version": "Linux version 4.19.0-gvisor\n"}, "gVisor"),
        ({"/proc/7/cgroup": "0::/user.slice\n", "/proc/version": "Linux version 6.1"}, None),
    ],
)
def test_what_container_it_is(texts: dict[str, str], container: str | None) -> None:
    machine = Texts(texts)
    assert Cores(machine, 7, ControlGroups(machine.text, 7)).facts()["container"] == container
