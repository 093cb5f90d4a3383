"""GPUs by NVML, on a library that is a double; and the real one, which has none here or tells the truth."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from nvml_double import Device, Library, NVMLError

import headrace.doctor.machine as machine_package
from headrace.doctor.machine.gpus import Gpus, Nvml, open_nvml

MIB = 1 << 20


def gpus(*devices: Device) -> tuple[Gpus, Library]:
    library = Library(*devices)
    return Gpus(lambda: (Nvml(library), None)), library


def hopper(**answers: Any) -> Device:
    return Device(
        {
            "Name": "NVIDIA H100",
            "UUID": b"GPU-1",
            "MemoryInfo": SimpleNamespace(total=80 << 30, used=20 << 30),
            "UtilizationRates": SimpleNamespace(gpu=97, memory=3),
            "ClockInfo": {1: 1200, 2: 2600},
            "MaxClockInfo": {1: 1980, 2: 2619},
            "PowerUsage": 350_500,
            "EnforcedPowerLimit": 700_000,
            "CurrentClocksEventReasons": 0x04,
            "CurrPcieLinkGeneration": 5,
            "CurrPcieLinkWidth": 8,
            "MaxPcieLinkGeneration": 5,
            "MaxPcieLinkWidth": 16,
            "ComputeRunningProcesses": [SimpleNamespace(pid=42)],
            "MigMode": [0, 0],
            **answers,
        },
        has_gpm=True,
        gpm={2: 31.5, 3: 20.0, 5: 10.0, 10: 4.0, 20: 1.0, 21: 2.0},
    )


def test_a_gpu_whose_driver_knows_its_sms() -> None:
    found, library = gpus(hopper())
    first = found.read(0.0)
    assert first["gpu0_sm_percent"] is None  # activity needs a second sample
    assert found.read(1.0) == {
        "gpu0_utilisation_percent": 97,
        "gpu0_sm_percent": 31.5,
        "gpu0_occupancy_percent": 20.0,
        "gpu0_tensor_percent": 10.0,
        "gpu0_memory_bandwidth_percent": 4.0,
        "gpu0_memory_used_bytes": 20 << 30,
        "gpu0_sm_clock_mhz": 1200,
        "gpu0_memory_clock_mhz": 2600,
        "gpu0_power_w": 350.5,
        "gpu0_slowed_by_heat": 0.0,
        "gpu0_slowed_by_power": 1.0,
        "gpu0_pcie_sent_bytes_per_s": MIB,
        "gpu0_pcie_received_bytes_per_s": 2 * MIB,
    }
    assert found.facts()["gpus"]["gpu0"] == {
        "name": "NVIDIA H100",
        "uuid": "GPU-1",
        "memory_bytes": 80 << 30,
        "sm_clock_max_mhz": 1980,
        "memory_clock_max_mhz": 2619,
        "power_limit_w": 700,
        "pcie_generation": 5,
        "pcie_width": 8,
        "pcie_generation_max": 5,
        "pcie_width_max": 16,
        "has_sm_activity": True,
        "pids": [42],
    }
    assert "nvmlDeviceGetPcieThroughput" not in library.called  # no call that waits 20 ms
    found.close()
    assert (library.samples, library.is_open) == (0, False)


def test_an_older_gpu_has_utilisation_alone_and_the_old_name_of_reasons() -> None:
    device = hopper(
        CurrentClocksEventReasons=NVMLError("Function Not Found"),
        CurrentClocksThrottleReasons=0x40,
        PcieThroughput={0: 10, 1: 20},
    )
    device.has_gpm = False
    found, _ = gpus(device)
    found.read(0.0)
    row = found.read(1.0)
    assert row["gpu0_sm_percent"] is None
    assert row["gpu0_utilisation_percent"] == 97
    assert (row["gpu0_slowed_by_heat"], row["gpu0_slowed_by_power"]) == (1.0, 0.0)
    assert (row["gpu0_pcie_sent_bytes_per_s"], row["gpu0_pcie_received_bytes_per_s"]) == (10_000, 20_000)
    found.close()


def test_an_idle_link_is_no_narrow_one() -> None:
    device = hopper(CurrPcieLinkGeneration=1, CurrPcieLinkWidth=16)
    found, _ = gpus(device)
    found.read(0.0)
    device.answers.update(CurrPcieLinkGeneration=5)
    found.read(1.0)
    device.answers.update(CurrPcieLinkGeneration=1)
    found.read(2.0)
    facts = found.facts()["gpus"]["gpu0"]
    assert (facts["pcie_generation"], facts["pcie_width"]) == (5, 16)
    found.close()


def test_a_metric_that_fails_is_unknown_and_the_others_are_not() -> None:
    device = hopper()
    del device.gpm[5]
    found, _ = gpus(device)
    found.read(0.0)
    row = found.read(1.0)
    assert row["gpu0_tensor_percent"] is None
    assert row["gpu0_sm_percent"] == 31.5
    found.close()


def test_each_mig_instance_is_a_gpu_of_its_own() -> None:
    card = hopper(MigMode=[1, 1])
    for number, (instance, used) in enumerate([(7, 1), (9, 2)]):
        memory = SimpleNamespace(total=10 << 30, used=used << 30)
        answers = {"GpuInstanceId": instance, "MemoryInfo": memory, "UUID": f"MIG-{instance}"}
        card.migs[number] = Device(answers, gpm={2: float(instance)})
    found, _ = gpus(card, hopper())
    found.read(0.0)
    row = found.read(1.0)
    assert (row["gpu0_mig0_sm_percent"], row["gpu0_mig1_sm_percent"], row["gpu1_sm_percent"]) == (7.0, 9.0, 31.5)
    assert row["gpu0_mig1_memory_used_bytes"] == 2 << 30
    assert row["gpu0_mig0_utilisation_percent"] is None  # none: NVML refuses it in MIG mode
    assert set(found.facts()["gpus"]) == {"gpu0_mig0", "gpu0_mig1", "gpu1"}
    assert found.facts()["nvml_untold"]["nvmlDeviceGetUtilizationRates"] == "NVMLError: Not Supported"
    found.close()


def test_a_gpu_that_tells_nothing() -> None:
    found, _ = gpus(Device())
    found.read(0.0)
    assert set(found.read(1.0).values()) == {None}
    facts = found.facts()["gpus"]["gpu0"]
    assert {value for name, value in facts.items() if name != "has_sm_activity"} == {None}
    found.close()


def test_without_nvml_the_reason_is_told() -> None:
    found = Gpus(lambda: (None, "NVML: none"))
    assert found.read(0.0) == {}
    assert found.facts() == {"gpus": None, "gpus_unknown": "NVML: none"}
    found.close()


def test_without_the_package_the_reason_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    nvml, why = open_nvml()
    assert nvml is None
    assert why is not None
    assert why.endswith("install nvidia-ml-py")


def test_every_function_that_is_asked_is_one_of_nvml() -> None:
    """The double answers to any name; the package must know each, and none may set anything."""
    folder = Path(str(machine_package.__file__)).parent
    source = (folder / "gpus.py").read_text()
    asked = set(re.findall(r"\b(?:nvml[A-Z]\w+|NVML_\w+|c_nvml\w+)", source)) - {"nvmlReturn"}
    assert "nvmlReturn" in dict(pynvml.c_nvmlGpmMetric_t._fields_)
    assert len(asked) > 20
    assert [name for name in sorted(asked) if not hasattr(pynvml, name)] == []
    assert [name for name in asked if re.search("Set|Reset|Clear|Freeze", name)] == []
