"""GPUs that are held back or idle: each finding where its cause is, and none where it is not."""

from __future__ import annotations

import pytest
from machine_findings import GB, GPU, TRAINER, Run, codes, gpu, only, quantities

from headrace.doctor.causes.findings import machine_findings


@pytest.mark.parametrize(
    ("run", "code", "text", "evidence"),
    [
        (
            gpu({"memory_used_bytes": 20.0 * GB}),
            "gpu-memory-left",
            ["0", "60 GB", "80 GB"],
            [],
        ),
        (
            gpu({"utilisation_percent": 98.0, "sm_percent": 23.0}),
            "gpu-util",
            ["0", "98 %", "23 %"],
            [],
        ),
    ],
)
def test_gpus(run: Run, code: str, text: list[str], evidence: list[str]) -> None:
    found = only(run)
    assert (found.code, quantities(found.text), quantities(found.evidence)) == (code, text, evidence)
    assert 0 <= found.weight <= 0.5


def test_a_gpu_at_its_best_finds_nothing() -> None:
    columns: dict[str, float | None] = {
        "memory_used_bytes": 70.0 * GB,
        "utilisation_percent": 99.0,
        "sm_percent": 90.0,
    }
    assert codes(gpu(columns)) == []


def test_a_gpu_of_another_command_is_left_alone() -> None:
    run = gpu({"memory_used_bytes": 1.0 * GB})
    run.facts["gpus"]["gpu0"]["pids"] = [TRAINER + 1]
    run.facts["gpus"]["gpu1"] = {**GPU, "pids": [9]}
    run.columns["gpu1_memory_used_bytes"] = 1.0 * GB
    assert [finding.text[:5] for finding in machine_findings(run.session())] == ["GPU 0"]


def test_in_a_container_whose_processes_have_other_numbers_the_gpus_in_use_count() -> None:
    run = gpu({"memory_used_bytes": 1.0 * GB}, pids=[987_654])
    assert codes(run) == []  # none for a command that does not train on a GPU
    run.device = "NVIDIA H100"
    assert codes(run) == ["gpu-memory-left"]


def test_a_gpu_by_its_mig_instance() -> None:
    run = gpu({})
    run.facts["gpus"] = {"gpu0_mig1": GPU}
    run.columns = {"gpu0_mig1_memory_used_bytes": 1.0 * GB}
    assert quantities(only(run).text)[:2] == ["0", "1"]
