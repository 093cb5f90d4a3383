"""What every report says of the run: its end, its machine, and what could not be seen."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from statistics import fmean

from headrace.doctor.causes import hanging
from headrace.doctor.measure import ProbeCost
from headrace.doctor.quantities import ABSENT, counted, duration, number, percent, size, sizes
from headrace.doctor.report.terminal_layout import ReportDetail, TerminalPage
from headrace.doctor.session.model import CommandOutcome, Machine, Session

# -- from doctor/report/machine.py: The machine, on a page: its cores, GPUs, memory and disks, and how much of them
# was used during the run.


CLOCK_IS_LOW = 0.8
"""Of the most that a GPU's clock can do, from which on it is worth saying."""
DISK_LEAST_BYTES_S = 1e6
"""A disk that is read slower than that is not worth a line."""


def put_machines(page: TerminalPage, session: Session, detail: ReportDetail) -> None:
    for machine in session.machines[: detail.machines]:
        page.heading("Machine", " · ".join(machine_names(machine)))
        for name, text in machine_lines(machine):
            page.sentence(text, lead=f"  {name:<7} ")
    left = len(session.machines) - detail.machines
    if left > 0:
        page.line(f"and {counted(left, 'machine')} more: {detail.rest}", style="dim")


def column_mean(machine: Machine, column: str) -> float | None:
    """Over the run; None where there is no such column or nothing in it."""
    measured = [value for value in machine.columns.get(column, []) if value is not None]
    return fmean(measured) if measured else None


def column_peak(machine: Machine, column: str) -> float | None:
    return max((value for value in machine.columns.get(column, []) if value is not None), default=None)


def gpu_busy(machine: Machine) -> float | None:
    """Of the GPUs at the newest reading, the mean share of their SMs that worked; None where that is not measured."""
    newest = [values[-1] for name, values in machine.columns.items() if name.endswith("_sm_percent") and values]
    measured = [value for value in newest if value is not None]
    return fmean(measured) / 100 if measured else None


def machine_names(machine: Machine) -> Iterator[str]:
    """Which machine it is."""
    facts = machine.facts
    yield machine.host
    if facts.get("cpu_model"):
        yield str(facts["cpu_model"])
    if facts.get("container"):
        yield str(facts["container"])


def machine_lines(machine: Machine) -> Iterator[tuple[str, str]]:
    """What it has and how much of it was used, each under a word that says of what."""
    yield "CPU", ", ".join([*_cpu(machine), *_memory(machine)])
    yield from _gpus(machine)
    disks = ", ".join(_disks(machine))
    if disks:
        yield "disks", disks


def _cpu(machine: Machine) -> Iterator[str]:
    busy, own = column_mean(machine, "cpu_cores_busy"), column_mean(machine, "cpu_cores_command")
    yield f"{number(busy)} of {number(machine.facts.get('cores'))} cores busy, {number(own)} with this command"
    for column, what in (
        ("cpu_throttled_cores", "held back by the cgroup's quota"),
        ("cpu_cores_waiting", "waiting for a disk"),
        ("cpu_cores_stolen", "taken by the hypervisor"),
    ):
        cores = column_mean(machine, column)
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
    activity, utilisation = (
        column_mean(machine, f"{name}_sm_percent"),
        column_mean(machine, f"{name}_utilisation_percent"),
    )
    yield str(facts.get("name") or "")
    yield f"SMs busy {_percent(activity)} (GPU-Util {_percent(utilisation)}: some kernel ran at all)"
    yield f"memory {sizes(column_peak(machine, f'{name}_memory_used_bytes'), _figure(facts.get('memory_bytes')))}"
    mhz, most_mhz = column_mean(machine, f"{name}_sm_clock_mhz"), _figure(facts.get("sm_clock_max_mhz"))
    if mhz is not None and most_mhz is not None and mhz < CLOCK_IS_LOW * most_mhz:
        yield f"clock {number(mhz)} of {number(most_mhz)} MHz"
    for cause in ("heat", "power"):
        slowed = column_mean(machine, f"{name}_slowed_by_{cause}")
        if slowed:
            yield f"slowed by {cause} {percent(slowed)} of the time"


def _memory(machine: Machine) -> Iterator[str]:
    limit = machine.facts.get("memory_limit_bytes") or machine.facts.get("memory_bytes")
    yield f"memory {sizes(column_peak(machine, 'command_pss_bytes'), limit)}"
    yield f"/dev/shm {sizes(column_peak(machine, 'shm_used_bytes'), machine.facts.get('shm_bytes'))}"
    if machine.facts.get("oom_kills"):
        yield f"{counted(machine.facts['oom_kills'], 'process')} killed for want of memory"


def _disks(machine: Machine) -> Iterator[str]:
    for column in machine.columns:
        found = re.fullmatch(r"disk_(.+)_read_bytes_per_s", column)
        rate = column_mean(machine, column)
        if found is not None and rate is not None and rate >= DISK_LEAST_BYTES_S:
            latency = column_mean(machine, f"disk_{found[1]}_read_latency_us")
            each = "" if latency is None else f", {duration(latency)} a request"
            yield f"{found[1]} read at {size(rate)}/s, {size(column_peak(machine, column))}/s at most{each}"


def _percent(value: float | None) -> str:
    return percent(None if value is None else value / 100)


def _figure(value: object) -> float | None:
    return value if isinstance(value, int | float) else None


# -- from doctor/report/notes.py: What the doctor could not see or understand, what hung, and what measuring cost, on
# a page.


def put_notes(page: TerminalPage, session: Session, cost: ProbeCost, detail: ReportDetail) -> None:
    """Of a note of many lines, a traceback, the last is the one that tells; the others come with full detail."""
    notes = list(note_texts(session))
    measured = cost.evidence_bytes > 0
    if notes or measured:
        left = len(notes) - detail.notes
        page.heading("Notes", f"and {counted(left, 'note')} more: {detail.rest}" if left > 0 else "")
    for head, text in notes[: detail.notes]:
        lines = text.rstrip().splitlines() or [""]
        page.sentence(head + lines[-1], lead="  • ")
        for line in lines[:-1][: detail.note_lines]:
            page.quote(line, indent=4)
    if measured:
        page.sentence(cost_words(cost), lead="  • ")


def put_hung(page: TerminalPage, session: Session, detail: ReportDetail) -> None:
    """The stacks that were taken of processes that no longer moved, innermost frames last."""
    for process, stack in hanging(session):
        page.heading(f"Process {process.pid} hangs here")
        for line in stack.rstrip().splitlines()[-detail.last_lines :]:
            page.quote(line)


def note_texts(session: Session) -> Iterator[tuple[str, str]]:
    """What each is about, and what it says."""
    for process in session.unreached:
        yield f"not reached: {process.command} ({process.pid}): ", process.why
    yield from _distinct(session)
    cut = sum(process.cut for process in session.processes)
    if cut:
        yield "", f"the evidence of {counted(cut, 'process')} is thinned or cut short; means are of what was kept"
    passed = [sum(rest.steps for rest in trainer.rests) for trainer in session.trainers if trainer.rests]
    if passed:
        steps = counted(max(passed), "step")
        yield "", f"{steps} passed without being measured, so that the run is not slowed down; shares are of the others"


def _distinct(session: Session) -> Iterator[tuple[str, str]]:
    """Each text once, with its process, or how many had the same."""
    times = Counter((note.code, note.text) for note in session.notes)
    pids = {(note.code, note.text): note.pid for note in session.notes}
    for (code, text), many in times.items():
        pid = pids[code, text]
        who = f" ({many} ×)" if many > 1 else "" if pid is None else f" (process {pid})"
        yield f"{code}{who}: ", text


def cost_words(cost: ProbeCost) -> str:
    return (
        f"measuring cost {duration(cost.step_us)} a step ({percent(cost.step_share)}), "
        f"{percent(cost.worker_share)} of the making of batches, and {size(cost.evidence_bytes)} of evidence"
    )


# -- from doctor/report/ending.py: How the command ended, on a page.


_ENDINGS = {
    "finished": "ran to its end in {}",
    "steps": "ended by the doctor after the steps asked for, in {}",
    "not found": "could not be started",
    "interrupted": "interrupted after {}",
    "running": "still running after {}",
}


def command_line(session: Session) -> str:
    """The command in one line, as a shell would take it; a notebook has none."""
    return shlex.join(session.outcome.command) or "watched in this process"


def ending(outcome: CommandOutcome) -> str:
    """A few words: how the command ended, with its exit status."""
    took = duration(outcome.duration)
    if outcome.why == "failed" and outcome.status is not None and outcome.status > 128:
        return f"ended by signal {outcome.status - 128} after {took}"
    if outcome.why == "failed":
        return f"failed after {took}" + ("" if outcome.status is None else f", exit status {outcome.status}")
    status = "" if outcome.status in (0, None) else f", exit status {outcome.status}"
    return _ENDINGS.get(outcome.why, outcome.why).format(took) + status


def put_last_lines(page: TerminalPage, session: Session, *, most: int) -> None:
    """What the command said last, where it failed."""
    lines = last_words(session)
    if lines:
        page.heading("Last lines of the command")
        for line in lines[-most:]:
            page.quote(line)


def last_words(session: Session) -> list[str]:
    """Lines that say why a command failed; none where it did not."""
    outcome = session.outcome
    errors = [process.error for process in session.processes if process.error]
    if outcome.why not in ("failed", "not found") and not errors:
        return []
    said = outcome.last_lines or (errors[-1].splitlines() if errors else [])
    return [line for line in said if line.strip()]
