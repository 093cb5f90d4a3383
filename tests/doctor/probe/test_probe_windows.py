"""What a measured run does after the observed steps: copies of kept batches."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from probing import REPLAY, STEPS, Train, measured, notes, records, windows
from training_loops import Loop, forever, loader, pairs

from headrace.doctor.probe.probe import Probe
from headrace.doctor.probe.training.replay import GREED
from headrace.doctor.probe.training.windows import SETTLING_STEPS


def test_the_run_replays_after_its_observed_steps(tmp_path: Path) -> None:
    measured(tmp_path, lambda _: Loop().train(loader(4000)), warmup=2)
    end = 2 + STEPS + SETTLING_STEPS + REPLAY
    replay = ("replay", 2 + STEPS, SETTLING_STEPS + REPLAY, SETTLING_STEPS)
    assert windows(tmp_path) == [("observe", 2, STEPS, 0), replay]
    assert [step[1] for step in records(tmp_path, "step")] == list(range(end))
    assert len(records(tmp_path, "get")) == 2 + STEPS
    assert len(records(tmp_path, "replayed")) == SETTLING_STEPS + REPLAY


def test_windows_lie_end_to_end(tmp_path: Path) -> None:
    measured(tmp_path, lambda _: Loop().train(loader(4000)))
    steps = {step[1]: step for step in records(tmp_path, "step")}
    observe, replay = records(tmp_path, "window")
    assert (observe[5], observe[6]) == (steps[3][2], steps[3 + STEPS - 1][3])
    assert (replay[5], replay[6]) == (observe[6], steps[max(steps)][3])


def test_each_step_of_several_batches_is_replayed_whole(tmp_path: Path) -> None:
    loop = Loop()

    def train(_: Probe) -> None:
        for number, batch in enumerate(loader(4000)):
            loop.loss(batch).backward()
            if number % 3 == 2:
                loop.optimizer.step()

    measured(tmp_path, train)
    replay = records(tmp_path, "window")[1]
    assert replay[3] == SETTLING_STEPS + REPLAY
    assert len(records(tmp_path, "replayed")) == 3 * replay[3]


@pytest.mark.long
def test_an_evaluation_meanwhile_sees_its_own_data_to_their_end(tmp_path: Path) -> None:
    held_out, loop, sizes = loader(12), Loop(), []

    def train(_: Probe) -> None:
        for number, batch in enumerate(loader(4000)):
            loop.step(batch)
            if number % 3 == 0:
                with torch.no_grad():
                    sizes.append(sum(len(inputs) for inputs, _ in held_out))

    measured(tmp_path, train)
    assert len(sizes) > 4
    assert set(sizes) == {12}


@pytest.mark.long
def test_a_loop_that_asks_without_end_gets_the_real_end(tmp_path: Path) -> None:
    """It adds up the whole loader within one step, with autograd on: no copy may keep it from ending."""
    batches, loop, counts = loader(400), Loop(), []

    def train(probe: Probe) -> None:
        for batch in batches:
            loop.step(batch)
            if probe.training.replay.is_on:
                counts.append(sum(1 for _ in batches))
                break
        loop.train(forever(batches))

    measured(tmp_path, train)
    assert counts == [GREED * 2]  # what stood for the pass ended there
    assert "LookupError" in notes(tmp_path)["hook-off"]


# Where replay would be wrong.


class _Uncopyable:
    def __reduce__(self) -> Any:
        raise TypeError("it holds a socket")


def _collated(extra: Callable[[], Any]) -> Train:
    def collate(samples: Any) -> Any:
        return {"inputs": torch.stack([inputs for inputs, _ in samples]), "extra": extra()}

    def train(_: Probe) -> None:
        loop = Loop()
        for batch in loader(4000, collate_fn=collate):
            loop.step((batch["inputs"], torch.zeros(4, 1)))

    return train


def _text(_: Probe) -> None:
    loop, zeros = Loop(), (torch.zeros(4, 8), torch.zeros(4, 1))
    for _batch in loader(4000, collate_fn=lambda samples: "text"):
        loop.step(zeros)


def _captured(probe: Probe) -> None:
    probe.training.say("capture", "")
    Loop().train(loader(4000))


def _no_loader(_: Probe) -> None:
    Loop().train(forever([torch.utils.data.default_collate([pairs(4)[0]])]))


@pytest.mark.parametrize(
    ("train", "why"),
    [
        (_collated(_Uncopyable), "its batches cannot be copied (TypeError: it holds a socket)"),
        (_text, "its batches hold no tensors"),
        (_captured, "steps run as CUDA graphs"),
        (_no_loader, "no DataLoader that is known fed its steps"),
    ],
    ids=["uncopyable", "no tensors", "graphs", "no loader"],
)
@pytest.mark.one_in(3)
def test_a_run_is_only_observed_where_replay_would_be_wrong(tmp_path: Path, train: Train, why: str) -> None:
    measured(tmp_path, train)
    assert [name for name, *_ in windows(tmp_path)] == ["observe"]
    assert len(records(tmp_path, "step")) == 3 + STEPS
    assert f": {why}" in notes(tmp_path)["no-replay"]


def _in_a_thread(queue_type: Any, size: int) -> Train:
    """Trains on what another thread fetches; the queue of that size ends its wait when the run does."""

    def train(_: Probe) -> None:
        batches = queue_type(maxsize=size)
        stop = threading.Event()

        def fetch() -> None:
            for batch in loader(400_000):
                while not stop.is_set():
                    with suppress(queue.Full):
                        batches.put(batch, timeout=0.05)
                        break
                if stop.is_set():
                    return

        thread = threading.Thread(target=fetch)
        thread.start()
        try:
            Loop().train(iter(lambda: batches.get(), None))  # by its name, which is hooked later
        finally:
            stop.set()
            thread.join()

    return train


@pytest.mark.long
def test_a_thread_that_hands_batches_over_gets_copies(tmp_path: Path) -> None:
    measured(tmp_path, _in_a_thread(queue.Queue, 2))
    assert [name for name, *_ in windows(tmp_path)] == ["observe", "replay"]
    replay = records(tmp_path, "window")[1]
    settled = next(step[2] for step in records(tmp_path, "step") if step[1] == replay[2] + replay[4])
    assert not [get for get in records(tmp_path, "get") if settled <= get[3] < replay[6]]
    assert len([one for one in records(tmp_path, "replayed") if settled <= one[2] < replay[6]]) >= REPLAY
