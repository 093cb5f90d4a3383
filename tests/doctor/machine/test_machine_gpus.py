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


def gpus(*devices: Device) -> tuple[Gpus, Library]:
    library = Library(*devices)
    return Gpus(lambda: (Nvml(library), None)), library


def hopper(**answers: Any) -> Device:
    return Device(
        {
            "Name": b"NVIDIA H100",
            "MemoryInfo": SimpleNamespace(total=80 << 30, used=20 << 30),
            "UtilizationRates": SimpleNamespace(gpu=97, memory=3),
            "ClockInfo": {1: 1200},
            "MaxClockInfo": {1: 1980},
            "CurrentClocksEventReasons": 0x04,
            "MigMode": [0, 0],
            **answers,
        },
        has_gpm=True,
        gpm={2: 31.5},
    )


def test_a_gpu_whose_driver_knows_its_sms() -> None:
    found, library = gpus(hopper())
    first = found.read(0.0)
    assert first["gpu0_sm_percent"] is None  # activity needs a second sample
    assert found.read(1.0) == {
        "gpu0_utilisation_percent": 97,
        "gpu0_sm_percent": 31.5,
        "gpu0_memory_used_bytes": 20 << 30,
        "gpu0_sm_clock_mhz": 1200,
        "gpu0_slowed_by_heat": 0.0,
        "gpu0_slowed_by_power": 1.0,
    }
    assert found.facts()["gpus"]["gpu0"] == {
        "name": "NVIDIA H100",
        "memory_bytes": 80 << 30,
        "sm_clock_max_mhz": 1980,
    }
    found.close()
    assert (library.samples, library.is_open) == (0, False)


def test_an_older_gpu_has_utilisation_alone_and_the_old_name_of_reasons() -> None:
    device = hopper(
        CurrentClocksEventReasons=NVMLError("Function Not Found"),
        CurrentClocksThrottleReasons=0x40,
    )
    device.has_gpm = False
    found, _ = gpus(device)
    found.read(0.0)
    row = found.read(1.0)
    assert row["gpu0_sm_percent"] is None
    assert row["gpu0_utilisation_percent"] == 97
    assert (row["gpu0_slowed_by_heat"], row["gpu0_slowed_by_power"]) == (1.0, 0.0)
    found.close()


def test_a_metric_that_fails_is_unknown() -> None:
    device = hopper()
    device.gpm.clear()
    found, _ = gpus(device)
    found.read(0.0)
    row = found.read(1.0)
    assert (row["gpu0_sm_percent"], row["gpu0_utilisation_percent"]) == (None, 97)
    found.close()


def test_each_mig_instance_is_a_gpu_of_its_own() -> None:
    card = hopper(MigMode=[1, 1])
    for number, (instance, used) in enumerate([(7, 1), (9, 2)]):
        memory = SimpleNamespace(total=10 << 30, used=used << 30)
        answers = {"GpuInstanceId": instance, "MemoryInfo": memory}
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
    assert set(facts.values()) == {None}
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
    assert len(asked) > 15
    assert [name for name in sorted(asked) if not hasattr(pynvml, name)] == []
    assert [name for name in asked if re.search("Set|Reset|Clear|Freeze", name)] == []
