"""Memory and disks that are short or slow: each finding where its cause is, and none where it is not."""

from __future__ import annotations

import pytest
from machine_findings import GB, Run, codes, machine_findings, only, quantities


def test_an_out_of_memory_kill_comes_first() -> None:
    columns = {"command_pss_bytes": 7.9 * GB, "cpu_cores_stolen": 0.4}
    found = machine_findings(
        Run(facts={"oom_kills": 1, "memory_limit_bytes": 8 * GB, "cores": 4}, columns=columns).session()
    )
    assert [finding.code for finding in found] == ["oom-kill", "cpu-stolen"]
    assert (quantities(found[0].text), quantities(found[0].evidence)) == (["1"], ["8.0 GB", "7.9 GB"])
    assert codes(Run(facts={"oom_kills": 0})) == []


def test_copies_of_what_was_shared_are_named() -> None:
    run = Run(
        facts={"memory_bytes": 16 * GB},
        workers=4,
        worker_figures={"cow_bytes": GB // 2, "shared_bytes_first": 2 * GB},
    )
    found = only(run)
    assert found.code == "copy-on-write"
    assert (quantities(found.text), quantities(found.evidence)) == (["2.0 GB"], ["4", "8.0 GB", "16 GB", "50 %"])
    run.worker_figures["cow_bytes"] = 1_000_000
    assert codes(run) == []


@pytest.mark.parametrize(
    ("total", "used", "figures"), [(64 << 20, 1 << 20, ["1.0 MB", "67 MB"]), (8 * GB, 7 * GB, ["7.0 GB", "8.0 GB"])]
)
def test_little_shared_memory(total: int, used: int, figures: list[str]) -> None:
    run = Run(facts={"shm_bytes": total}, columns={"shm_used_bytes": float(used)})
    assert (only(run).code, quantities(only(run).text)) == ("shm", figures)
    run.workers = 0
    assert codes(run) == []  # none without workers, which use it


def test_reads_that_come_from_disk() -> None:
    run = Run(
        facts={"memory_bytes": 8 * GB},
        columns={"command_read_bytes_per_s": 50e6, "pressure_io_some_share": 0.25},
        worker_figures={"read_call_bytes": 10 * GB, "read_bytes": 9 * GB},
    )
    found = only(run)
    assert (found.code, quantities(found.text)) == ("reads-from-disk", ["90 %"])
    assert quantities(found.evidence) == ["18 GB", "50 MB", "25 %", "8.0 GB"]
    run.facts["memory_bytes"] = 64 * GB
    assert quantities(only(run).evidence)[-1] == "64 GB"
    run.worker_figures["read_bytes"] = GB // 10
    assert codes(run) == []
