"""Memory and disks that are short or slow: each finding where its cause is, and none where it is not."""

from __future__ import annotations

import pytest
from machine_findings import GB, Run, codes, only

from headrace.doctor.causes.findings import machine_findings


def test_an_out_of_memory_kill_comes_first() -> None:
    columns = {"command_pss_bytes": 7.9 * GB, "cpu_cores_stolen": 0.4}
    found = machine_findings(
        Run(facts={"oom_kills": 1, "memory_limit_bytes": 8 * GB, "cores": 4}, columns=columns).session()
    )
    assert [finding.code for finding in found] == ["oom-kill", "cpu-stolen"]
    assert found[0].text == "The kernel killed 1 process because memory ran out during the run."
    assert found[0].evidence == "In a control group of 8.0 GB; the command held 7.9 GB at most, as far as was seen."
    assert codes(Run(facts={"oom_kills": 0})) == []


def test_memory_that_nears_its_limit() -> None:
    run = Run(facts={"memory_limit_bytes": 10 * GB}, columns={"cgroup_memory_used_bytes": 9.5 * GB})
    assert only(run).text == "Memory is nearly used up: 9.5 GB of 10 GB."
    run.columns = {"cgroup_memory_used_bytes": 8.0 * GB}
    assert codes(run) == []


def test_swapping() -> None:
    columns = {"swap_in_bytes_per_s": 5e6, "swap_out_bytes_per_s": None, "pressure_memory_some_share": 0.3}
    found = only(Run(columns={**columns, "swap_used_bytes": 2 * GB, "memory_available_bytes": 0.1 * GB}))
    assert found.text == "The machine swaps 5.0 MB a second."
    assert found.evidence == "2.0 GB of swap in use, 100 MB of memory left at the least."
    assert found.weight == pytest.approx(0.3)


def test_copies_of_what_was_shared_are_named() -> None:
    run = Run(
        facts={"memory_bytes": 16 * GB},
        workers=4,
        worker_figures={"cow_bytes": GB // 2, "shared_bytes_first": 2 * GB},
    )
    found = only(run)
    assert found.code == "copy-on-write"
    assert found.text == "Workers copied 2.0 GB of memory that they shared with their parent."
    assert found.evidence == (
        "4 workers; they shared 8.0 GB when first seen, and can grow by that much, of 16 GB that there is (50 %)."
    )
    run.worker_figures["cow_bytes"] = 1_000_000
    assert codes(run) == []


@pytest.mark.parametrize(("total", "used", "word"), [(64 << 20, 1 << 20, "small"), (8 * GB, 7 * GB, "nearly full")])
def test_little_shared_memory(total: int, used: int, word: str) -> None:
    run = Run(facts={"shm_bytes": total}, columns={"shm_used_bytes": float(used)})
    assert only(run).text.startswith(f"/dev/shm is {word}: ")
    run.workers = 0
    assert codes(run) == [], "expected none without workers, which use it"


def test_reads_that_come_from_disk() -> None:
    run = Run(
        facts={"memory_bytes": 8 * GB},
        columns={"command_read_bytes_per_s": 50e6, "pressure_io_some_share": 0.25},
        worker_figures={"read_call_bytes": 10 * GB, "read_bytes": 9 * GB},
    )
    found = only(run)
    assert found.text == "90 % of what is read comes from disk, not from the page cache."
    assert found.evidence == (
        "18 GB in all, 50 MB a second; something waited for storage 25 % of the time; "
        "that is more than the 8.0 GB of memory, so it cannot all be cached."
    )
    run.facts["memory_bytes"] = 64 * GB
    assert "it is unknown whether" in only(run).evidence
    run.worker_figures["read_bytes"] = GB // 10
    assert codes(run) == []


def test_data_that_comes_over_a_network() -> None:
    mounts = [
        {"path": "/data", "kind": "nfs4", "source": "server:/export", "network": True, "files_seen": 12},
        {"path": "/", "kind": "ext4", "source": "/dev/vda", "network": False, "files_seen": 1},
    ]
    run = Run(facts={"mounts": mounts}, columns={"command_read_call_bytes_per_s": 30e6})
    found = only(run)
    assert found.text == "Data is read over a network: /data (nfs4, from server:/export)."
    assert found.evidence == "30 MB a second in all; this machine's disk figures do not include it."
    run.columns = {"command_read_call_bytes_per_s": 10.0}
    assert codes(run) == []
    run = Run(facts={"mounts": mounts[1:]}, columns={"command_read_call_bytes_per_s": 30e6})
    assert codes(run) == []


def test_a_disk_that_gives_no_more() -> None:
    disk = {"busy_share": 0.97, "read_bytes_per_s": 120e6, "reads_per_s": 250.0, "read_latency_us": 8000.0}
    columns: dict[str, float | None] = {f"disk_sda_{name}": value for name, value in disk.items()}
    found = only(Run(facts={"disks": {"sda": {}, "sdb": {}}}, columns={**columns, "pressure_io_some_share": 0.5}))
    assert found.text == "Disk sda is busy 97 % of the time."
    assert found.evidence == (
        "120 MB and 250 reads a second, 8 ms each; something waited for storage 50 % of the time."
    )
    assert codes(Run(facts={"disks": {"sda": {}}}, columns={**columns, "pressure_io_some_share": 0.0})) == []
