"""Ways to start a training run, each of which the probe goes with. Quick ones with a stand-in for torch, which takes no
time to import; those that only torch itself can show with torch, in few processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from attach_runs import Patience, doctor, ended, evidence, observed, records, stub_torch
from observed_runs import CASES

from headrace.doctor.attach.command import offline_environment

SAYS = "import sys, torch; print('here', sys.path[0], flush=True); sys.exit(3)"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A user's folder with a script, a module and a shell script, and a stand-in for torch on the user's PYTHONPATH."""
    folder = tmp_path / "project"
    (folder / "package").mkdir(parents=True)
    for name in ("train.py", "package/train.py"):
        (folder / name).write_text(SAYS)
    (folder / "run.sh").write_text('set -e\nexport OMP_NUM_THREADS=1\n"$1" -c pass\n"$1" train.py --lr 1\n')
    monkeypatch.setenv("PYTHONPATH", str(stub_torch(tmp_path / "site")))
    monkeypatch.chdir(folder)
    return folder


WAYS = {
    "python x.py": [sys.executable, "train.py"],
    "python -m x": [sys.executable, "-m", "package.train"],
    "python -P x.py": [sys.executable, "-P", "train.py"],
    "python -u -W error -X utf8 x.py": [sys.executable, "-u", "-W", "error", "-X", "utf8", "train.py"],
    "bash run.sh": ["bash", "run.sh", sys.executable],
    "env python x.py": ["env", "A=b", sys.executable, "train.py"],
    "nice python x.py": ["nice", "-n", "1", sys.executable, "train.py"],
    "python < x.py": ["sh", "-c", '"$0" < train.py', sys.executable],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.one_in(12)
def test_the_probe_goes_with_it(way, project, tmp_path):
    plain = subprocess.run(WAYS[way], capture_output=True, text=True)
    ran = observed(WAYS[way], tmp_path, hides=True)
    assert (ran.status, ran.last_lines) == (plain.returncode, plain.stdout.splitlines())
    ((_, _, facts),) = records(tmp_path, "torch")
    assert facts["version"] == "0.stub"
    assert [record[2] for record in records(tmp_path, "end")] == ["exit"]


def test_the_probe_goes_into_a_virtual_environment(project, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    assert observed([str(tmp_path / "venv/bin/python"), "train.py"], tmp_path).status == 3
    ((_, _, facts),) = records(tmp_path, "process")
    assert facts["executable"] == str(tmp_path / "venv/bin/python")


def test_the_ranks_of_a_launcher_are_told_apart(project, tmp_path):
    source = """
import os, subprocess, sys
ranks = [
    subprocess.Popen([sys.executable, "train.py"], env=os.environ | {"RANK": str(rank), "WORLD_SIZE": "2"},
                     start_new_session=True, stdout=subprocess.DEVNULL)
    for rank in range(2)
]
sys.exit(sum(rank.wait() for rank in ranks))
"""
    assert observed([sys.executable, "-c", source], tmp_path).status == 6
    facts = [record[2] for record in records(tmp_path, "process")]
    assert sorted(each["rank"] for each in facts) == [0, 1]


TRAINS = """
import os, sys
import torch
from quick_optimizer import Descent
from torch.utils.data import DataLoader

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return torch.ones(2) * index

def train(methods):
    model = torch.nn.Linear(2, 1)
    optimizer = Descent(model.parameters(), lr=0.1)
    for method in methods:
        for batch in DataLoader(Numbers(), batch_size=2, num_workers=1, multiprocessing_context=method):
            model(batch).sum().backward()
            optimizer.step()

if __name__ == "__main__":
    train(sys.argv[1:])
    print("trained", flush=True)
    sys.exit(3)
"""


@pytest.fixture
def training(tmp_path, monkeypatch):
    """Makes the script of this source, beside those that the cases are."""
    monkeypatch.setenv("PYTHONPATH", str(CASES))

    def make(source):
        path = tmp_path / "train.py"
        path.write_text(source)
        return str(path)

    return make


@pytest.mark.parametrize(
    "methods",
    [["fork", "forkserver"], pytest.param(["fork", "forkserver", "spawn"], marks=pytest.mark.long)],
    ids=["two", "all"],
)
def test_workers_are_reached_however_they_start(methods, training, tmp_path):
    """That spawned ones are, test_probe_making.py shows too."""
    ran = observed([sys.executable, training(TRAINS), *methods], tmp_path, patience=Patience())
    assert (ran.status, ran.leftovers) == (3, [])
    workers = [process for process in evidence(tmp_path).values() if any(record[0] == "worker" for record in process)]
    said = [record[2]["start_method"] for process in workers for record in process if record[0] == "worker"]
    assert sorted(said) == methods
    assert all(process[-1][0::2] == ["end", "exit"] for process in workers)
    (trainer,) = [process for process in evidence(tmp_path).values() if any(record[0] == "step" for record in process)]
    assert trainer[-1][0::2] == ["end", "exit"]
    facts = [record[2] for record in trainer if record[0] == "facts"][-1]
    assert facts["torch_threads"] == facts["omp_threads"] >= 1


ENDLESS = (
    TRAINS.replace("return 4", "return 10**9")
    .replace(
        "optimizer.step()",
        "optimizer.step()\n            print('ready', flush=True)\n            while True: time.sleep(0.05)",
    )
    .replace("import os, sys", "import os, sys, time")
)
"""Waits after its first step, beside a worker that has batches ready: in a fork, Python may lose an exception that a
signal's handler raises, and at a worker's connection its end may be noticed before the signal."""


@pytest.mark.parametrize(
    "to_group", [True, pytest.param(False, marks=pytest.mark.long)], ids=["to its group", "to the doctor"]
)
@pytest.mark.long
def test_ctrl_c_during_training_leaves_nobody(to_group, training, tmp_path):
    with doctor([sys.executable, training(ENDLESS), "fork"], tmp_path, stderr=subprocess.DEVNULL) as process:
        assert process.stdout.readline() == "ready\n"
        (os.killpg if to_group else os.kill)(process.pid, signal.SIGINT)
        said = ended(process)
    assert (said["status"], said["why"], said["leftovers"]) == (128 + signal.SIGINT, "interrupted", [])
    assert [record[2].splitlines()[-1] for record in records(tmp_path, "error")][-1:] == ["KeyboardInterrupt"]


LAUNCHERS = {
    "torchrun": (["torch.distributed.run", "--standalone", "--nproc-per-node", "2"], [0, 1]),
    "accelerate": (["accelerate.commands.launch", "--cpu", "--num_processes", "1"], [None]),
}


@pytest.mark.long
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_launchers_take_it_along(launcher, training, tmp_path):
    """With a worker a rank. The quick form of it is above: the ranks of a launcher."""
    command, ranks = LAUNCHERS[launcher]
    ran = observed([sys.executable, "-m", *command, training(TRAINS), "fork"], tmp_path)
    assert ran.status == 1  # the launcher's own, where a rank fails
    assert ran.leftovers == []
    trainers = [process for process in evidence(tmp_path).values() if any(record[0] == "step" for record in process)]
    assert sorted(process[0][2]["rank"] for process in trainers) == ranks
    assert len(records(tmp_path, "worker")) == len(ranks)


def test_trackers_are_offline_and_write_to_the_session(tmp_path):
    given = {"WANDB_MODE": "online", "WANDB_DIR": "/home/u", "PATH": "/bin"}
    made = offline_environment({**given, "MLFLOW_RUN_ID": "7", "NEPTUNE_MODE": "debug"}, tmp_path)
    assert made == {
        "PATH": "/bin",
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(tmp_path),
        "NEPTUNE_MODE": "debug",  # off already
        "NEPTUNE_DATA_DIRECTORY": str(tmp_path),
        "NEPTUNE_LOG_DIRECTORY": str(tmp_path),
        "SWANLAB_MODE": "offline",
        "CLEARML_OFFLINE_MODE": "1",
        "COMET_START_ONLINE": "0",
        "COMET_OFFLINE_DIRECTORY": str(tmp_path),
        "MLFLOW_TRACKING_URI": f"file://{tmp_path}/mlflow",
        "MLFLOW_REGISTRY_URI": f"file://{tmp_path}/mlflow",
    }
