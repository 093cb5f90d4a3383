"""The batches that measured steps received from one loader, and how each was made."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from headrace.doctor.analyse.join import Join, Made
from headrace.doctor.measure.steps import Training, pass_of
from headrace.doctor.session.model import Loader


class Received(NamedTuple):
    """Row of `Trainer.gets`, and where the batch's making was recorded, that."""

    row: int
    made: Made | None


def main_loader(training: Training) -> Loader | None:
    """The one that most of the batches came from; None where measured steps received none from a DataLoader."""
    passes, numbers = pass_of(training.trainer), training.trainer.gets.pass_
    loaders = Counter(one.loader for row in training.gets if (one := passes.get(numbers[row])) is not None)
    if not loaders:
        return None
    ((number, _),) = loaders.most_common(1)
    return next((loader for loader in training.trainer.loaders if loader.number == number), None)


def received(training: Training, join: Join, loader: Loader) -> list[Received]:
    """In order."""
    trainer = training.trainer
    passes = {number: one for number, one in pass_of(trainer).items() if one.loader == loader.number}
    finders = {number: join.finder(trainer, one) for number, one in passes.items()}
    gets = trainer.gets
    return [
        Received(row, finders[gets.pass_[row]].batch(gets.index[row]))
        for row in training.gets
        if gets.pass_[row] in passes
    ]
