"""Case against which remedies are judged: one training run, its loader and machine, and the effect of a change."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Any

from headrace.doctor.causes.remedy import Edit
from headrace.doctor.edits import LoaderScript, ScriptSources, WantedEdit, parsed
from headrace.doctor.measure import (
    Diagnosis,
    Finding,
    Host,
    Join,
    LoaderProduction,
    StagePart,
    TrainerView,
    host_of,
    stalls_of_peers_us,
    with_loaders_as_one,
)
from headrace.doctor.probe.evidence_file import without_credentials
from headrace.doctor.session.model import Session
from headrace.doctor.simulate import Change, Factor, Prediction, RecordedRun, StageChange, name_of, predicted, recorded

WORTH = 0.02
"""Threshold for proposing a remedy: share of a step, or of making a batch. Two runs of one script differ by as much."""
LEAST_SPEEDUP = 1.1
"""Minimum predicted speedup of a remedy."""
LEAST_STEPS = 10
"""Minimum number of measured steps for advice, and for what follows from their mean."""
WORTH_SAYING = 0.01
"""Reporting threshold: share of a step."""
SLOWED = 0.85
"""Ratio of a step on cached batches with idle workers to a step without its waits, below which workers slow it down."""
GOES_WITH = (1.0, 0.8, 0.5)
"""Share of a step's time that scales with its tokens or pixels: upper bound, usual value, lower bound."""
HIGH, MEDIUM, LOW = "high", "medium", "low"
"""Levels of confidence: based on recorded work alone, also on the Loader's trial, or on an assumption."""


@dataclass(frozen=True)
class Case:
    """Rank that waits longest for data, and the loader that it waits for."""

    session: Session
    diagnosis: Diagnosis
    view: TrainerView
    making: LoaderProduction
    sources: ScriptSources

    @cached_property
    def facts(self) -> dict[str, Any]:
        loader = self.view.loader(self.making.loader)
        return {} if loader is None else loader.facts

    @cached_property
    def host(self) -> Host | None:
        return host_of(self.session, self.view.trainer)

    @cached_property
    def recorded(self) -> RecordedRun | None:
        """Recorded work that a simulation starts from; None if there is nothing to simulate."""
        return recorded(self.session, self.view, self.diagnosis.ranks)

    @cached_property
    def script(self) -> LoaderScript:
        """The user's files and the loader in them."""
        files = parsed(self.session, [self.facts.get("file")], self.sources)
        return LoaderScript(files, self.facts, self.session.outcome.command, self.sources)

    @property
    def step_us(self) -> float:
        """Mean observed step in microseconds."""
        if self.recorded is not None:
            return self.recorded.observed_us
        return 0.0 if self.view.budget is None else self.view.budget.mean_us

    @property
    def wait_share(self) -> float:
        return self.view.wait_share or 0.0

    @property
    def workers(self) -> int:
        return self.making.workers

    @property
    def cores(self) -> float | None:
        """Cores that this rank may use."""
        share = None if self.recorded is None else self.recorded.setup.cores
        return share if share is not None or self.host is None else self.host.cores

    @cached_property
    def loaders(self) -> list[int]:
        """Numbers of all DataLoaders that count as this loader: a script may create a new one each epoch."""
        as_one = {one.number: one.loader for one in with_loaders_as_one(self.view.trainer).passes}
        trainer = next(one for one in self.session.trainers if one.pid == self.view.trainer.pid)
        numbers = {one.loader for one in trainer.passes if as_one.get(one.number, one.loader) == self.making.loader}
        return sorted(numbers | {self.making.loader})

    @cached_property
    def batch_bytes(self) -> float | None:
        """Mean bytes of a batch's tensors; None if no batch had tensors."""
        gets = self.view.trainer.gets
        known = [bytes_ for row in self.view.training.gets if (bytes_ := gets.bytes[row]) is not None]
        return fmean(known) if known else None

    @cached_property
    def samples_a_batch(self) -> float | None:
        """Mean samples of this loader's batches: a script makes evaluation batches differently."""
        join, trainer = Join(self.session), self.view.trainer
        passes = (one for one in trainer.passes if one.loader == self.making.loader)
        batches = (made for one in passes for made in join.finder(trainer, one).batches())
        known = [count for made in batches if (count := made.maker.batches.samples[made.row]) is not None]
        size = self.facts.get("batch_size")
        items = fmean(known) if known else float(size) if isinstance(size, int) else None
        if items is None and self.making.item_samples > 1:
            items = 1.0  # an item is the batch
        return None if items is None else items * self.making.item_samples

    def finding(self, code: str) -> Finding | None:
        return next((one for one in self.diagnosis.findings if one.code == code), None)

    def part_us(self, name: str) -> float:
        """Return the mean time per step of one part of the step, on the training thread."""
        budget = self.view.budget
        return next((part.us for part in budget.parts if part.name == name), 0.0) if budget is not None else 0.0

    def split_us(self, *names: str) -> float:
        """Return the mean time per step that the training thread waits for these parts of `WaitSplit`."""
        split = self.view.split
        return sum(part.us for part in split.parts if part.name in names) if split is not None else 0.0

    def step_share(self, us: float) -> float:
        return us / self.step_us if self.step_us else 0.0

    @property
    def batches_a_step(self) -> float:
        return 1.0 if self.recorded is None else self.recorded.batches_a_step

    def stages(self, *categories: str, label: str = "") -> list[StagePart]:
        """Return the stages of making a batch in these categories with `label` in their label."""
        return [one for one in self.making.stages if one.category in categories and label in one.label]

    @cached_property
    def stalled(self) -> float:
        """Share of a step that better loading can gain: its stalls, its peers', and what busy workers slow down."""
        own_us = (1 - self.wait_share) * self.step_us
        replay_us = None if self.recorded is None else self.recorded.replay_us
        slowed_us = own_us - replay_us if replay_us is not None and replay_us < SLOWED * own_us else 0.0
        peers_us = stalls_of_peers_us(self.diagnosis.ranks, self.view.trainer)
        return self.wait_share + self.step_share(slowed_us + peers_us)

    def least_us(self, change: Change) -> float:
        """Return the shortest step that a change can give: it gains its share of the step, and at most the wait."""
        run = self.recorded
        if run is None:
            return 0.0
        now, after = run.setup, change(run.setup)
        taken = 1.0
        if replace(after, stages=now.stages, step=now.step, off_step_us=now.off_step_us) == now:  # else any of the wait
            taken = max(sum(one.share * (1 - _left(one, after.stages)) for one in self.making.stages), 0.0)
        own = (1 - self.wait_share) * (1 - after.step) + self.step_share(after.off_step_us * run.batches_a_step)
        return max(1 - min(taken, self.stalled) - own, 0.0) * self.step_us

    def predict(self, change: Change) -> Prediction | None:
        """Predict the step after a change, within what its share of a step allows; None without recorded work."""
        if self.recorded is None:
            return None
        found, least_us = predicted(self.recorded, change(self.recorded.setup)), self.least_us(change)
        step_us = max(found.step_us, least_us)
        return Prediction(step_us, max(found.low_us, least_us), max(found.high_us, step_us), self.step_us / step_us)

    def predict_between(self, usual: Change, least: Change, most: Change) -> Prediction | None:
        """Predict the usual change, with an interval from the `least` change to the `most` change."""
        made, low, high = (self.predict(change) for change in (usual, least, most))
        if made is None or low is None or high is None:
            return None
        return replace(made, low_us=min(made.low_us, low.low_us), high_us=max(made.high_us, high.high_us))

    def is_faster(self, prediction: Prediction | None, least: float = LEAST_SPEEDUP) -> bool:
        """Return True if the speedup is worth a change."""
        return prediction is not None and least * prediction.step_us <= self.step_us

    def edit(self, wanted: WantedEdit) -> Edit | None:
        """Return the edit as a diff; None if it is uncertain, shows a credential, or changes not exactly one file."""
        files = self.script.changed(wanted) or []
        if len(files) != 1:
            return None
        diff = files[0].diff(self.root_of([files[0].path]))
        return Edit(files[0].path, files[0].line, diff) if without_credentials(diff) == diff else None

    def root_of(self, files: Sequence[str]) -> str:
        """Return the root of paths in a diff: the current folder if it has all files, since `patch` stays below it."""
        here = self.sources.root
        if not files or all(not os.path.relpath(one, here).startswith(os.pardir) for one in files):
            return here
        return os.path.commonpath([os.path.dirname(one) for one in files])


def case_of(session: Session, diagnosis: Diagnosis, view: TrainerView, sources: ScriptSources) -> Case | None:
    """Return the case of a session; None if no step was measured or waited for a DataLoader that is not Headrace's."""
    if view.budget is None or not view.batch_production:
        return None
    return Case(session, diagnosis, view, view.batch_production[0], sources)


def _left(stage: StagePart, changes: Mapping[str, StageChange]) -> float:
    """Return the share of a stage's time that changes leave, by how much of it the stage computes."""
    change = changes.get(name_of(stage)) or changes.get(stage.category) or StageChange()
    computing = 1.0 if stage.computing is None else stage.computing
    return computing * change.cpu + (1 - computing) * change.wait


def goes_with(spare: float, what: str) -> Factor:
    """Return the factor that remains of a step's own time if this share of its work on tokens or pixels is dropped.

    Some of the time stays: launching kernels takes as long for few as for many. `what`: the assumption, after "50 % to
    100 % of".
    """
    least, usual, most = (1 - share * spare for share in GOES_WITH)
    return Factor(least, usual, most, False, f"The prediction assumes that 50 % to 100 % of {what}.")


def share_of(stages: Iterable[StagePart]) -> float:
    """Return the stages' share of the workers' busy time."""
    return sum(one.share for one in stages)


def sample_us(stages: Iterable[StagePart]) -> float:
    return sum(one.wall_us for one in stages)
