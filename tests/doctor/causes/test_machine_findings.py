"""What the machine had to do with it: each finding where its cause is, and none where it is not."""

from __future__ import annotations

from typing import Any

import pytest
from machine_findings import GB, THREADS, Run, codes, machine_findings, only, quantities


def test_nothing_measured_finds_nothing() -> None:
    assert codes(Run()) == []
    assert codes(Run(facts={"gpus": None, "disks": {}, "mounts": []}, columns={"cpu_cores_busy": None})) == []


def test_only_the_measured_steps_count() -> None:
    run = Run(facts={"cores": 4})
    session = run.session()
    session.machines[0].columns["cpu_cores_stolen"] = [None, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 0.0, 0.0, 0.0]
    session.trainers[0].steps.start = [7]
    assert machine_findings(session) == []


def test_a_machine_is_named_where_there_are_several() -> None:
    session = Run(facts={"cores": 4}, columns={"cpu_cores_stolen": 0.4}).session()
    session.machines.append(Run(facts={"cores": 4}, columns={"cpu_cores_stolen": 0.8}, host="there").machine([]))
    assert [finding.text.split(":")[0] for finding in machine_findings(session)] == ["there", "here"]


def test_an_out_of_memory_kill_comes_first() -> None:
    columns = {"command_pss_bytes": 7.9 * GB, "cpu_cores_stolen": 0.4}
    facts = {"oom_kills": 1, "memory_limit_bytes": 8 * GB, "cores": 4}
    found = machine_findings(Run(facts=facts, columns=columns).session())
    assert [finding.code for finding in found] == ["oom-kill", "cpu-stolen"]
    assert (quantities(found[0].text), quantities(found[0].evidence)) == (["1"], ["8.0 GB", "7.9 GB"])
    assert codes(Run(facts={"oom_kills": 0})) == []


def test_copies_of_what_was_shared_are_named() -> None:
    copied = {"cow_bytes": GB // 2, "shared_bytes_first": 2 * GB}
    run = Run(facts={"memory_bytes": 16 * GB}, workers=4, worker_figures=copied)
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
    columns = {"command_read_bytes_per_s": 50e6, "pressure_io_some_share": 0.25}
    read = {"read_call_bytes": 10 * GB, "read_bytes": 9 * GB}
    run = Run(facts={"memory_bytes": 8 * GB}, columns=columns, worker_figures=read)
    found = only(run)
    assert (found.code, quantities(found.text)) == ("reads-from-disk", ["90 %"])
    assert quantities(found.evidence) == ["18 GB", "50 MB", "25 %", "8.0 GB"]
    run.facts["memory_bytes"] = 64 * GB
    assert quantities(only(run).evidence)[-1] == "64 GB"
    run.worker_figures["read_bytes"] = GB // 10
    assert codes(run) == []


def test_threads_that_share_cores() -> None:
    found = only(THREADS)
    assert found.code == "threads"
    assert quantities(found.text) == ["17", "4"]
    assert quantities(found.evidence) == ["2", "8", "1", "1", "40 %"]
    assert "cv2.setNumThreads(0)" in found.advice
    assert found.weight == pytest.approx(0.4)


def test_an_opencv_that_was_never_called_has_no_threads() -> None:
    facts = {"torch_threads": 1, "omp_threads": 1, "opencv_threads": None}
    assert "threads" not in codes(Run(**{**vars(THREADS), "facts": {"cores": 2}, "worker_facts": facts}))


def test_a_trainer_without_a_gpu_computes_with_torchs_threads() -> None:
    run = Run(
        facts={"cores": 2}, workers=0, trainer_facts={"torch_threads": 8}, columns={"pressure_cpu_some_share": 0.5}
    )
    assert quantities(only(run).text) == ["8", "2"]
    run.device = "NVIDIA H100"
    assert codes(run) == []


@pytest.mark.parametrize(
    "change",
    [
        {"facts": {"cores": 17}},
        {"facts": {}},
        {"worker_figures": {"cpu_wait_s": 0.5}},
        {"worker_facts": {}},
        {"worker_facts": {"torch_threads": 1, "opencv_threads": 1}},
    ],
)
def test_threads_that_have_cores_or_are_unknown(change: dict[str, Any]) -> None:
    run = Run(**{**vars(THREADS), **change})
    assert "threads" not in codes(run)


def test_threads_whose_waiting_was_not_measured_weigh_nothing() -> None:
    found = only(Run(**{**vars(THREADS), "worker_figures": {}}))
    assert found.weight == 0
    assert "not measured" in found.evidence


def test_more_workers_than_cores() -> None:
    run = Run(
        facts={"cores": 1.5, "cores_quota": 1.5, "cores_online": 64}, workers=8, worker_figures={"cpu_wait_s": 7.0}
    )
    found = only(run)
    assert (found.code, quantities(found.text)) == ("workers-cores", ["8", "1.5"])
    assert quantities(found.evidence)[:2] == ["1.5", "64"]
    run.worker_figures = {"cpu_wait_s": 0.2}
    assert codes(run) == []  # none where they wait for storage, not for cores


def test_cores_held_back_by_a_quota() -> None:
    columns = {"cpu_throttled_cores": 0.5, "cpu_throttled_periods_share": 0.4, "cpu_cores_command": 2.0}
    found = only(Run(facts={"cores_quota": 2.0}, columns=columns))
    assert found.code == "cpu-throttled"
    assert (quantities(found.text), quantities(found.evidence)) == (["40 %"], ["2", "0.5"])
    assert found.weight == pytest.approx(0.2)
    assert codes(Run(columns={**columns, "cpu_throttled_periods_share": 0.0})) == []


def test_waiting_that_others_cause_is_not_laid_to_threads() -> None:
    columns = {"cpu_cores_busy": 4.0, "cpu_cores_other": 3.0, "cpu_cores_command": 1.0}
    found = machine_findings(Run(**{**vars(THREADS), "columns": columns}).session())
    assert [(finding.code, finding.weight) for finding in found] == [("threads", pytest.approx(0.1))]


def test_cores_given_to_other_machines() -> None:
    found = only(Run(facts={"cores": 4}, columns={"cpu_cores_stolen": 0.4}))
    assert (found.code, found.weight) == ("cpu-stolen", pytest.approx(0.1))
