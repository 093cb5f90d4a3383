"""What every remedy looks at: one training, its loader, its machine, and what a change of it would give."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Any

from headrace.doctor.analyse.join import Finder, Join
from headrace.doctor.analyse.loaders import with_loaders_as_one
from headrace.doctor.analyse.parts import WAIT
from headrace.doctor.causes.remedy import Edit
from headrace.doctor.edits.changes import Changed, Wanted, changed
from headrace.doctor.edits.loader_call import loader_call
from headrace.doctor.edits.script_source import Source
from headrace.doctor.measure.diagnosis import Diagnosis, Making, StagePart
from headrace.doctor.measure.host import Host, host_of
from headrace.doctor.measure.view import View
from headrace.doctor.predict.prediction import Prediction, predicted
from headrace.doctor.predict.setup import Setup
from headrace.doctor.remedies.edits.options import run_with
from headrace.doctor.remedies.sources import Sources, parsed
from headrace.doctor.session.model import Calibration, Session
from headrace.doctor.simulate.recording import Recorded, recorded

Change = Callable[[Setup], Setup]
"""A what-if."""


@dataclass(frozen=True)
class Case:
    """The rank that waits for data the longest, and the loader that it waits for."""

    session: Session
    diagnosis: Diagnosis
    view: View
    making: Making
    facts: dict[str, Any]
    """Of the loader."""
    host: Host | None
    recorded: Recorded | None
    """None where there is nothing to simulate."""
    sources: Sources

    @property
    def step_us(self) -> float:
        """Mean observed step."""
        if self.recorded is not None:
            return self.recorded.observed_us
        return 0.0 if self.view.budget is None else self.view.budget.mean_us

    @property
    def wait_share(self) -> float:
        return self.view.wait_share or 0.0

    @property
    def wait_us(self) -> float:
        """Of the training thread, a step."""
        return self.part_us(WAIT)

    @property
    def workers(self) -> int:
        return self.making.workers

    @property
    def cores(self) -> float | None:
        """That this rank may use."""
        capacity = None if self.recorded is None else self.recorded.capacity()
        return capacity if capacity is not None or self.host is None else self.host.cores

    @property
    def has_gpu(self) -> bool:
        """Whether the trainer computed on one."""
        process = next(
            (one for one in self.session.processes if (one.host, one.pid) == (self.host_name, self.view.trainer.pid)),
            None,
        )
        facts = {} if process is None else process.facts
        return any(facts.get(kind, {}).get("device") is not None for kind in ("facts", "torch"))

    @property
    def host_name(self) -> str:
        return self.view.trainer.host

    @cached_property
    def loaders(self) -> list[int]:
        """Numbers of all DataLoaders that count as this one: a script may make one an epoch."""
        as_one = {one.number: one.loader for one in with_loaders_as_one(self.view.trainer).passes}
        trainer = next(one for one in self.session.trainers if one.pid == self.view.trainer.pid)
        numbers = {one.loader for one in trainer.passes if as_one.get(one.number, one.loader) == self.making.loader}
        return sorted(numbers | {self.making.loader})

    @cached_property
    def finders(self) -> list[Finder]:
        """Find batches of this loader's passes, and of no other's: an evaluation's batches are made otherwise."""
        join = Join(self.session)
        return [join.finder(self.view.trainer, one) for one in self.view.trainer.passes if one.loader == self.loader]

    @property
    def loader(self) -> int:
        """Return the number of all DataLoaders that count as this one."""
        return self.making.loader

    @cached_property
    def batch_bytes(self) -> float | None:
        """Of a batch's tensors, on average; None where none was seen to have any."""
        gets = self.view.trainer.gets
        told = [size for row in self.view.training.gets if (size := gets.bytes[row]) is not None]
        return fmean(told) if told else None

    @cached_property
    def samples_a_batch(self) -> float | None:
        told = [
            samples
            for finder in self.finders
            for made in finder.batches()
            if (samples := made.maker.batches.samples[made.row]) is not None
        ]
        if told:
            return fmean(told)
        size = self.facts.get("batch_size")
        return float(size) if isinstance(size, int) else None

    @cached_property
    def shapes(self) -> list[str]:
        """Of the batches that measured steps received, the most frequent first."""
        trainer = self.view.trainer
        seen = [shape for row in self.view.training.gets if (shape := trainer.gets.shape[row]) is not None]
        return [trainer.shapes[number] for number in sorted(set(seen), key=seen.count, reverse=True)]

    def part_us(self, name: str) -> float:
        """Mean time a step of one of its parts, as the training thread has it."""
        budget = self.view.budget
        return next((part.us for part in budget.parts if part.name == name), 0.0) if budget is not None else 0.0

    def split_us(self, *names: str) -> float:
        """Mean time a step that the training thread waits for these, of `WaitSplit`."""
        split = self.view.split
        return sum(part.us for part in split.parts if part.name in names) if split is not None else 0.0

    def stages(self, *categories: str, label: str = "") -> list[StagePart]:
        """Stages of making a batch, of these categories, whose label holds a word."""
        return [one for one in self.making.stages if one.category in categories and label in one.label]

    def predict(self, change: Change) -> Prediction | None:
        """The step with something changed; None where nothing could be recorded."""
        return None if self.recorded is None else predicted(self.recorded, change(self.recorded.setup))

    @property
    def calibrations(self) -> list[Calibration]:
        survey = self.session.survey
        return [] if survey is None else survey.calibrations

    def is_faster(self, prediction: Prediction | None) -> bool:
        """By more than the noise of a run."""
        return prediction is not None and prediction.step_us <= (1 - WORTH) * self.step_us

    @cached_property
    def parsed(self) -> list[Source]:
        return parsed(self.session, [self.facts.get("file")], self.sources)

    def changed(self, wanted: Wanted) -> list[Changed] | None:
        """The user's files with it, where that is certain."""
        return changed(wanted, self.parsed, self.facts, self.session.outcome.command)

    def run_with(self, wanted: Wanted) -> str | None:
        """Name the script's own options that give what is wanted of the loader; None where none does."""
        found = loader_call(self.parsed, self.facts)
        if found is None:
            return None
        return run_with(found, self.parsed, wanted.keywords, self.session.outcome.command)

    def edit(self, wanted: Wanted) -> Edit | None:
        """The same as a diff. One that needs two files is none."""
        files = self.changed(wanted)
        if files is None or len(files) != 1:
            return None
        file = files[0]
        return Edit(file.path, file.line, file.diff(self.root_of([file.path])))

    def root_of(self, files: Sequence[str]) -> str:
        """Return the folder that a diff of these files names them from: `patch` takes no path that leads out of where
        it is applied, so that it is the current one only where they all lie in it."""
        here = self.sources.root
        if not files or all(not os.path.relpath(one, here).startswith(os.pardir) for one in files):
            return here
        return os.path.commonpath([os.path.dirname(one) for one in files])


WORTH = 0.02
"""Share of a step that a remedy must gain: two runs of one script differ by as much."""


def case_of(session: Session, diagnosis: Diagnosis, view: View, sources: Sources) -> Case | None:
    """None where no step was measured, or where it waited for no DataLoader: what to change of a loader of Headrace's
    own the findings say."""
    if view.budget is None or not view.makings or view.makings[0].threads:
        return None
    making = view.makings[0]
    loader = view.loader(making.loader)
    host = host_of(session, view.trainer)
    return Case(
        session=session,
        diagnosis=diagnosis,
        view=view,
        making=making,
        facts={} if loader is None else loader.facts,
        host=host,
        recorded=recorded(session, diagnosis),
        sources=sources,
    )


def with_stage(setup: Setup, name: str, change: Any) -> Setup:
    """A stage's, or a category's, time changed, beside what has been changed."""
    return replace(setup, stages={**setup.stages, name: change})
