"""The case that remedies are judged by: one loader, its stages, files and simulation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Any

from headrace.doctor.causes.remedy import Edit, Factor, Remedy, over
from headrace.doctor.edits.changes import ChangedScript, WantedEdit, changed
from headrace.doctor.edits.loader_call import loader_call, run_with
from headrace.doctor.edits.script_source import ScriptSource, ScriptSources, parsed
from headrace.doctor.measure.batches import Finder, Join
from headrace.doctor.measure.diagnosis import Diagnosis, LoaderProduction, StagePart
from headrace.doctor.measure.host import Host, host_of
from headrace.doctor.measure.steps import WAIT, with_loaders_as_one
from headrace.doctor.measure.view import TrainerView
from headrace.doctor.quantities import time
from headrace.doctor.session.model import Calibration, Session
from headrace.doctor.simulate.prediction import Prediction, predicted
from headrace.doctor.simulate.recording import RecordedRun, recorded
from headrace.doctor.simulate.work import FeedSetup, StageChange

# -- from doctor/remedies/case.py: What every remedy looks at: one training, its loader, its machine, and what a
# change of it would give.


Change = Callable[[FeedSetup], FeedSetup]
"""A what-if."""


@dataclass(frozen=True)
class Case:
    """The rank that waits for data the longest, and the loader that it waits for."""

    session: Session
    diagnosis: Diagnosis
    view: TrainerView
    making: LoaderProduction
    facts: dict[str, Any]
    """Of the loader."""
    host: Host | None
    recorded: RecordedRun | None
    """None where there is nothing to simulate."""
    sources: ScriptSources

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
    def parsed(self) -> list[ScriptSource]:
        return parsed(self.session, [self.facts.get("file")], self.sources)

    def changed(self, wanted: WantedEdit) -> list[ChangedScript] | None:
        """The user's files with it, where that is certain."""
        return changed(wanted, self.parsed, self.facts, self.session.outcome.command)

    def run_with(self, wanted: WantedEdit) -> str | None:
        """Name the script's own options that give what is wanted of the loader; None where none does."""
        found = loader_call(self.parsed, self.facts)
        if found is None:
            return None
        return run_with(found, self.parsed, wanted.keywords, self.session.outcome.command)

    def edit(self, wanted: WantedEdit) -> Edit | None:
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


def case_of(session: Session, diagnosis: Diagnosis, view: TrainerView, sources: ScriptSources) -> Case | None:
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


def with_stage(setup: FeedSetup, name: str, change: Any) -> FeedSetup:
    """A stage's, or a category's, time changed, beside what has been changed."""
    return replace(setup, stages={**setup.stages, name: change})


# -- from doctor/remedies/proposal.py: A remedy with what its prescription is put together from.


HIGH, MEDIUM, LOW = "high", "medium", "low"
"""Confidence: only what was recorded, simulated anew; something timed beside the run, too; an assumption."""


@dataclass(frozen=True)
class Proposal:
    remedy: Remedy
    change: Change | None = None
    """To predict it together with others."""
    wanted: WantedEdit | None = None
    """To change the user's files for it together with others."""


def tried(
    case: Case,
    prediction: Prediction | None,
    *,
    code: str,
    title: str,
    why: str,
    confidence: str,
    change: Change,
    costs: list[str] | None = None,
    wanted: WantedEdit | None = None,
    hint: str = "",
    changes: dict[str, Any] | None = None,
) -> Proposal:
    """Helps where the prediction says so; else it says what was predicted. One that cannot be predicted is not said to
    help."""
    if prediction is None:
        return would_not(code, title, f"{why} What it would gain cannot be computed: no batch's making was recorded.")
    if not case.is_faster(prediction):
        return would_not(code, title, f"{why} {_no_gain(case, prediction)}")
    edit = None if wanted is None else case.edit(wanted)
    options = None if wanted is None else case.run_with(wanted)
    remedy = Remedy(
        code=code,
        title=title,
        helps=True,
        why=why,
        prediction=prediction,
        confidence=confidence,
        costs=costs or [],
        edit=edit,
        hint=hint if options is None else f"run it with {options}",
        changes=changes,
    )
    return Proposal(remedy, change, wanted)


def would_not(code: str, title: str, why: str) -> Proposal:
    return Proposal(Remedy(code, title, helps=False, why=why, prediction=None, confidence=HIGH))


def unpredicted(
    code: str, title: str, why: str, *, costs: list[str] | None = None, hint: str = "", wanted: WantedEdit | None = None
) -> Proposal:
    """One that is right to do, but whose gain nothing that was recorded tells."""
    remedy = Remedy(code, title, helps=True, why=why, prediction=None, confidence=LOW, costs=costs or [], hint=hint)
    return Proposal(remedy, wanted=wanted)


def with_factor(case: Case, factor: Factor, change: Any) -> Prediction | None:
    """`change` makes a Change of what is left of a stage. The interval spans what the factor may be."""
    return over(*(case.predict(change(left)) for left in (factor.usual, factor.least, factor.most)))


def _no_gain(case: Case, prediction: Prediction) -> str:
    return f"It would give {time(prediction.step_us)} a step, and there are {time(case.step_us)} now: no gain."


# -- from doctor/remedies/stages.py: Stages of making a batch that a remedy would change: what they take, and what is
# left of them.


def share_of(stages: Iterable[StagePart]) -> float:
    """Of the makers' busy time."""
    return sum(one.share for one in stages)


def name_of(stage: StagePart) -> str:
    return f"{stage.category}:{stage.label}"


def scaled(stages: Sequence[StagePart]) -> Callable[[float], Change]:
    """By what is left of them, the change; one that has been changed before is changed on top of that."""

    def leaving(left: float) -> Change:
        def change(setup: FeedSetup) -> FeedSetup:
            changed = {name_of(one): _scaled(setup.stages.get(name_of(one)), left) for one in stages}
            return replace(setup, stages={**setup.stages, **changed})

        return change

    return leaving


def _scaled(before: StageChange | None, left: float) -> StageChange:
    now = before if before is not None else StageChange()
    return StageChange(now.cpu * left, now.wait * left, None if now.call_us is None else now.call_us * left)
