"""headrace.distributed on two real ranks, in processes that the scenarios share; and what needs no process."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import dense_data
import distributed_ranks
import numpy as np
import pytest
import torch
from distributed_ranks import LONG_S, VAIN_S
from processes import DEADLINE_S, source_paths

import headrace as hr
from headrace.distributed import process_group
from headrace.distributed.process_group import (
    _with_sync_batchnorm,
    device_of,
    place_of,
    seeds_of,
)
from headrace.errors import RankError, UsageError

LAUNCHED = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
HEALTHY = ["place", "seeds", "same_start", "accumulated", "batchnorm", "loads", "nested", "forked_child", "early_exit"]
FAILING = [
    "rank_1_raises",
    "rank_0_raises_while_1_is_through",
    "both_raise",
    "interrupted",
    "unequal_steps",
]


def environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name not in LAUNCHED}
    return own | {"PYTHONPATH": os.pathsep.join(source_paths()), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def torchrun(
    out: Path, *scenarios: str, ranks: int = 2, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *options]
    command = [*launch, distributed_ranks.__file__, str(out), *scenarios]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=110)


def by_hand(out: Path, *scenarios: str) -> list[tuple[int, str]]:
    """Exit code and standard error of two ranks that no launcher looks after: rank 0 keeps the store."""
    port = free_port()
    command = [sys.executable, distributed_ranks.__file__, str(out), *scenarios]
    processes = [
        subprocess.Popen(command, env=environment() | LAUNCHED | place, stderr=subprocess.PIPE, text=True)
        for rank in "01"
        for place in [{"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "MASTER_PORT": port}]
    ]
    try:
        said = [process.communicate(timeout=DEADLINE_S)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return [(process.returncode, error) for process, error in zip(processes, said, strict=True)]


def reports(out: Path) -> list[dict[str, dict[str, object]]]:
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.fixture(scope="module")
def both_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pair")


@pytest.fixture(scope="module")
def both(both_folder):
    """What each of two ranks under torchrun reports of every scenario that both survive."""
    out = both_folder
    dense_data.write_tar(out / "scenes")
    ran = torchrun(out, *HEALTHY, *FAILING)
    assert ran.returncode == 0, ran.stderr
    return reports(out)


@pytest.fixture(scope="module")
def pair(both):
    return [{name: outcome for name, outcome in rank.items() if name != "files_closed"} for rank in both]


@pytest.fixture(scope="module")
def results(pair):
    return [{name: outcome["result"] for name, outcome in rank.items()} for rank in pair]


@pytest.mark.long
def test_each_rank_has_its_place(results):
    assert [rank["place"] for rank in results] == [
        [0, 2, 0, "cpu", True, 0, "gloo"],
        [1, 2, 1, "cpu", False, 1, "gloo"],
    ]


def test_seeds_are_reproducible_and_differ_between_ranks_and_seeds(results):
    (first, again, other), (of_1, again_of_1, other_of_1) = (rank["seeds"] for rank in results)
    assert (first, of_1) == (again, again_of_1)
    assert all(len({*draws}) == 4 for draws in zip(first, other, of_1, other_of_1, strict=True))


def test_wrap_gives_every_rank_the_parameters_of_rank_0(results):
    (drawn, start), (drawn_by_1, start_of_1) = (rank["same_start"] for rank in results)
    assert drawn != drawn_by_1
    assert start == start_of_1 == drawn


def test_accumulated_gradients_are_those_of_the_whole_batch_and_exchanged_once(results):
    for rank in results:
        accumulated, whole, exchanges = rank["accumulated"]
        np.testing.assert_allclose(accumulated, whole, rtol=1e-5)
        assert exchanges == 1
    assert results[0]["accumulated"] == results[1]["accumulated"]


def test_batchnorm_stays_on_the_cpu_and_one_rank_says_so_once(results):
    (kind, said), (kind_of_1, said_by_1) = (rank["batchnorm"] for rank in results)
    assert (kind, kind_of_1, said_by_1) == ("BatchNorm2d", "BatchNorm2d", [])
    ((text, file),) = said
    assert text.startswith("torch has SyncBatchNorm on GPUs only: on the CPU each rank normalises by its own batch")
    assert file == Path(distributed_ranks.__file__).name


def test_the_parts_of_two_ranks_are_the_batches_of_one(results, both_folder):
    """One shape on both at each step, equal parts, one state; with masks and depth, and as many as a budget bears."""
    budget_px = 2 * distributed_ranks.SCENES_BUDGET_PX
    scenes = both_folder / "scenes"
    whole, state = distributed_ranks.loaded(
        distributed_ranks.scenes_loader(scenes, budget_px=budget_px, rank=0, world_size=1)
    )
    (first, state_of_0), (second, state_of_1) = (rank["loads"] for rank in results)
    assert state_of_0 == state_of_1 == state
    assert len(first) == len(second) == len(whole) > 3
    for mine, other, (shape, keys, rows) in zip(first, second, whole, strict=True):
        assert (mine[0], other[0]) == (shape, shape)
        assert (mine[1] + other[1], mine[2] + other[2]) == (keys, rows)
        assert len(mine[1]) == len(other[1])
    assert sorted(key for batch in whole for key in batch[1]) == sorted(hr.open(
        scenes / "list.txt", root=scenes / "scenes.tar", columns=dense_data.COLUMNS
    ).keys)  # fmt: skip


def test_a_block_inside_a_block_is_refused(results):
    text = "expected one hr.distributed.start() at a time, got a second one inside it"
    assert all(rank["nested"] == {"error": "UsageError", "text": text} for rank in results)


def test_a_forked_child_ends_by_sigterm_as_ever(results):
    assert [rank["forked_child"] for rank in results] == [-signal.SIGTERM] * 2


def test_sys_exit_0_is_an_end_without_error(results):
    assert all(rank["early_exit"] == {"error": "SystemExit", "text": "0"} for rank in results)


@pytest.mark.parametrize(
    ("scenario", "failed", "error", "text"),
    [
        ("rank_1_raises", 1, "ValueError", "expected 3 channels, got 4"),
        ("rank_0_raises_while_1_is_through", 0, "OSError", "disk full"),
        ("interrupted", 1, "KeyboardInterrupt", ""),
    ],
    ids=["raises", "raises-while-through", "interrupted"],
)
def test_the_other_rank_names_the_one_that_raised_and_its_error(results, scenario, failed, error, text):
    assert results[failed][scenario] == {"error": error, "text": text}
    what = f"{error}: {text}" if text else error
    assert results[1 - failed][scenario] == {
        "error": "RankError",
        "text": f"rank {1 - failed} ends because rank {failed} ended: {what}",
    }


def test_each_rank_keeps_an_error_of_its_own(results):
    texts = [{"error": "ValueError", "text": f"of rank {rank}"} for rank in range(2)]
    assert [rank["both_raise"] for rank in results] == texts


def test_unequal_steps_are_named_on_both_ranks(results):
    """The rank that has more waits in vain, and the one that is through learns of it."""
    waited, through = results[1]["unequal_steps"], results[0]["unequal_steps"]
    assert "gloo" in waited["text"]
    assert through["error"] == "RankError"
    assert through["text"].startswith(f"rank 0 ends because rank 1 ended: {waited['error']}: ")


def test_nothing_waits_for_much_longer_than_the_timeout(pair):
    """Far from what hangs, and from what a slow machine adds."""
    assert all(outcome["took_s"] < VAIN_S + LONG_S / 2 for rank in pair for outcome in rank.values())


def test_every_end_leaves_no_group_thread_file_or_handler(both, pair):
    assert all(rank["files_closed"] for rank in both)
    for rank in pair:
        assert all(not outcome["group"] and outcome["threads"] == ["MainThread"] for outcome in rank.values())
        assert all(outcome["sigterm"] == str(signal.SIG_DFL) for outcome in rank.values())


@pytest.mark.long
def test_torchrun_reports_the_rank_that_raised_and_its_error(tmp_path):
    ran = torchrun(tmp_path, "wrapped_rank_1_raises!")
    assert ran.returncode != 0
    assert "ValueError: expected 3 channels, got 4" in ran.stderr
    assert re.search(r"Root Cause.*rank +: 1 .*ValueError: expected 3 channels, got 4", ran.stderr, re.DOTALL)


@pytest.mark.long
def test_a_rank_that_is_killed_is_named_under_torchrun(tmp_path):
    ran = torchrun(tmp_path, "rank_1_is_killed!")
    assert ran.returncode != 0
    assert re.search(r"rank +: 1 .*Signal 9 \(SIGKILL\)", ran.stderr, re.DOTALL)


@pytest.mark.long
def test_a_restart_by_torchrun_does_not_see_the_failure_before_it(tmp_path):
    ran = torchrun(tmp_path, "first_try_raises!", "first_try_raises", options=("--max-restarts", "1"))
    assert ran.returncode == 0, ran.stderr
    assert "ValueError: only once" in ran.stderr
    assert [rank["first_try_raises"]["result"] for rank in reports(tmp_path)] == ["1", "1"]


@pytest.mark.long
def test_a_rank_that_is_told_to_end_does_so_as_without_the_block(tmp_path):
    (code, _), (told, _) = by_hand(tmp_path, "rank_1_is_told_to_end!")
    assert (code, told) == (1, -signal.SIGTERM)


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return str(free.getsockname()[1])


@pytest.mark.leaks(reason="torch keeps a pipe of the process group's for good")
def test_a_world_of_one_under_torchrun_has_a_process_group(monkeypatch):
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_PORT": free_port()}
    for name, value in (LAUNCHED | alone).items():
        monkeypatch.setenv(name, value)
    model = torch.nn.Linear(1, 1)
    with hr.distributed.start(device="cpu") as ranks:
        assert (ranks.rank, ranks.world_size, torch.distributed.get_backend()) == (0, 1, "gloo")
        assert ranks.wrap(model) is model
        ranks.barrier()
    assert not torch.distributed.is_initialized()
    process_group._store.cache_clear()


@pytest.mark.long
def test_a_rank_that_is_killed_ends_the_others_where_nobody_looks_after_the_ranks(tmp_path):
    (code, _), (killed, _) = by_hand(tmp_path, "rank_1_raises", "place", "rank_1_is_killed!")
    assert (code, killed) == (1, -signal.SIGKILL)
    assert [rank["place"]["result"][0] for rank in reports(tmp_path)] == [0, 1]


@pytest.mark.long
def test_ranks_that_do_not_come_are_told_of(monkeypatch):
    port = free_port()
    for name, value in (LAUNCHED | {"MASTER_PORT": port, "RANK": "1", "WORLD_SIZE": "2"}).items():
        monkeypatch.setenv(name, value)
    begun = time.monotonic()
    text = rf"expected 2 ranks to meet at localhost:{port} within 1 s, got on rank 1: .*look for an earlier error"
    with pytest.raises(RankError, match=text), hr.distributed.start(timeout_s=1.0, device="cpu"):
        raise AssertionError
    assert time.monotonic() - begun < DEADLINE_S


# ---- one process -----------------------------------------------------------------------------------------------


@pytest.fixture
def alone(monkeypatch):
    for name in LAUNCHED:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("alone")
def test_without_a_launcher_everything_works_unchanged():
    with hr.distributed.start(device="cpu") as ranks:
        assert (ranks.rank, ranks.world_size, ranks.local_rank, ranks.is_first) == (0, 1, 0, True)
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4))
        assert ranks.wrap(model) is model
        with ranks.no_sync(model, unless=False):
            model(torch.ones(1, 3, 2, 2)).sum().backward()
        ranks.barrier()
        assert not torch.distributed.is_initialized()


@pytest.mark.usefixtures("alone")
def test_a_use_after_the_block_is_refused():
    with hr.distributed.start(device="cpu") as ranks:
        pass
    for use in (lambda: ranks.wrap(torch.nn.Linear(1, 1)), lambda: ranks.seed(0), ranks.barrier):
        with pytest.raises(UsageError, match=r"expected to be used inside `with hr\.distributed\.start"):
            use()


@pytest.mark.usefixtures("alone")
def test_an_error_of_the_only_rank_is_raised_as_it_is():
    with pytest.raises(ZeroDivisionError), hr.distributed.start(device="cpu"):
        raise ZeroDivisionError


@pytest.mark.usefixtures("alone")
def test_seeds_of_the_only_rank_are_those_of_rank_0():
    with hr.distributed.start(device="cpu") as ranks:
        ranks.seed(3)
    seeds = seeds_of(3, rank=0)
    assert torch.initial_seed() == seeds[0]
    drawn = np.random.rand(), random.random()
    np.random.seed(list(seeds[1]))
    random.seed(seeds[2])
    assert drawn == (np.random.rand(), random.random())


def test_no_two_seeds_meet():
    every = [seeds_of(seed, rank=rank) for seed in range(20) for rank in range(20)]
    for generator in range(3):
        assert len({seeds[generator] for seeds in every}) == len(every)


@pytest.mark.parametrize("seed", [-1], ids=str)
def test_a_seed_below_0_is_refused(seed):
    with pytest.raises(UsageError, match="seed: expected an int >= 0, got -1"):
        seeds_of(seed, rank=0)


@pytest.mark.parametrize("timeout_s", [0, -1.0, float("nan")], ids=str)
def test_a_timeout_that_is_none_is_refused(timeout_s):
    with pytest.raises(UsageError, match="timeout_s: expected seconds > 0"), hr.distributed.start(timeout_s=timeout_s):
        raise AssertionError


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"RANK": "4"},
            r"expected RANK and LOCAL_RANK in 0 … WORLD_SIZE - 1, got RANK=4, LOCAL_RANK=1 and WORLD_SIZE=4",
        ),
        ({"LOCAL_RANK": "x"}, "expected LOCAL_RANK to be an int, got 'x'"),
        ({"RANK": ""}, "got none of RANK; start with `torchrun"),
        ({"MASTER_PORT": "", "MASTER_ADDR": ""}, "got none of MASTER_ADDR, MASTER_PORT; start"),
    ],
    ids=["too-large", "no-int", "empty", "missing"],
)
def test_variables_that_do_not_fit_are_refused(change, text):
    with pytest.raises(UsageError, match=text):
        place_of(LAUNCHED | change)


def test_places():
    assert place_of(LAUNCHED) == (1, 4, 1)
    assert place_of({"MASTER_ADDR": "left over"}) is None


def test_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_of(1, None) == torch.device("cuda", 1)
    assert device_of(1, "cpu") == torch.device("cpu")
    with pytest.raises(UsageError, match=r"got LOCAL_RANK=2 and 2 GPUs; start fewer ranks \(--nproc-per-node 2\)"):
        device_of(2, None)
    with pytest.raises(UsageError, match="device: expected 'cuda', 'cpu' or None, got 'cuda:1'"):
        device_of(1, "cuda:1")


def test_batchnorm_is_converted_for_gpus():
    """What torch's own conversion gives, which needs no GPU by itself."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4))
    converted = _with_sync_batchnorm(model, torch.device("cuda", 0), tell=True)
    assert isinstance(converted[1], torch.nn.SyncBatchNorm)
