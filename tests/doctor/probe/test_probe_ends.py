"""How observing ends: after the steps asked for, when a hook fails, and when all is put back."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from probing import notes, probed, records, settings
from training_loops import Loop, loader

from headrace.doctor.attach.command import probe_environment
from headrace.doctor.probe.training import training
from headrace.doctor.probe.training.windows import StepsMeasured


@pytest.mark.long
def test_a_measured_run_ends_after_warm_up_and_steps(tmp_path: Path) -> None:
    loop = Loop()
    with probed(tmp_path, observe=False, steps=4) as probe:
        with pytest.raises(StepsMeasured) as ended:
            loop.train(loader(400))
        assert probe.last.reason == "steps"
        with pytest.raises(StepsMeasured):  # whoever catches it meets it again
            loop.train(loader(8))
    assert ended.value.code == 0
    assert len(records(tmp_path, "step")) == 3 + 4
    assert len(records(tmp_path, "get")) == 3 + 4  # it ends within the optimizer of the last
    assert [facts[2]["warmup_steps"] for facts in records(tmp_path, "facts") if "warmup_steps" in facts[2]] == [3]


@pytest.mark.parametrize(
    "broken", ["enter", "batch_requested", "record_batch", "optimizer_ends", "close", "begin_pass"]
)
@pytest.mark.one_in(6)
def test_a_failing_hook_switches_itself_off(tmp_path: Path, broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop()

    def fail(*_: Any) -> None:
        raise LookupError("broken")

    with probed(tmp_path) as probe:
        loop.train(loader(8))
        training = probe.training
        owners = {"batch_requested": training, "begin_pass": training, "close": training.closed}
        owner = owners.get(broken, training.state.steps)
        monkeypatch.setattr(owner, broken, fail)
        loop.train(loader(24))
    assert "LookupError: broken" in notes(tmp_path)["hook-off"]
    assert len(records(tmp_path, "note")) == 1


def test_detaching_puts_everything_back(tmp_path: Path) -> None:
    owners = [
        torch.utils.data.DataLoader,
        torch.utils.data.dataloader._BaseDataLoaderIter,
        torch.utils.data.dataloader._MultiProcessingDataLoaderIter,
        torch.utils.data._utils.pin_memory,
        torch.autograd,
        torch.distributed,
        torch.distributed.distributed_c10d,
        torch.amp.GradScaler,
        torch.cuda,
        torch.cuda.CUDAGraph,
        torch.nn.DataParallel,
        torch.Tensor,
        queue.Queue,
    ]
    optimizers = sys.modules["torch.optim.optimizer"]
    before = [dict(vars(owner)) for owner in owners]
    hooks = Counter(optimizers._global_optimizer_pre_hooks), Counter(optimizers._global_optimizer_post_hooks)
    with probed(tmp_path):
        assert vars(torch.utils.data.DataLoader)["__iter__"] is not before[0]["__iter__"]
    assert [dict(vars(owner)) for owner in owners] == before
    after = Counter(optimizers._global_optimizer_pre_hooks), Counter(optimizers._global_optimizer_post_hooks)
    assert after == hooks


def test_what_others_took_of_ours_is_inert_afterwards(tmp_path: Path) -> None:
    loop = Loop()
    with probed(tmp_path):
        batches = iter(loader(8))
        backward = torch.autograd.backward
        next(batches)
    written = sorted((tmp_path / "evidence").iterdir())[0].read_bytes()
    backward(loop.loss(next(batches)))
    assert sorted((tmp_path / "evidence").iterdir())[0].read_bytes() == written


@pytest.mark.long
def test_batches_of_a_run_that_never_trains_are_written_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be killed at any time; what autograd is off for is kept back, since it may be a check before training."""
    monkeypatch.setattr(training, "FLUSH_AFTER_NS", 0)
    with probed(tmp_path):
        batches = iter(loader(16))
        next(batches)
        next(batches)
        assert [get[2] for get in records(tmp_path, "get")] == [0, 1]
        with torch.no_grad():
            next(batches)
        assert len(records(tmp_path, "get")) == 2
    assert len(records(tmp_path, "get")) == 3


SCRIPT = str(Path(__file__).parents[1] / "compile_cases.py")


def _compiled(folder: Path | None) -> dict[str, Any]:
    """What the script prints; observed, where there is a folder."""
    env = dict(os.environ)
    if folder is not None:
        settings(folder).write()
        env = probe_environment(folder, env)
    run = subprocess.run([sys.executable, SCRIPT], env=env, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return dict(json.loads(run.stdout))


@pytest.mark.long
def test_all_is_compiled_as_without_the_probe(tmp_path: Path) -> None:
    plain, observed = _compiled(None), _compiled(tmp_path)
    for case in (*plain.values(), *observed.values()):
        case.pop("frames")  # those without a graph: an optimizer's frames are fewer where hooks are called in them
    assert observed == plain
    assert "hook-off" not in notes(tmp_path)
    assert len(records(tmp_path, "step")) == 12  # of compiled autograd, whose optimizer is not compiled
    assert records(tmp_path, "ready") == []
