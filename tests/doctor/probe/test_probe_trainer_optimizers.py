"""Steps of training loops as people write them: accumulation, several optimizers, closures, evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from probing import kinds, notes, probed, records, spans
from training_loops import Loop, loader


def test_accumulated_batches_belong_to_one_step(tmp_path: Path) -> None:
    loop = Loop()
    with probed(tmp_path):
        for number, batch in enumerate(loader(24)):
            loop.loss(batch).backward()
            if number % 3 == 2:
                loop.optimizer.step()
    steps = records(tmp_path, "step")
    assert [kinds(step) for step in steps] == ["bbbo", "bbbo"]
    assert [sum(step[2] <= get[3] < step[3] for get in records(tmp_path, "get")) for step in steps] == [3, 3]


def test_two_optimizers_take_one_step(tmp_path: Path) -> None:
    one, two = Loop(), Loop()
    with probed(tmp_path):
        for batch in loader(24):
            one.step(batch)
            two.step(batch)
    assert [kinds(step) for step in records(tmp_path, "step")] == ["bobo"] * 6
    assert "2 optimizers" in notes(tmp_path)["optimizers"]


def test_a_step_that_the_scaler_skips_counts(tmp_path: Path) -> None:
    loop = Loop()
    scaler = torch.amp.GradScaler("cpu")
    with probed(tmp_path):
        for number, batch in enumerate(loader(24)):
            loop.optimizer.zero_grad()
            loss = loop.loss(batch)
            scaler.scale(loss * (float("inf") if number == 2 else 1.0)).backward()
            scaler.step(loop.optimizer)
            scaler.update()
    assert [kinds(step) for step in records(tmp_path, "step")] == ["bo", "bo", "bs", "bo", "bo", "bo"]
    assert "scaler" in notes(tmp_path)


def test_a_closure_runs_within_the_optimizer_and_is_not_its_time(tmp_path: Path) -> None:
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    with probed(tmp_path):
        for inputs, targets in loader(8):

            def closure(inputs: Any = inputs, targets: Any = targets) -> Any:
                optimizer.zero_grad()
                loss = (model(inputs) - targets).square().mean()
                loss.backward()
                return loss.detach()  # which LBFGS makes a number of, and some releases warn of

            optimizer.step(closure)
    steps = records(tmp_path, "step")
    assert len(steps) == 2
    assert kinds(steps[0]).startswith("obo")
    assert len(records(tmp_path, "get")) == 2


def test_an_evaluation_between_steps_is_no_wait_for_data(tmp_path: Path) -> None:
    loop = Loop()
    held_out = loader(20)
    with probed(tmp_path):
        for number, batch in enumerate(loader(24)):
            loop.step(batch)
            if number == 2:
                with torch.no_grad():
                    for other in held_out:
                        loop.loss(other)
    steps = records(tmp_path, "step")
    assert [kinds(step) for step in steps] == ["bo", "bo", "bo", "ebo", "bo", "bo"]
    assert len(records(tmp_path, "get")) == 6
    evaluated = records(tmp_path, "fetch")
    assert len(evaluated) == 5
    start = steps[3][2] + spans(steps[3])[0][1]
    assert all(start <= fetch[3] <= start + spans(steps[3])[0][2] for fetch in evaluated)
