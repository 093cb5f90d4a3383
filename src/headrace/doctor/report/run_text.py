"""Text on the run for all reports: its end, its machine, and what was not observed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from headrace.doctor.causes import LAUNCHERS, failed_process
from headrace.doctor.measure import Host, ProbeCost
from headrace.doctor.quantities import counted, duration, number, percent, size, sizes
from headrace.doctor.session.model import CommandOutcome, Session
from headrace.doctor.session.trainers import Trainer

_ENDINGS = {
    "finished": "ran to its end in {}",
    "steps": "ended by the doctor after the steps that it measured, in {}",
    "not found": "could not be started",
    "interrupted": "interrupted after {}",
    "stalled": "ended by the doctor after {}, since it stood still",
}


# The command


def ending(outcome: CommandOutcome) -> str:
    """Return how the command ended, with its exit status."""
    took = duration(outcome.duration)
    if outcome.why == "failed" and outcome.status > 128:
        return f"ended by signal {outcome.status - 128} after {took}"
    if outcome.why == "failed":
        return f"failed after {took}, exit status {outcome.status}"
    status = f", exit status {outcome.status}" if outcome.status else ""
    return _ENDINGS.get(outcome.why, outcome.why).format(took) + status


def last_words(session: Session) -> list[str]:
    """Return the last lines of a failed command, or of the script that a launcher ran; empty if it succeeded."""
    outcome, failed = session.outcome, failed_process(session)
    errors = [process.error for process in session.processes if process.error]
    if outcome.why not in ("failed", "not found") and not errors:
        return []
    own = [] if failed is None else (failed.error or "").splitlines()
    is_launched = any(LAUNCHERS.search(error) for error in errors)
    said = own if own and is_launched else outcome.last_lines or (errors[-1].splitlines() if errors else [])
    return [line for line in said if line.strip()]


def name_text(name: str) -> str:
    """Return the name of a stage (`category:label`) or part as text."""
    return name.replace(":", " ", 1)


# The machine


def machine_line(host: Host) -> str:
    """Return the capacity and the use of the machine's cores and memory, and of GPUs that worked."""
    return ", ".join(_used(host))


def _used(host: Host) -> Iterator[str]:
    busy, own = host.mean("cpu_cores_busy"), host.mean("cpu_cores_command")
    yield f"{number(busy)} of {number(host.cores)} cores busy, {number(own)} with this command"
    limit = host.fact("memory_limit_bytes") or host.fact("memory_bytes")
    yield f"memory {sizes(host.peak('command_pss_bytes'), limit)}"
    yield f"/dev/shm {sizes(host.peak('shm_used_bytes'), host.fact('shm_bytes'))}"
    if killed := host.fact("oom_kills"):
        yield f"{counted(killed, 'process')} killed because memory ran out"
    for column in host.machine.columns:  # with the meaning of the figure, because other tools show it without
        used = host.mean(column) if column.endswith("_utilisation_percent") else None
        if used:
            yield f"GPU {column[3:].partition('_')[0]} ran some kernel {percent(used / 100)} of the time"


def versions(session: Session, trainer: Trainer) -> dict[str, str]:
    """Return the known versions of the software that a process trains with."""
    facts = session.process_facts(trainer)
    own, torch = facts.get("process", {}), facts.get("torch", {})
    known = {"Python": own.get("python"), "torch": torch.get("version"), "CUDA": torch.get("cuda")}
    return {name: str(version) for name, version in known.items() if version}


# Notes


def note_texts(session: Session) -> Iterator[tuple[str, str]]:
    # Show each text once, with its process or the number of processes.
    times = Counter((note.code, note.text) for note in session.notes)
    pids = {(note.code, note.text): note.pid for note in session.notes}
    for (code, text), many in times.items():
        pid = pids[code, text]
        who = f" ({many} ×)" if many > 1 else "" if pid is None else f" (process {pid})"
        yield f"{code}{who}", text
    cut = sum(process.cut for process in session.processes)
    if cut:
        yield "", f"the evidence of {counted(cut, 'process')} is cut short; means are of what remained"


def cost_text(cost: ProbeCost) -> str:
    return (
        f"the loop's hooks cost {duration(cost.step_us)} a step ({percent(cost.step_share)}), and there are "
        f"{size(cost.evidence_bytes)} of evidence"
    )
