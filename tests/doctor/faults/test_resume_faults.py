"""What `headrace check resume` says of training loops that go on from their checkpoint, well and badly."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.data_loader import skip_first_batches
from probing import probed
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from headrace import ResumableBatchSampler
from headrace.doctor.faults import resumption
from headrace.doctor.session import read_session
from headrace.doctor.session.model import CommandOutcome, Session

SAMPLES, BATCH, SAVED = 80, 4, 12
"""A pass has 20 batches; the checkpoint is written after 12."""
DATA = TensorDataset(torch.arange(float(SAMPLES)).reshape(-1, 1))


class Training:
    """A loop over batches that saves a checkpoint once, in the first run."""

    def __init__(self, folder: Path, *, resumes: bool) -> None:
        self.path, self.resumes = folder / "last.pt", resumes
        self.model = torch.nn.Linear(1, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-6)
        self.steps = 0

    def step(self, batches: list[Any]) -> None:
        self.optimizer.zero_grad()
        for (values,) in batches:
            self.model(values).mean().backward()
        self.optimizer.step()
        self.steps += 1

    def save(self, state: Any = None) -> None:
        if not self.resumes:
            torch.save({"model": self.model.state_dict(), "state": state}, self.path)

    def state(self) -> Any:
        return torch.load(self.path, weights_only=False)["state"] if self.resumes else None

    def epoch(
        self, loader: Iterable[Any], *, first: int = 0, ends: bool = False, save: Callable[[], Any] | None = int
    ) -> None:
        """Train on a pass, less its `first` batches, and save after `SAVED` of them; `ends` the pass there."""
        for number, batch in enumerate(loader):
            if number < first:
                continue
            self.step([batch])
            if number + 1 == SAVED and save is not None:
                self.save(save())
                if ends and not self.resumes:
                    break


def shuffled(seed: int = 0, **options: Any) -> Any:
    return DataLoader(DATA, BATCH, shuffle=True, generator=torch.Generator().manual_seed(seed), **options)


def skips(training: Training) -> None:
    training.epoch(shuffled(), first=SAVED * training.resumes)


def skips_by_accelerate(training: Training) -> None:
    loader = Accelerator(cpu=True).prepare(shuffled())
    training.epoch(skip_first_batches(loader, SAVED) if training.resumes else loader)


def restores_the_sampler(training: Training) -> None:
    sampler = ResumableBatchSampler(DATA, BATCH)
    if training.resumes:
        sampler.load_state_dict(training.state())
    training.epoch(sampler.track(DataLoader(DATA, batch_sampler=sampler)), save=sampler.state_dict)


def restores_the_loader(training: Training) -> None:
    loader = StatefulDataLoader(DATA, BATCH, sampler=torch.randperm(SAMPLES, generator=torch.manual_seed(0)).tolist())
    if training.resumes:
        loader.load_state_dict(training.state())
    training.epoch(loader, save=loader.state_dict)


def accumulates(training: Training) -> None:
    batches = iter(shuffled())
    for _ in islice(batches, SAVED * training.resumes):
        pass
    while both := list(islice(batches, 2)):
        training.step(both)
        if training.steps * 2 == SAVED:
            training.save()


def saves_after_evaluation(training: Training) -> None:
    for _ in range(1 if training.resumes else 2):
        training.epoch(shuffled(int(training.resumes)), save=None)
        with torch.no_grad():
            for (values,) in DataLoader(DATA, BATCH):
                training.model(values)
        training.save()


def begins_anew(training: Training) -> None:
    training.epoch(shuffled())


def begins_anew_elsewhere(training: Training) -> None:
    training.epoch(shuffled(seed=int(training.resumes)))


def begins_anew_where_the_first_ended(training: Training) -> None:
    training.epoch(shuffled(), ends=True)


def goes_on_in_the_order_of_the_first_pass(training: Training) -> None:
    """As Accelerate did in a second epoch until its pull request 4071."""
    if training.resumes:
        training.epoch(shuffled(0), first=SAVED)
    else:
        training.epoch(shuffled(0), save=None)
        training.epoch(shuffled(1))


def goes_on_in_stored_order(training: Training) -> None:
    """The first run ended at its checkpoint, so that its second pass does not hold the next batch."""
    loader = DataLoader(DATA, BATCH)
    if not training.resumes:
        training.epoch(loader, save=None)
    training.epoch(loader, first=SAVED * training.resumes, ends=True)


def writes_through_memory(training: Training) -> None:
    """As Lightning does."""
    for number, batch in enumerate(shuffled()):
        training.step([batch])
        if number + 1 == SAVED and not training.resumes:
            torch.save(training.model.state_dict(), io.BytesIO())


def skips_too_few(training: Training) -> None:
    training.epoch(shuffled(), first=(SAVED - 3) * training.resumes)


def skips_too_many(training: Training) -> None:
    training.epoch(shuffled(), first=(SAVED + 2) * training.resumes)


def saves_at_the_end_of_a_pass_read_ahead(training: Training) -> None:
    training.epoch(Accelerator(cpu=True).prepare(shuffled(int(training.resumes))), save=None)
    training.save()


def copies_in_memory(training: Training) -> None:
    """Code other than a checkpoint calls torch.save, and the checkpoint is written at the end of the pass."""
    for number, batch in enumerate(shuffled(int(training.resumes))):
        training.step([batch])
        if number + 1 == SAVED:
            torch.save(training.model.state_dict(), io.BytesIO())
    training.save()


def saves_twice(training: Training) -> None:
    """The first of two checkpoints is resumed."""
    training.epoch(shuffled(), first=SAVED * training.resumes)
    training.save()


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return iter(DATA)


def streams(training: Training) -> None:
    training.epoch(DataLoader(Stream(), BATCH))


def skips_in_a_stream(training: Training) -> None:
    training.epoch(DataLoader(Stream(), BATCH), first=SAVED * training.resumes)


def skips_in_another_order(training: Training) -> None:
    training.epoch(shuffled(7 * training.resumes), first=SAVED * training.resumes, ends=True)


def takes_what_is_left_in_another_order(training: Training) -> None:
    order = torch.randperm(SAMPLES, generator=torch.manual_seed(0)).tolist()
    rest = order[SAVED * BATCH :][::-1] if training.resumes else order
    training.epoch(DataLoader(DATA, BATCH, sampler=rest), ends=True, save=int)


def run(folder: Path, train: Callable[[Training], None], *, resumes: bool) -> Session:
    session = folder / ("second" if resumes else "first")
    session.mkdir()
    with probed(session, orders=True):
        train(Training(folder, resumes=resumes))
    return read_session(session, outcome=CommandOutcome([sys.executable], 0, "finished", 1), mode="observe")


def judged(folder: Path, train: Callable[[Training], None]) -> Any:
    return resumption(run(folder, train, resumes=False), run(folder, train, resumes=True))


@pytest.mark.one_in(6)
@pytest.mark.filterwarnings("ignore:'set_vital':UserWarning")
@pytest.mark.parametrize(
    "train",
    [
        *(skips, skips_by_accelerate, restores_the_sampler, restores_the_loader, accumulates, saves_twice),
        skips_in_a_stream,
    ],
)
def test_a_run_that_goes_on_has_no_fault(train: Callable[[Training], None], tmp_path: Path) -> None:
    found = judged(tmp_path, train)
    assert found.fault is None
    assert f"after the {SAVED} batches" in found.text


def test_another_order_after_a_resume_is_counted_by_samples(tmp_path: Path) -> None:
    fault = judged(tmp_path, skips_in_another_order).fault
    twice, never = map(
        int, re.findall(r"(\d+) samples of the pass are trained twice, and (\d+) never", fault.evidence)[0]
    )
    orders = [torch.randperm(SAMPLES, generator=_seeded(seed)).tolist() for seed in (0, 7)]
    done, rest = set(orders[0][: SAVED * BATCH]), set(orders[1][SAVED * BATCH :])
    assert (twice, never) == (len(done & rest), SAMPLES - len(done | rest))


def _seeded(seed: int) -> torch.Generator:
    """The generator of the sampler, once DataLoader's iterator has drawn its base seed from it."""
    generator = torch.Generator().manual_seed(seed)
    torch.empty((), dtype=torch.int64).random_(generator=generator)
    return generator


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("train", "what"),
    [
        (begins_anew, f"at least {SAVED} batches of that pass are repeated"),
        (begins_anew_elsewhere, f"at least {SAVED} batches of that pass are repeated"),
        (begins_anew_where_the_first_ended, f"at least {SAVED} batches of that pass are repeated"),
        (writes_through_memory, f"at least {SAVED} batches of that pass are repeated"),
        (goes_on_in_the_order_of_the_first_pass, "in the order of an earlier pass"),
        (skips_too_few, "at least 3 batches of that pass are repeated"),
        (skips_too_many, "2 batches are never trained"),
        (streams, f"at least {SAVED} batches of that pass are repeated"),
        (skips_in_another_order, "samples of the pass are trained twice"),
    ],
)
def test_batches_that_are_repeated_or_lost(train: Callable[[Training], None], what: str, tmp_path: Path) -> None:
    fault = judged(tmp_path, train).fault
    assert fault is not None
    assert fault.code == "repeated-after-resume"
    assert what in fault.evidence


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    "train",
    [
        saves_after_evaluation,
        saves_at_the_end_of_a_pass_read_ahead,
        copies_in_memory,
        takes_what_is_left_in_another_order,
        goes_on_in_stored_order,
    ],
)
def test_without_proof_there_is_no_fault(train: Callable[[Training], None], tmp_path: Path) -> None:
    assert judged(tmp_path, train).fault is None
