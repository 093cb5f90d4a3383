"""Epochs of a loop that is replayed: where they end, and what windows have room in them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from probing import records
from training_loops import Loop, loader
from windowed_runs import REPLAY, STEPS, measured, windows

from headrace.doctor.probe.probe import Probe
from headrace.doctor.probe.training.step_limit import SETTLING_STEPS


@pytest.mark.parametrize(
    ("is_new", "workers"),
    [(False, 0), (False, 1), (True, 0)],
    ids=["one loader", "with a worker", "a loader for each epoch"],
)
@pytest.mark.one_in(2)
def test_an_epoch_ends_in_replay_where_it_would_have_ended(tmp_path: Path, is_new: bool, workers: int) -> None:
    lengths, loop = [], Loop()

    def train(_: Probe) -> None:
        batches = loader(36, num_workers=workers)  # nine batches: one more than are observed
        while True:
            lengths.append(0)
            for batch in loader(36, num_workers=workers) if is_new else batches:
                loop.step(batch)
                lengths[-1] += 1

    measured(tmp_path, train, warmup=2)
    replayed = SETTLING_STEPS + REPLAY
    assert lengths == [9] * (len(lengths) - 1) + [(2 + STEPS + replayed - 1) % 9]  # the last step is the doctor's end
    assert len(records(tmp_path, "replayed")) == replayed
    assert len(records(tmp_path, "get")) == 2 + STEPS
    assert {name: settled for name, *_, settled in windows(tmp_path)} == {
        "observe": 0,
        "replay": SETTLING_STEPS,
    }


def test_what_a_script_does_between_epochs_is_no_part_of_a_replayed_step(tmp_path: Path) -> None:
    loop, saving = Loop(), []

    def train(probe: Probe) -> None:
        batches = loader(36)
        while True:
            loop.train(batches)
            start = probe.clock.now_us()
            time.sleep(0.01)
            saving.append((start, probe.clock.now_us()))

    measured(tmp_path, train, warmup=2)
    left_out = [
        (step[2] + offset, step[2] + offset + us)
        for step in records(tmp_path, "step")
        for kind, offset, us in step[4]
        if kind == "e"
    ]
    assert len(left_out) == len(saving) == 1
    assert left_out[0][0] <= saving[0][0] < saving[0][1] <= left_out[0][1] + 1


@pytest.mark.parametrize(("workers", "room"), [(0, 8), (1, 9)])
@pytest.mark.one_in(2)
def test_windows_end_with_the_epoch_where_it_has_room_for_them(tmp_path: Path, workers: int, room: int) -> None:
    """The script ends with its one epoch, which has room for fewer steps than would be replayed otherwise."""
    batches = loader(4 * (2 + STEPS + room), num_workers=workers)
    measured(tmp_path, lambda _: Loop().train(batches), warmup=2, replay=40, steps=STEPS)
    steps = {name: count - settling for name, _, count, settling in windows(tmp_path)}
    assert steps["replay"] == room - SETTLING_STEPS


@pytest.mark.long
def test_epochs_that_a_loop_counts_go_on_with_copies(tmp_path: Path) -> None:
    batches = loader(4000, num_workers=1, persistent_workers=True)
    loop = Loop()

    def train(_: Probe) -> None:
        while True:
            for number, batch in enumerate(batches):
                loop.step(batch)
                if number == 2:
                    break

    measured(tmp_path, train, warmup=2)
    assert len(records(tmp_path, "replayed")) == SETTLING_STEPS + REPLAY
    begun = [one[3] for one in records(tmp_path, "pass")]
    replay = records(tmp_path, "window")[1]
    assert not [start for start in begun if replay[5] < start < replay[6]]
