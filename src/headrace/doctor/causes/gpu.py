"""GPUs: clocks held down, a narrow link, and memory left for a larger batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.doctor.causes.case import Case, Proposal, unpredicted, would_not
from headrace.doctor.causes.verdict import BOUND
from headrace.doctor.measure.diagnosis import Finding
from headrace.doctor.measure.host import Host
from headrace.doctor.quantities import number, percent, size

# -- from doctor/analyse/environment_gpus.py: Findings about GPUs: clocks held down, a narrow link, memory left, and a
# figure that misleads.


OFTEN = 0.05
"""Share of the readings."""
LEFT = 0.5
"""Share of a GPU's memory that the run never used."""
BUSY_PERCENT = 80.0
IDLE_PERCENT = 50.0


def gpu_findings(host: Host) -> list[Finding]:
    gpus: dict[str, dict[str, Any]] = host.facts.get("gpus") or {}
    return [
        finding
        for name in _used(host, gpus)
        for check in (_slowed_by_heat, _slowed_by_power, _narrow_link, _memory_left, _misleading_utilisation)
        if (finding := check(host, name, gpus[name])) is not None
    ]


def _used(host: Host, gpus: dict[str, dict[str, Any]]) -> list[str]:
    """Those that a process of the command computes on. In a container NVML may number processes as the host does: then
    all that may be in use count, where the command trains on a GPU, since only the container's are shown."""
    ours = [name for name, facts in gpus.items() if set(facts.get("pids") or ()) & set(host.machine.processes)]
    has_gpu = any(host.told(trainer.pid, "facts", "device") is not None for trainer in host.trainers)
    return ours or [name for name, facts in gpus.items() if has_gpu and facts.get("pids") != []]


def _slowed_by_heat(host: Host, gpu: str, facts: dict[str, Any]) -> Finding | None:
    slowed, clock = host.mean(f"{gpu}_slowed_by_heat"), host.mean(f"{gpu}_sm_clock_mhz")
    if slowed is None or slowed < OFTEN:
        return None
    return Finding(
        "gpu-heat",
        slowed * _lost(clock, facts),
        f"{_label(gpu)} was slowed down by heat in {percent(slowed)} of the readings.",
        f"{_clock_text(clock, facts)}.",
        "See to its cooling, and to what runs beside it.",
    )


def _slowed_by_power(host: Host, gpu: str, facts: dict[str, Any]) -> Finding | None:
    """At full load a GPU is often at its power limit; that is worth knowing where it costs clock."""
    slowed, clock = host.mean(f"{gpu}_slowed_by_power"), host.mean(f"{gpu}_sm_clock_mhz")
    limit_w = facts.get("power_limit_w")
    if slowed is None or slowed < OFTEN:
        return None
    limit = f"; its limit is {number(limit_w)} W" if limit_w is not None else ""
    return Finding(
        "gpu-power",
        slowed * _lost(clock, facts),
        f"{_label(gpu)} was held at its power limit in {percent(slowed)} of the readings.",
        f"{_clock_text(clock, facts)}{limit}.",
        "Usual under full load; if the limit was lowered, whoever runs the machine can raise it.",
    )


def _narrow_link(host: Host, gpu: str, facts: dict[str, Any]) -> Finding | None:
    width, most_width = facts.get("pcie_width"), facts.get("pcie_width_max")
    generation, most_generation = facts.get("pcie_generation"), facts.get("pcie_generation_max")
    is_narrow = bool(width and most_width and width < most_width)
    is_slow = bool(generation and most_generation and generation < most_generation)
    if not is_narrow and not is_slow:
        return None
    received = host.mean(f"{gpu}_pcie_received_bytes_per_s")
    traffic = f"; it received {size(received)} a second" if received is not None else ""
    return Finding(
        "gpu-pcie",
        0.0,
        f"{_label(gpu)} is linked by PCIe {generation} ×{width} of {most_generation} ×{most_width}.",
        f"The widest and fastest seen in the run{traffic}.",
        "Copies to the device take longer than they need: see to the slot, the riser and the BIOS, and pin memory.",
    )


def _memory_left(host: Host, gpu: str, facts: dict[str, Any]) -> Finding | None:
    used, total = host.peak(f"{gpu}_memory_used_bytes"), facts.get("memory_bytes")
    if used is None or not total or used > (1 - LEFT) * total:
        return None
    return Finding(
        "gpu-memory-left",
        0.0,
        f"{_label(gpu)} has {size(total - used)} of {size(total)} of memory left.",
        "All processes together, at the fullest reading; torch's cache counts as used.",
        "A larger batch may use the GPU better, where training allows one.",
    )


def _misleading_utilisation(host: Host, gpu: str, facts: dict[str, Any]) -> Finding | None:
    utilisation, sm = host.mean(f"{gpu}_utilisation_percent"), host.mean(f"{gpu}_sm_percent")
    if utilisation is None or sm is None or utilisation < BUSY_PERCENT or sm > IDLE_PERCENT:
        return None
    return Finding(
        "gpu-util",
        0.0,
        f"{_label(gpu)} shows {utilisation:.0f} % GPU-Util, yet {sm:.0f} % of its SMs were active.",
        "GPU-Util says that some kernel ran, not that the GPU was busy.",
        "Go by SM activity: kernels are small or few at a time; larger batches, torch.compile or CUDA graphs help.",
    )


def _label(gpu: str) -> str:
    """`GPU 0`, `GPU 0 MIG 1`."""
    return gpu.replace("gpu", "GPU ").replace("_mig", " MIG ")


def _lost(clock: float | None, facts: dict[str, Any]) -> float:
    """Share of the highest clock that was missing; 0 where it is unknown."""
    most = facts.get("sm_clock_max_mhz")
    return max(0.0, 1 - clock / most) if clock is not None and most else 0.0


def _clock_text(clock: float | None, facts: dict[str, Any]) -> str:
    if clock is None:
        return "Its clock was not measured"
    return f"SM clock {clock:.0f} MHz on average, {number(facts.get('sm_clock_max_mhz') or clock)} at most"


# -- from doctor/remedies/batch_size.py: GPU memory that is left for a larger batch.


LARGER_BATCH = "larger-batch"


def larger_batch(case: Case) -> Iterator[Proposal]:
    """Whether training allows one is the user's to say, and how the step grows with it was not seen."""
    title = "a larger batch"
    if not case.has_gpu or case.host is None:
        return
    found = [one for one in gpu_findings(case.host) if one.code == "gpu-memory-left"]
    if not found:
        yield would_not(LARGER_BATCH, title, f"Less than {percent(LEFT)} of the GPU's memory is left{_peak(case)}.")
    elif case.wait_share >= BOUND:
        waits = f"a step waits {percent(case.wait_share)} for data, and a larger batch waits as long for each sample"
        yield would_not(LARGER_BATCH, title, f"{found[0].text} But {waits}.")
    else:
        yield unpredicted(
            LARGER_BATCH,
            title,
            found[0].text,
            costs=["other hyperparameters: a larger batch trains otherwise", "more memory for batches in workers"],
            hint="DataLoader(…, batch_size=…) until the memory is used, with the learning rate to fit",
        )


def _peak(case: Case) -> str:
    assert case.host is not None
    peaks = [
        f"{size(used)} of {size(facts['memory_bytes'])}"
        for name, facts in (case.host.facts.get("gpus") or {}).items()
        if facts.get("memory_bytes") and (used := case.host.peak(f"{name}_memory_used_bytes")) is not None
    ]
    return f": {', '.join(peaks)} in use at most" if peaks else ""
