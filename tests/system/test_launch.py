"""Which rank a loader is: as torch.distributed has it, else as the launcher's variables say, in real processes too."""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import battery
import pytest
from loader_data import write_folder
from processes import run_python, source_paths

import headrace as hr
from headrace.distributed.process_group import place_of
from headrace.errors import UsageError
from headrace.system.rank import LAUNCHERS, LIGHTNING, TORCHRUN, place_of_variables

HERE = Path(__file__).parents[1]
VARIABLES = {
    *TORCHRUN,
    *LIGHTNING,
    *(name for each in LAUNCHERS for name in (each.rank, each.world_size, each.local_rank)),
}
MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
STEP = {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}
LAUNCHED = {
    "nothing": ({}, 0, 1),
    "torchrun": ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3"}, 3, 8),
    "Lightning's ddp": ({"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2"}, 1, 2),
    "Lightning's, on a second node": (
        {"LOCAL_RANK": "1", "NODE_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"},
        5,
        8,
    ),
    "Open MPI": (MPI, 1, 4),
    "MVAPICH2": ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"}, 1, 2),
    "MPICH": ({"PMI_RANK": "1", "PMI_SIZE": "2"}, 1, 2),
    "srun": (STEP, 2, 4),
    "srun, whose script sets the world": (STEP | {"WORLD_SIZE": "4"}, 2, 4),
    "torchrun in a task of SLURM": (STEP | {"RANK": "5", "WORLD_SIZE": "32"}, 5, 32),
    "mpirun in an allocation of SLURM, by one daemon a node": (
        MPI | {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "4"},
        1,
        4,
    ),
    "a shell of salloc": ({"SLURM_NTASKS": "4", "SLURM_JOB_NAME": "interactive"}, 0, 1),
    "a batch script without srun": ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}, 0, 1),
    "salloc's interactive step": ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "4"}, 0, 1),
    "srun --pty bash": ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1"}, 0, 1),
    "a GPU chosen by hand": ({"LOCAL_RANK": "1"}, 0, 1),
    "one of one": ({"WORLD_SIZE": "1"}, 0, 1),
    "a first rank of whatever": ({"RANK": "0"}, 0, 1),
    "emptied": ({"RANK": "", "WORLD_SIZE": ""}, 0, 1),
}
WRONG = {
    "half of torchrun's": ({"RANK": "1"}, "expected RANK and WORLD_SIZE together .*RANK=1 and WORLD_SIZE=None; set"),
    "the world alone": ({"WORLD_SIZE": "2"}, "expected RANK and WORLD_SIZE together .* and WORLD_SIZE=2; set both"),
    "a world that SLURM does not know": (STEP | {"WORLD_SIZE": "8"}, "expected RANK and WORLD_SIZE together .*=8; set"),
    "a rank outside": ({"RANK": "2", "WORLD_SIZE": "2"}, r"a rank in 0 … 1 from RANK and WORLD_SIZE, got 2 of 2; pass"),
    "no number": ({"RANK": "first", "WORLD_SIZE": "2"}, "expected RANK to be an int, got 'first'; pass rank="),
    "a task outside its step": (STEP | {"SLURM_PROCID": "4"}, "from SLURM_PROCID and SLURM_STEP_NUM_TASKS, got 4 of 4"),
    "half of MPI's": ({"PMI_RANK": "1"}, "PMI_RANK and PMI_SIZE together .* MPICH sets them, got PMI_RANK=1 alone"),
    "Lightning's second node": (
        {"LOCAL_RANK": "1", "NODE_RANK": "1", "WORLD_SIZE": "8"},
        r"how many processes each node has, .* train_dataloader\(\) or after fabric.launch\(\), or pass rank=",
    ),
}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def numbers(tmp_path):
    (tmp_path / "list.csv").write_text("number\n" + "".join(f"{number}\n" for number in range(40)))
    return tmp_path / "list.csv"


def loader_of(numbers, **options):
    return hr.Loader(numbers, {"number": hr.Label()}, **({"batch_size": 4, "shuffle": True, "seed": 3} | options))


@pytest.mark.parametrize(("environment", "rank", "world_size"), LAUNCHED.values(), ids=LAUNCHED)
def test_the_variables_of_launchers(environment, rank, world_size, monkeypatch, numbers):
    place = place_of_variables(environment)
    assert (place.rank, place.world_size) == (rank, world_size)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for made in (loader_of(numbers), hr.ResumableBatchSampler(40, 4)):
        assert (made.rank, made.world_size) == (rank, world_size)


@pytest.mark.parametrize(("environment", "said"), WRONG.values(), ids=WRONG)
def test_variables_that_do_not_fit_together(environment, said):
    with pytest.raises(UsageError, match=said):
        place_of_variables(environment)


def test_tasks_of_slurm_that_may_train_by_themselves_are_told(monkeypatch, numbers):
    """A sweep has tasks as well, and no process group: each would train on a part in silence."""
    for name, value in STEP.items():
        monkeypatch.setenv(name, value)
    loader = loader_of(numbers)
    with pytest.warns(
        UserWarning,
        match=r"rank 2 of 4, from SLURM's SLURM_PROCID .* no process group: .* pass rank=0 and world_size=1",
    ):
        list(loader)
    assert len(list(loader_of(numbers, rank=0, world_size=1))) == 10
    assert len(list(loader_of(numbers, rank=2, world_size=4))) == 3


@pytest.mark.long
def test_a_rank_is_found_without_importing_torch(numbers):
    code, out, error = run_python(
        f"""
        import sys, headrace as hr
        loader = hr.Loader({str(numbers)!r}, {{"number": hr.Label()}}, batch_size=4, output="numpy")
        print(len(list(loader)), "torch" in sys.modules)
        """
    )
    assert (code, out.split(), error) == (0, ["10", "False"], "")


def test_start_takes_slurms_tasks_and_says_what_it_lacks():
    meeting = {"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
    assert place_of(STEP | meeting) == (2, 4, 0)
    assert place_of(MPI | meeting) == (1, 4, 1)
    assert place_of(STEP | {"SLURM_STEP_NUM_TASKS": "1"}) is None
    with pytest.raises(UsageError, match=r"SLURM_PROCID, .* together, got none of MASTER_ADDR, MASTER_PORT; "):
        place_of(STEP)


def ran(script, *arguments):
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    environment |= {"PYTHONPATH": os.pathsep.join(source_paths()), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    run = subprocess.run(
        [sys.executable, HERE / script, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.long
def test_ranks_of_multiprocessing_spawn(numbers, tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    ran("spawned_ranks.py", numbers, tmp_path, port)
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    for epoch, names in enumerate([("numbers", "mixed", "batches"), ("after the group",)]):
        whole = loader_of(numbers, batch_size=8)
        whole.set_epoch(epoch)
        for name in names:
            joined = [first + second for first, second in zip(*(rank[name] for rank in ranks), strict=True)]
            assert joined == [batch["number"].tolist() for batch in whole], name
            whole.set_epoch(epoch)
    for place, rank in enumerate(ranks):
        assert sorted(number for batch in rank["given"] for number in batch) == list(range(40)), "rank=0, world_size=1"
        made_early = "Loader", "mixture", "iterator", "sampler", "ThreadDataLoader", "DevicePrefetcher", "as_dataloader"
        for name in made_early:
            assert (
                "expected to be rank 0 of 1 as when it was made (from no launcher's variables), got rank "
                f"{place} of 2 from torch.distributed, whose process group began later; make it after"
            ) in rank[name], name


STARTS = [(how, strategy) for how in ("trainer", "fabric") for strategy in ("ddp", "ddp_fork", "ddp_spawn")]


@pytest.mark.long
@pytest.mark.parametrize(("how", "strategy"), STARTS)
def test_ranks_that_lightning_starts(how, strategy, tmp_path):
    """A plain `devices=2`, with the DataModule of the documentation."""
    photos, out = write_folder(tmp_path / "photos"), tmp_path / "out"
    out.mkdir()
    ran("lightning_ranks.py", how, strategy, photos, out)
    ranks = [pickle.loads((out / f"{rank}.pkl").read_bytes()) for rank in range(2)]
    trained = hr.Loader(photos, view=hr.RandomResizedCrop(24, flip=0.5), batch_size=10, shuffle=True)
    assert_joined(ranks, "trained", battery.epochs(trained, 2))
    if how == "trainer":
        validated = hr.Loader(photos, view=hr.Resize((24, 24)), batch_size=10, remainder="wrap")
        assert_joined(ranks, "validated", battery.epochs(validated, 2))


def assert_joined(ranks, name, expected):
    joined = [battery.joined(parts) for parts in zip(*(rank[name] for rank in ranks), strict=True)]
    battery.assert_equal(joined, expected, name)
