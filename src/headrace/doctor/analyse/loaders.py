"""DataLoaders that a script makes anew for each pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from headrace.doctor.session.model import Loader, Pass, Trainer


def with_loaders_as_one(trainer: Trainer) -> Trainer:
    """The trainer with each DataLoader counted as the one before it where all that is known of them is the same and
    they were used one after the other: a script that makes one an epoch has one loader, and starts its workers anew.
    One that only evaluations took batches of is never one that is trained from."""
    number_of = _numbers(trainer)
    if all(number == loader for loader, number in number_of.items()):
        return trainer
    return replace(
        trainer,
        loaders=[loader for loader in trainer.loaders if number_of[loader.number] == loader.number],
        passes=[replace(one, loader=number_of.get(one.loader, one.loader)) for one in trainer.passes],
    )


def _numbers(trainer: Trainer) -> dict[int, int]:
    """By loader, the number of the first of those that count as one."""
    used, evaluated = _used(trainer.passes), _evaluated(trainer)
    newest: dict[
        tuple[bytes, bool], tuple[int, int]
    ] = {}  # of equal ones: the first's number, and when the last was last begun
    numbers: dict[int, int] = {}
    for loader in sorted((one for one in trainer.loaders if one.number in used), key=lambda one: used[one.number][0]):
        first, last = used[loader.number]
        what = _what(loader), loader.number in evaluated
        known, until = newest.get(what, (loader.number, first))
        is_next = "dataset" in loader.facts and until < first
        numbers[loader.number] = known if is_next else loader.number
        newest[what] = (numbers[loader.number], last)
    return {loader.number: loader.number for loader in trainer.loaders} | numbers


def _used(passes: Sequence[Pass]) -> dict[int, tuple[int, int]]:
    """By loader, when its first and its last pass began."""
    used: dict[int, tuple[int, int]] = {}
    for one in passes:
        first, last = used.get(one.loader, (one.start, one.start))
        used[one.loader] = min(first, one.start), max(last, one.start)
    return used


def _evaluated(trainer: Trainer) -> set[int]:
    """Loaders of which some batches were taken, and none for a step."""
    loader_of = {one.number: one.loader for one in trainer.passes}
    taken = {loader_of.get(number) for number in trainer.fetches.pass_}
    trained = {loader_of.get(number) for number in trainer.gets.pass_}
    return {loader for loader in taken - trained if loader is not None}


def _what(loader: Loader) -> bytes:
    return msgspec.json.encode(loader.facts, order="sorted")
