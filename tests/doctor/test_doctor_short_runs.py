"""Whole runs that end by themselves before the doctor has seen all that it asked for, and small numbers of steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from observed_runs import Observed, measured, python

from headrace.doctor.causes import LEAST_STEPS, Prescription, prescribe
from headrace.doctor.measure import options_for

COMPUTED_US, MADE_US = 4_000, 16_000
"""What a step of the script sleeps, and what a batch of it does."""


def run(folder: Path, *arguments: int, options: tuple[str, ...] = ()) -> tuple[Observed, Prescription]:
    found = measured(python("short.py", *arguments), folder, *options, replay_steps=None)
    assert found.status == 0, found.error
    return found, prescribe(found.session, found.diagnosis)


def holds(found: Observed, prescription: Prescription, steps: int) -> None:
    """Compare what was found with what the script does: it sleeps for known times."""
    (budget,) = found.diagnosis.budgets
    assert budget.steps == steps
    assert budget.mean_us == pytest.approx(sum(part.us for part in budget.parts))
    assert budget.mean_us > COMPUTED_US
    bounds = prescription.lower_bounds
    assert bounds is not None, prescription.why_no_windows
    assert bounds.replay_us is not None
    assert COMPUTED_US < bounds.replay_us < budget.mean_us
    assert any(one.helps for one in prescription.remedies) == (steps >= LEAST_STEPS)


@pytest.mark.long
def test_where_the_script_counts_the_options_that_it_names_give_what_was_missing(tmp_path: Path) -> None:
    counting: Any = (1000, 1, 1, 40)
    found, prescription = run(tmp_path, *counting)
    assert prescription.lower_bounds is None
    said = f"The run ended after 40 steps, before cached batches were tried. {options_for(40)} leaves room for them."
    assert prescription.why_no_windows == said
    assert any(one.helps for one in prescription.remedies)
    (tmp_path / "again").mkdir()
    options = options_for(40).split()
    found, prescription = run(tmp_path / "again", *counting, options=tuple(options))
    holds(found, prescription, int(options[-1]))
    assert [one.name for one in found.session.trainers[0].windows] == ["observe", "replay"]


@pytest.mark.long
@pytest.mark.parametrize("steps", [5, 10, 20])
def test_few_steps_are_replayed_as_few_times(steps: int, tmp_path: Path) -> None:
    found, prescription = run(tmp_path, 1000, 1, 1, options=("--steps", str(steps)))
    holds(found, prescription, steps)
    windows = {one.name: one.steps - one.settling for one in found.session.trainers[0].windows}
    assert windows == {"observe": steps, "replay": steps}


@pytest.mark.long
def test_a_script_that_fails_on_repeated_batches_is_run_again_without_them(tmp_path: Path) -> None:
    script = tmp_path / "remembers.py"
    script.write_text(REMEMBERS)
    found = measured(python(str(script)), tmp_path, "--steps", "12", replay_steps=None)
    assert found.status == 0, found.error
    assert found.session.trainers[0].windows == []
    assert found.session.outcome.why == "steps"
    assert found.diagnosis.budgets[0].steps == 12
    (why,) = [note.text for note in found.session.notes if note.code == "no-replay"]
    assert "exit status 3" in why
    prescription = prescribe(found.session, found.diagnosis)
    assert prescription.lower_bounds is None
    assert prescription.why_no_windows == why


REMEMBERS = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((8,), float(index))

model, seen = torch.nn.Linear(8, 1), set()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
for batch in DataLoader(Numbers(), batch_size=4, num_workers=1):
    if float(batch[0, 0]) in seen:
        sys.exit(3)  # a batch comes twice
    seen.add(float(batch[0, 0]))
    optimizer.zero_grad()
    model(batch / 4000).mean().backward()
    optimizer.step()
"""
