"""Readings of made machines: counters and rates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from headrace.doctor.machine.host import Cores, Gpus, Pressure, Rates
from headrace.system import ControlGroups

NAMES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")


class CoreTimes(tuple[float, ...]):
    """As psutil's named tuple."""

    def __getattr__(self, name: str) -> float:
        return self[NAMES.index(name)]


def core(**seconds: float) -> CoreTimes:
    return CoreTimes(seconds.get(name, 0.0) for name in NAMES)


def groups(**files: str) -> ControlGroups:
    """The one group of a process, with the files of a unified hierarchy."""
    texts = {
        "/proc/1/cgroup": "0::/docker/a\n",
        "/proc/1/mountinfo": "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        **{f"/sys/fs/cgroup/docker/a/{name.replace('_', '.', 1)}": text for name, text in files.items()},
    }
    return ControlGroups(texts.get, 1)


def given(monkeypatch: pytest.MonkeyPatch, name: str, *answers: Any) -> None:
    each = iter(answers)
    monkeypatch.setattr(psutil, name, lambda **_: next(each))


def at(now_s: float, part: Any) -> dict[str, float | None]:
    part._rates.now_s = now_s
    return part.read()


def test_cores_are_those_of_the_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, "cpu_times", [core(idle=1), core(idle=1)], [core(user=8, idle=1), core(user=1, steal=1, idle=3)])
    cores = Cores(1, groups(), Rates())
    cores._affinity = {1}
    assert at(0.0, cores)["cpu_cores_busy"] is None
    row = at(2.0, cores)
    assert (row["cpu_cores_busy"], row["cpu_cores_stolen"]) == (0.5, 0.5)


def test_a_sandbox_that_counts_no_time_has_no_busy_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, "cpu_times", [core()], [core()])
    cores = Cores(1, groups(), Rates())
    at(0.0, cores)
    assert at(1.0, cores)["cpu_cores_busy"] is None


def test_a_quota_bounds_the_cores_and_its_throttling_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, "cpu_times", [core()], [core(user=1)])
    files = {"cpu_max": "50000 100000", "cpu_stat": "nr_periods 10\nnr_throttled 5\nthrottled_usec 2000000"}
    cores = Cores(1, groups(**files), Rates())
    at(0.0, cores)
    assert at(1.0, cores)["cpu_throttled_cores"] == 0.0
    assert (cores.facts()["cores"], cores.facts()["cores_quota"]) == (0.5, 0.5)


def test_pressure_is_a_share_of_time() -> None:
    files = {"cpu_pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000"}
    cgroups = groups(**files)
    pressure = Pressure(cgroups, Rates())
    at(0.0, pressure)
    assert at(1.0, pressure)["pressure_cpu_some_share"] == 0.0


def test_a_counter_that_went_back_has_no_rate() -> None:
    rates, found = Rates(), []
    for rates.now_s, value in enumerate([5.0, 8.0, 1.0, None, 3.0, 4.0]):
        found.append(rates.per_second("a", value))
    assert found == [None, 3.0, None, None, None, 1.0]


class Nvml:
    """A `pynvml` with two GPUs, of which one answers nothing."""

    class NVMLError(Exception):
        pass

    is_open = False

    def nvmlInit(self) -> None:  # noqa: N802
        self.is_open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        if handle:
            raise self.NVMLError("refused")
        return SimpleNamespace(gpu=58)


def test_what_a_gpu_refuses_is_unknown() -> None:
    library = Nvml()
    gpus = Gpus(lambda: library)
    assert gpus.read() == {"gpu0_utilisation_percent": 58}
    gpus.close()
    assert not library.is_open
