"""What the types of a session do not say of its tables: columns are equally long, and numbers refer to something."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

from headrace.doctor.session.model import Machine, Maker, Session, Trainer

MAY_BE_EMPTY = {"beside", "cpu", "delay", "unpickle_cpu", "worked"}
"""Columns that are left out where no row has anything, or by an earlier doctor."""


def first_fault(session: Session) -> str | None:
    """What was expected, got, and where, of the first table that is none; None where all are whole."""
    return next(_faults(session), None)


def _faults(session: Session) -> Iterator[str]:
    for place, trainer in enumerate(session.trainers):
        yield from _of_trainer(trainer, f"$.trainers[{place}]")
    for place, maker in enumerate(session.makers):
        yield from _of_maker(maker, f"$.makers[{place}]")
    for place, machine in enumerate(session.machines):
        yield from _of_machine(machine, f"$.machines[{place}]")


def _of_trainer(trainer: Trainer, where: str) -> Iterator[str]:
    for name in ("steps", "gets", "fetches", "padding", "collectives"):
        yield from _uneven(_columns(getattr(trainer, name)), f"{where}.{name}")
    for name in ("gets", "fetches"):
        shapes = (shape for shape in getattr(trainer, name).shape if shape is not None)
        yield from _outside(shapes, len(trainer.shapes), "shapes", f"{where}.{name}.shape")


def _of_maker(maker: Maker, where: str) -> Iterator[str]:
    yield from _uneven(_columns(maker.batches), f"{where}.batches")
    for name in ("stages", "beside"):
        stages = (stage for row in getattr(maker.batches, name) for stage, *_ in row)
        yield from _outside(stages, len(maker.stages), "stages", f"{where}.batches.{name}")
    slow = (stage for sample in maker.slow for stage, _ in sample.stages)
    yield from _outside(slow, len(maker.stages), "stages", f"{where}.slow")
    looked = (one.stage for sample in maker.looks for one in sample.stages)
    yield from _outside(looked, len(maker.stages), "stages", f"{where}.looks")


def _of_machine(machine: Machine, where: str) -> Iterator[str]:
    yield from _uneven({"time": machine.time, **machine.columns}, where)


def _columns(table: Any) -> dict[str, list[Any]]:
    columns = {column.name: getattr(table, column.name) for column in fields(table)}
    return {name: values for name, values in columns.items() if values or name not in MAY_BE_EMPTY}


def _uneven(columns: dict[str, list[Any]], where: str) -> Iterator[str]:
    (first, rows), *others = ((name, len(values)) for name, values in columns.items())
    for name, count in others:
        if count != rows:
            yield f"expected columns of equal length, got {rows} of `{first}` and {count} of `{name}` - at `{where}`"


def _outside(numbers: Iterable[int], count: int, what: str, where: str) -> Iterator[str]:
    for number in numbers:
        if not 0 <= number < count:
            yield f"expected numbers below {count} ({what}), got {number} - at `{where}`"
