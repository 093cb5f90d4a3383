"""GPUs: clocks held down, a narrow link, a misleading utilisation, and memory left for a larger batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..measure import BOUND, Finding, Host
from ..quantities import number, percent, size
from .case import Case, Proposal, RemedyFamily

LARGER_BATCH = RemedyFamily("larger-batch", "a larger batch")
OFTEN = 0.05
"""Share of the readings."""
LEFT = 0.5
"""Share of a GPU's memory that the run never used."""
BUSY_PERCENT = 80.0
IDLE_PERCENT = 50.0


def gpu_findings(host: Host) -> Iterator[Finding]:
    """Yield what is odd about the GPUs that the command computes on."""
    gpus: dict[str, dict[str, Any]] = host.facts.get("gpus") or {}
    for name in _used(host, gpus):
        label = name.replace("gpu", "GPU ").replace("_mig", " MIG ")
        for check in (_slowed, _narrow_link, _memory_left, _misleading_utilisation):
            yield from check(host, name, label, gpus[name])


def _used(host: Host, gpus: dict[str, dict[str, Any]]) -> list[str]:
    """Return the GPUs that a process of the command computes on.

    In a container NVML may number processes as the host does. Then all that may be in use count, where the command
    trains on a GPU, since only the container's are shown.
    """
    ours = [name for name, facts in gpus.items() if set(facts.get("pids") or ()) & set(host.machine.processes)]
    has_gpu = any(host.told(trainer.pid, "facts", "device") is not None for trainer in host.trainers)
    return ours or [name for name, facts in gpus.items() if has_gpu and facts.get("pids") != []]


def _slowed(host: Host, gpu: str, label: str, facts: dict[str, Any]) -> Iterator[Finding]:
    """Find clocks held down by heat or power. At full load a GPU is often at its power limit: the clock counts."""
    clock, most = host.mean(f"{gpu}_sm_clock_mhz"), facts.get("sm_clock_max_mhz")
    lost = max(0.0, 1 - clock / most) if clock is not None and most else 0.0
    said = "Its clock was not measured"
    if clock is not None:
        said = f"SM clock {clock:.0f} MHz on average, {number(most or clock)} at most"
    limit_w = facts.get("power_limit_w")
    limit = f"; its limit is {number(limit_w)} W" if limit_w is not None else ""
    cooling = "Check its cooling, and what runs next to it."
    raising = "Usual under full load; if the limit was lowered, whoever runs the machine can raise it."
    for cause, what, evidence, advice in (
        ("heat", "slowed down by heat", f"{said}.", cooling),
        ("power", "held at its power limit", f"{said}{limit}.", raising),
    ):
        share = host.mean(f"{gpu}_slowed_by_{cause}") or 0.0
        if share >= OFTEN:
            text = f"{label} was {what} in {percent(share)} of the readings."
            yield Finding(f"gpu-{cause}", share * lost, text, evidence, advice)


def _narrow_link(host: Host, gpu: str, label: str, facts: dict[str, Any]) -> Iterator[Finding]:
    width, most_width = facts.get("pcie_width"), facts.get("pcie_width_max")
    generation, most_generation = facts.get("pcie_generation"), facts.get("pcie_generation_max")
    is_narrow = bool(width and most_width and width < most_width)
    is_slow = bool(generation and most_generation and generation < most_generation)
    if not is_narrow and not is_slow:
        return
    received = host.mean(f"{gpu}_pcie_received_bytes_per_s")
    traffic = f"; it received {size(received)} a second" if received is not None else ""
    yield Finding(
        "gpu-pcie",
        0.0,
        f"{label} is linked by PCIe {generation} ×{width} of {most_generation} ×{most_width}.",
        f"The widest and fastest seen in the run{traffic}.",
        "Copies to the device take longer than they need: check the slot, the riser and the BIOS, and pin memory.",
    )


def _memory_left(host: Host, gpu: str, label: str, facts: dict[str, Any]) -> Iterator[Finding]:
    used, total = host.peak(f"{gpu}_memory_used_bytes"), facts.get("memory_bytes")
    if used is not None and total and used <= (1 - LEFT) * total:
        yield Finding(
            "gpu-memory-left",
            0.0,
            f"{label} has {size(total - used)} of {size(total)} of memory left.",
            "All processes together, at the fullest reading; torch's cache counts as used.",
            "A larger batch may use the GPU better, where training allows one.",
        )


def _misleading_utilisation(host: Host, gpu: str, label: str, facts: dict[str, Any]) -> Iterator[Finding]:
    utilisation, sm = host.mean(f"{gpu}_utilisation_percent"), host.mean(f"{gpu}_sm_percent")
    if utilisation is not None and sm is not None and utilisation >= BUSY_PERCENT and sm <= IDLE_PERCENT:
        yield Finding(
            "gpu-util",
            0.0,
            f"{label} shows {utilisation:.0f} % GPU-Util, yet {sm:.0f} % of its SMs were active.",
            "GPU-Util says that some kernel ran, not that the GPU was busy.",
            "Go by SM activity: kernels are small or few at a time; larger batches, torch.compile or CUDA graphs help.",
        )


def larger_batch(case: Case) -> Proposal | None:
    """Propose a larger batch. Whether training allows one is the user's to say, and its step was not seen."""
    if not case.has_gpu or case.host is None:
        return None
    found = [one for one in gpu_findings(case.host) if one.code == "gpu-memory-left"]
    if not found:
        return LARGER_BATCH.would_not(f"Less than {percent(LEFT)} of the GPU's memory is left{_peak(case.host)}.")
    if case.wait_share >= BOUND:
        waits = f"a step waits {percent(case.wait_share)} for data, and a larger batch waits as long for each sample"
        return LARGER_BATCH.would_not(f"{found[0].text} But {waits}.")
    return LARGER_BATCH.unpredicted(
        found[0].text,
        costs=["other hyperparameters: a larger batch trains otherwise", "more memory for batches in workers"],
        hint="DataLoader(…, batch_size=…) until the memory is used, with the learning rate to fit",
    )


def _peak(host: Host) -> str:
    peaks = [
        f"{size(used)} of {size(facts['memory_bytes'])}"
        for name, facts in (host.facts.get("gpus") or {}).items()
        if facts.get("memory_bytes") and (used := host.peak(f"{name}_memory_used_bytes")) is not None
    ]
    return f": {', '.join(peaks)} in use at most" if peaks else ""
