"""Calls of the loop that read tensors or print: which count, from where, and what is left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from probing import notes, probed, records
from training_loops import Loop, loader

from headrace.doctor.probe.hooks.loop_calls import READS, TEXTS
from headrace.doctor.probe.training import loop_work

STEPS = 6
OWN = ("Tensor.item()", "Tensor.__float__()", "Tensor.__bool__()", "print")


def calls(folder: Path) -> tuple[int, Counter[tuple[str, str, int]]]:
    """How many steps were watched, and calls by what was called, the function it was called from, and the flag."""
    names = {number: text for _, number, text in records(folder, "name")}
    steps, found = 0, Counter[tuple[str, str, int]]()
    for _, _, watched, rows in records(folder, "calls"):
        steps += watched
        for what, place, waits, count, us in rows:
            assert us >= 0
            found[names[what], names.get(place, "").rpartition(":")[2].rpartition(".")[2], waits] += count
    return steps, found


def train(folder: Path, after: Callable[[Loop, Any], None], count: int = 4 * STEPS) -> None:
    with probed(folder):
        loop = Loop()
        for batch in loader(count):
            loop.step(batch)
            after(loop, batch)


def test_each_read_and_print_counts_once_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def after(loop: Loop, batch: Any) -> None:
        loss = loop.loss(batch).detach()
        loss.item()
        float(loss)
        print(loss)  # which makes its text, and reads it for that
        assert loss >= 0

    train(tmp_path, after)
    _, found = calls(tmp_path)
    own = {what: (place, waits, count) for (what, place, waits), count in found.items() if what in OWN}
    assert own == dict.fromkeys(OWN, ("after", 0, STEPS))
    assert capsys.readouterr().out.count("tensor(") == STEPS


def test_what_an_evaluation_a_loader_or_an_optimizer_reads_does_not_count(tmp_path: Path) -> None:
    class Reading(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            self.param_groups[0]["params"][0].detach().sum().item()
            return super().step(closure)

    def collate(samples: Any) -> Any:
        inputs, targets = map(torch.stack, zip(*samples, strict=True))
        inputs.sum().item()
        return inputs, targets

    with probed(tmp_path):
        loop = Loop()
        loop.optimizer = Reading(loop.model.parameters(), lr=0.01)  # type: ignore[attr-defined]
        for batch in loader(4 * STEPS, collate_fn=collate):
            loop.step(batch)
            with torch.no_grad():
                for held_out in loader(8):
                    loop.loss(held_out).item()
    assert not [what for what in calls(tmp_path)[1] if what[0] == "Tensor.item()"]


def test_thousands_of_reads_are_watched_in_one_step_of_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_work, "REST_STEPS", 3)
    own: list[bool] = []

    def after(loop: Loop, batch: Any) -> None:
        own.append("item" not in vars(torch.Tensor))
        for value in torch.zeros(2_000):
            value.item()

    train(tmp_path, after, 4 * 10)
    watched, found = calls(tmp_path)
    assert own.count(True) > own.count(False)
    assert found["Tensor.item()", "after", 0] == pytest.approx(2_000 * watched, abs=2_000)
    assert "item" not in vars(torch.Tensor)


def test_tensors_are_left_as_they_were(tmp_path: Path) -> None:
    before = {name: vars(torch.Tensor).get(name) for name in (*READS, *TEXTS)}
    item, written = torch.Tensor.item, print
    with probed(tmp_path):
        assert torch.Tensor.item == item
        assert hash(torch.Tensor.item) == hash(item)
        assert print is not written
    assert {name: vars(torch.Tensor).get(name) for name in (*READS, *TEXTS)} == before
    assert print is written
    assert "not-known" not in notes(tmp_path)
