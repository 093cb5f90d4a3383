"""Sections on the machine, the DataLoader's arguments and the doctor's notes."""

from __future__ import annotations

import itertools
from typing import Any

from headrace.doctor.causes.processes import hanging
from headrace.doctor.report.escaping import counted, duration, number
from headrace.doctor.report.html.blocks import Block, Cell, Figure, HtmlTable, Key, Quote, ReportData, Section, Texts
from headrace.doctor.report.html.charts import ColumnChart, Layer, buckets, columns, plain_axis, time_axis
from headrace.doctor.report.run_text import (
    column_mean,
    cost_words,
    last_words,
    machine_lines,
    machine_names,
    note_texts,
)
from headrace.doctor.session.model import Machine, Session

# -- from doctor/report/html/sections/environment.py: The machine, the software and the loaders.


MOST_MACHINES, MOST_LOADERS = 8, 8
COMMAND, BUSY = "cpu_cores_command", "cpu_cores_busy"
LOADER_FACTS = (
    "num_workers",
    "batch_size",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory",
    "in_order",
    "start_method",
    "length",
)
HOW_CORES = (
    "Cores that worked, from zero to all that there are. Where the top line is reached, more workers can only take "
    "time from one another."
)


def environment(report: ReportData) -> Section | None:
    session = report.session
    blocks: list[Block] = []
    for machine in session.machines[:MOST_MACHINES]:
        blocks.append(
            Texts(
                [*machine_lines(machine), *_software(session, machine.host)], title=" · ".join(machine_names(machine))
            )
        )
        cores = _cores(machine)
        if cores is not None:
            blocks.append(cores)
    loaders = _loaders(report)
    if loaders is not None:
        blocks.append(loaders)
    return Section("machine", "Machine and settings", blocks) if blocks else None


def _software(session: Session, host: str) -> list[tuple[str, str]]:
    """Of the first process that trains there."""
    trainers = {trainer.pid for trainer in session.trainers if trainer.host == host}
    process = next((one for one in session.processes if one.pid in trainers and one.host == host), None)
    if process is None:
        return []
    own, torch = _fact_table(process.facts, "process"), _fact_table(process.facts, "torch")
    told = {"Python": own.get("python"), "torch": torch.get("version"), "CUDA": torch.get("cuda")}
    said = ", ".join(f"{name} {version}" for name, version in told.items() if version)
    return [("software", said)] if said else []


def _fact_table(facts: dict[str, Any], name: str) -> dict[str, Any]:
    found = facts.get(name)
    return found if isinstance(found, dict) else {}


def _cores(machine: Machine) -> Figure | None:
    """None where nobody read how busy they were."""
    busy = machine.columns.get(BUSY, [])
    if column_mean(machine, BUSY) is None or len(machine.time) < 2:
        return None
    groups = buckets(len(machine.time))
    own = [_mean_of(machine.columns.get(COMMAND, []), group) for group in groups]
    others = [
        None if whole is None else max(whole - (part or 0.0), 0.0)
        for whole, part in ((_mean_of(busy, group), part) for group, part in zip(groups, own, strict=True))
    ]
    cores = machine.facts.get("cores")
    top = [float(cores)] if isinstance(cores, (int, float)) else []
    start, whole_us = machine.time[0], machine.time[-1] - machine.time[0]
    ticks = time_axis(max(whole_us, 1), lines=5)
    chart = ColumnChart(
        layers=[Layer("blue", own), Layer("other", others)],
        titles=[
            f"at {duration(machine.time[group[0]] - start)}: {number(part)} by this command, {number(other)} by others"
            for group, part, other in zip(groups, own, others, strict=True)
        ],
        axis=plain_axis(max([*top, *(value or 0.0 for value in busy)])),
        places=[(us / whole_us, f"{text} {ticks.unit}") for us, text in ticks.ticks if us <= whole_us > 0],
        label=f"{number(column_mean(machine, BUSY))} of {number(top[0] if top else None)} cores busy on average",
        mark=top[0] if top else None,
    )
    keys = [Key("blue", "this command"), Key("other", "others"), *([Key("floor", "all cores")] if top else [])]
    return Figure("Cores busy", columns(chart), HOW_CORES, keys=keys, unit="cores, over the whole run")


def _mean_of(values: list[float | None], group: range) -> float | None:
    known = [value for row in group if row < len(values) and (value := values[row]) is not None]
    return sum(known) / len(known) if known else None


def _loaders(report: ReportData) -> HtmlTable | None:
    training = report.training
    loaders = [] if training is None else training.trainer.loaders[:MOST_LOADERS]
    if not loaders:
        return None
    names = [name for name in LOADER_FACTS if any(loader.facts.get(name) is not None for loader in loaders)]
    head = ["DataLoader argument", *(f"loader {loader.number}" for loader in loaders)]
    rows: list[list[Cell]] = [[name, *(_said(loader.facts.get(name)) for loader in loaders)] for name in names]
    rows.append(["dataset", *(_said(loader.facts.get("dataset")) for loader in loaders)])
    rows.append(["iterated at", *(_place(loader.facts) for loader in loaders)])
    return HtmlTable(f"{counted(len(loaders), 'DataLoader')}{report.whose}", head, rows, long_names=True)


def _said(value: object) -> str:
    return "–" if value is None else str(value)


def _place(facts: dict[str, Any]) -> str:
    return f"{facts['file']}:{facts.get('line')}" if facts.get("file") else "–"


# -- from doctor/report/html/sections/notes.py: What the doctor could not see, what hung or failed, what measuring
# cost, and how to have this page again.


MOST_NOTES, MOST_LINES, MOST_STACKS = 60, 60, 60


def notes(report: ReportData) -> Section | None:
    blocks: list[Block] = []
    said = last_words(report.session)
    if said:
        blocks.append(Quote("Last lines of the command", said[-MOST_LINES:]))
    blocks += [
        Quote(f"Process {process.pid} hangs here", stack.rstrip().splitlines()[-MOST_LINES:])
        for process, stack in itertools.islice(hanging(report.session), MOST_STACKS)
    ]
    texts = [(head.rstrip(": "), text.strip()) for head, text in note_texts(report.session)]
    if texts:
        blocks.append(Texts(texts[:MOST_NOTES]))
    if report.diagnosis.cost.evidence_bytes > 0:
        blocks.append(Texts([("What measuring cost", cost_words(report.diagnosis.cost))]))
    if report.again:
        blocks.append(Texts([("Again", report.again)]))
    return Section("notes", "Notes", blocks) if blocks else None
