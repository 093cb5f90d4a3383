"""The machine, on a page: its cores, GPUs, memory and disks, and how much of them was used during the run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import fmean

from headrace.doctor.report.detail import Detail
from headrace.doctor.report.escaping import ABSENT, counted, duration, number, share, size, sizes
from headrace.doctor.report.terminal_layout import Page
from headrace.doctor.session.model import Machine, Session

CLOCK_IS_LOW = 0.8
"""Of the most that a GPU's clock can do, from which on it is worth saying."""
DISK_LEAST_BYTES_S = 1e6
"""A disk that is read slower than that is not worth a line."""


def put_machines(page: Page, session: Session, detail: Detail) -> None:
    for machine in session.machines[: detail.machines]:
        page.heading("Machine", " · ".join(about(machine)))
        for name, text in lines(machine):
            page.sentence(text, lead=f"  {name:<7} ")
    left = len(session.machines) - detail.machines
    if left > 0:
        page.line(f"and {counted(left, 'machine')} more: {detail.rest}", style="dim")


def mean(machine: Machine, column: str) -> float | None:
    """Over the run; None where there is no such column or nothing in it."""
    measured = [value for value in machine.columns.get(column, []) if value is not None]
    return fmean(measured) if measured else None


def peak(machine: Machine, column: str) -> float | None:
    return max((value for value in machine.columns.get(column, []) if value is not None), default=None)


def gpu_busy(machine: Machine) -> float | None:
    """Of the GPUs at the newest reading, the mean share of their SMs that worked; None where that is not measured."""
    newest = [values[-1] for name, values in machine.columns.items() if name.endswith("_sm_percent") and values]
    measured = [value for value in newest if value is not None]
    return fmean(measured) / 100 if measured else None


def about(machine: Machine) -> Iterator[str]:
    """Which machine it is."""
    facts = machine.facts
    yield machine.host
    if facts.get("cpu_model"):
        yield str(facts["cpu_model"])
    if facts.get("container"):
        yield str(facts["container"])


def lines(machine: Machine) -> Iterator[tuple[str, str]]:
    """What it has and how much of it was used, each under a word that says of what."""
    yield "CPU", ", ".join([*_cpu(machine), *_memory(machine)])
    yield from _gpus(machine)
    disks = ", ".join(_disks(machine))
    if disks:
        yield "disks", disks


def _cpu(machine: Machine) -> Iterator[str]:
    busy, own = mean(machine, "cpu_cores_busy"), mean(machine, "cpu_cores_command")
    yield f"{number(busy)} of {number(machine.facts.get('cores'))} cores busy, {number(own)} with this command"
    for column, what in (
        ("cpu_throttled_cores", "held back by the cgroup's quota"),
        ("cpu_cores_waiting", "waiting for a disk"),
        ("cpu_cores_stolen", "taken by the hypervisor"),
    ):
        cores = mean(machine, column)
        if cores is not None and cores >= 0.05:
            yield f"{number(cores)} {what}"


def _gpus(machine: Machine) -> Iterator[tuple[str, str]]:
    gpus = machine.facts.get("gpus")
    if not gpus:
        why = machine.facts.get("gpus_unknown")
        yield "GPU", f"{ABSENT} ({why})" if why else ABSENT
        return
    for name, facts in sorted(gpus.items(), key=lambda item: [int(part) for part in re.findall(r"\d+", item[0])]):
        yield f"GPU {name.removeprefix('gpu')}", ", ".join(_gpu(machine, name, facts))


def _gpu(machine: Machine, name: str, facts: dict[str, object]) -> Iterator[str]:
    """GPU-Util is what other tools show, and so it stands here with what it does not mean."""
    activity, utilisation = mean(machine, f"{name}_sm_percent"), mean(machine, f"{name}_utilisation_percent")
    yield str(facts.get("name") or "")
    yield f"SMs busy {_percent(activity)} (GPU-Util {_percent(utilisation)}: some kernel ran at all)"
    yield f"memory {sizes(peak(machine, f'{name}_memory_used_bytes'), _figure(facts.get('memory_bytes')))}"
    mhz, most_mhz = mean(machine, f"{name}_sm_clock_mhz"), _figure(facts.get("sm_clock_max_mhz"))
    if mhz is not None and most_mhz is not None and mhz < CLOCK_IS_LOW * most_mhz:
        yield f"clock {number(mhz)} of {number(most_mhz)} MHz"
    for cause in ("heat", "power"):
        slowed = mean(machine, f"{name}_slowed_by_{cause}")
        if slowed:
            yield f"slowed by {cause} {share(slowed)} of the time"


def _memory(machine: Machine) -> Iterator[str]:
    limit = machine.facts.get("memory_limit_bytes") or machine.facts.get("memory_bytes")
    yield f"memory {sizes(peak(machine, 'command_pss_bytes'), limit)}"
    yield f"/dev/shm {sizes(peak(machine, 'shm_used_bytes'), machine.facts.get('shm_bytes'))}"
    if machine.facts.get("oom_kills"):
        yield f"{counted(machine.facts['oom_kills'], 'process')} killed for want of memory"


def _disks(machine: Machine) -> Iterator[str]:
    for column in machine.columns:
        found = re.fullmatch(r"disk_(.+)_read_bytes_per_s", column)
        rate = mean(machine, column)
        if found is not None and rate is not None and rate >= DISK_LEAST_BYTES_S:
            latency = mean(machine, f"disk_{found[1]}_read_latency_us")
            each = "" if latency is None else f", {duration(latency)} a request"
            yield f"{found[1]} read at {size(rate)}/s, {size(peak(machine, column))}/s at most{each}"


def _percent(value: float | None) -> str:
    return share(None if value is None else value / 100)


def _figure(value: object) -> float | None:
    return value if isinstance(value, int | float) else None
