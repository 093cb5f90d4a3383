"""Planted faults of workers and ranks are found in real runs; correct scripts raise no alarm."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import rank_launcher
from made_reports import made_session
from made_sessions import replace
from observed_runs import CASES
from probing import merged, run_probed

from headrace.doctor.faults import session_faults
from headrace.doctor.faults.process_faults import shared_samples
from headrace.doctor.session.model import Session

START = (
    f"import sys\nsys.path.append({str(CASES)!r})\n"
    + """\
import random, sys
import numpy as np, torch
from quick_optimizer import Descent
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, get_worker_info
model = torch.nn.Linear(3, 1)
optimizer = Descent(model.parameters(), 1e-3)

class Noisy(Dataset):
    def __len__(self):
        return 48
    def __getitem__(self, index):
        return torch.tensor([index, 1.0, float(self.draw(index))])

LOADERS = []  # alive, so that no dataset has the address of an earlier one
def train(loader, passes=1):
    LOADERS.append(loader)
    for _ in range(passes):
        for batch in loader:
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()

def loader_of(dataset, **options):
    return DataLoader(dataset, **{"batch_size": 4, "num_workers": 2, "shuffle": True, **options})
"""
)
SAME_DRAWS = """
class Held(Noisy):
    def __init__(self):
        self.rng = np.random.default_rng(0)
    def draw(self, index):
        return self.rng.normal()

RNG = random.Random(0)
class Module(Noisy):
    def draw(self, index):
        return RNG.random()

class Jitter:
    def __init__(self):
        self.generator = torch.Generator()
    def __call__(self):
        return torch.rand((), generator=self.generator)
class Transformed(Noisy):
    def __init__(self):
        self.transforms = [Jitter()]
    def draw(self, index):
        return self.transforms[0]()

class Legacy(Noisy):
    def draw(self, index):
        return np.random.rand()
def constant(worker):
    np.random.seed(42)
def by_worker(worker):
    np.random.seed(42 + worker)

train(loader_of(Held()))
train(loader_of(Module()))
train(loader_of(Transformed()))
train(loader_of(Legacy(), worker_init_fn=constant))
train(loader_of(Legacy(), worker_init_fn=by_worker), passes=2)
"""
OTHER_DRAWS = """
class Legacy(Noisy):
    def draw(self, index):
        return np.random.rand() + random.random() + torch.rand(())

class Held(Noisy):
    def __init__(self):
        self.rng, self.unused = np.random.default_rng(0), random.Random(0)
    def draw(self, index):
        return self.rng.normal()
def seeded(worker):
    info = get_worker_info()
    info.dataset.rng = np.random.default_rng(info.seed)

class Lazy(Held):
    worker = None
    def draw(self, index):
        if self.worker is None:  # as some augmentation libraries seed their generators
            self.worker = get_worker_info().seed
            self.rng.bit_generator.state = np.random.default_rng(self.worker).bit_generator.state
        return self.rng.normal()

class ByIndex(Noisy):
    def draw(self, index):
        self.rng = np.random.default_rng(index)
        np.random.seed(index)
        return self.rng.normal() + np.random.rand()

class Fixed(Held):
    def draw(self, index):
        self.rng.bit_generator.state = np.random.default_rng(7).bit_generator.state
        return self.rng.normal()

def constant(worker):
    np.random.seed(42)

train(loader_of(Legacy()), passes=2)
train(loader_of(Held(), worker_init_fn=seeded))
train(loader_of(Lazy()))
train(loader_of(ByIndex()))
train(loader_of(Fixed()))
evaluation = loader_of(Legacy(), worker_init_fn=constant)
with torch.no_grad():
    for batch in evaluation:
        model(batch)
train(loader_of(Held(), num_workers=0))
sampler = DistributedSampler(range(48), num_replicas=2, rank=0)
loader = loader_of(Legacy(), shuffle=None, sampler=sampler, num_workers=0)
for epoch in (0, 3):
    sampler.set_epoch(epoch)
    train(loader)
"""

ORDERS = """
class Plain(Noisy):
    def draw(self, index):
        return 0
def loader_of(dataset, **options):
    return DataLoader(dataset, **{"batch_size": 4, "shuffle": True, **options})
class Order:
    def __init__(self, shuffle):
        self.shuffle, self.seed, self.epoch = shuffle, 0, 0
    def __len__(self):
        return 48
    def __iter__(self):
        draws = torch.Generator().manual_seed(self.seed + self.epoch)
        yield from torch.randperm(48, generator=draws).tolist() if self.shuffle else range(48)
"""
SAME_ORDERS = {
    "generator of the loader": """
generator = torch.Generator()
loader = loader_of(Plain(), generator=generator)
for epoch in range(3):
    generator.manual_seed(0)
    train(loader)
""",
    "global seed": """
loader = loader_of(Plain(), num_workers=1)
for epoch in range(2):
    torch.manual_seed(0)
    train(loader)
""",
    "own sampler": "train(loader_of(Plain(), shuffle=None, sampler=Order(shuffle=True)), passes=2)",
}
OTHER_ORDERS = {
    "plain": "train(loader_of(Plain()), passes=2)",
    "seeded once": "train(loader_of(Plain(), generator=torch.Generator().manual_seed(0)), passes=2)",
    "sequential": "train(loader_of(Plain(), shuffle=None, sampler=Order(shuffle=False)), passes=2)",
    "own sampler": """
own = Order(shuffle=True)
loader = loader_of(Plain(), shuffle=None, sampler=own)
for own.epoch in range(2):
    train(loader)
""",
    "one of two orders": """
few = torch.utils.data.Subset(Plain(), [5, 6])
loader = loader_of(few, batch_size=1)
for epoch in range(3):
    torch.manual_seed(0)
    train(loader)
""",
    "repeated samples": """
sampler = torch.utils.data.RandomSampler(Plain(), replacement=True, num_samples=48)
loader = loader_of(Plain(), shuffle=None, sampler=sampler)
for epoch in range(3):
    torch.manual_seed(0)
    train(loader)
""",
}
SAMPLES = """
class Numbers(IterableDataset):
    def __init__(self, values=None):
        self.values = torch.arange(96).reshape(32, 3).float() if values is None else values
    def taken(self):
        return self.values
    def __iter__(self):
        for value in self.taken():
            yield value

def streamed(dataset, **options):
    train(loader_of(dataset, shuffle=False, **options))
"""
DUPLICATES = {
    "generator": "streamed(Numbers())",
    "dict and label": """
class Named(Numbers):
    def __iter__(self):
        for number, value in enumerate(self.values):
            yield {"value": value, "label": number % 3}
class Wrapped(torch.nn.Linear):
    def forward(self, batch):
        return super().forward(batch["value"])
model = Wrapped(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
streamed(Named())
""",
}
SPLIT = """
class Split(Numbers):
    def taken(self):
        info = get_worker_info()
        return self.values[info.id::info.num_workers]
class Drawn(Numbers):
    def taken(self):
        return [torch.rand(3) for _ in range(32)]
class Counted(Split):
    def __iter__(self):
        for number, value in enumerate(self.taken()):
            yield torch.cat([value[:2], torch.tensor([float(number)])])
class First(torch.nn.Linear):
    def forward(self, batch):
        return super().forward(batch[0] if isinstance(batch, list) else batch)
model = First(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
"""
APART_WORKERS = [
    "streamed(Split())",
    "streamed(Drawn())",
    "streamed(Counted())",
    "streamed(Numbers(torch.ones(32, 3)))",
    "streamed(Numbers(), num_workers=1)",
    "streamed(Numbers(), num_workers=0)",
]

RANKS = """
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler, TensorDataset
torch.manual_seed(0)
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
model = DistributedDataParallel(model)
numbers = torch.arange(192).reshape(64, 3).float()

def train_on(loader, own=lambda batch: batch):
    for batch in loader:
        optimizer.zero_grad()
        model(own(batch)).sum().backward()
        optimizer.step()
"""
SHARED = {
    "sequential": "train_on(DataLoader(numbers, batch_size=8))",
    "shuffled by one seed": "train_on(DataLoader(numbers, batch_size=8, shuffle=True, num_workers=1))",
}
APART = {
    "sampler": "train_on(DataLoader(numbers, batch_size=8, sampler=DistributedSampler(numbers)))",
    "own part of a batch": "train_on(DataLoader(numbers, batch_size=16), own=lambda batch: batch[rank::2])",
    "own dataset": "train_on(DataLoader(numbers[rank::2], batch_size=8))",
    "evaluation": """
model.eval()
for batch in DataLoader(numbers, batch_size=8):
    with torch.no_grad():
        model(batch)
model.train()
train_on(DataLoader(numbers, batch_size=8, sampler=DistributedSampler(numbers)))
""",
    "constant": "train_on(DataLoader(torch.ones(64, 3), batch_size=8))",
}


CHECKED = {"shortens": 4, "check_s": 60.0}
"""Settings of a run that is checked, whose passes are followed by their keys."""


def run_of(script: str, folder: Path, *launcher: str, **settings: Any) -> Session:
    path = folder / "train.py"
    path.write_text(START + script)
    ran = run_probed([sys.executable, *launcher, str(path)], folder, observe=False, **settings)
    assert ran.returncode == 0, ran.stderr
    session = merged(folder)
    assert "hook-off" not in [note.code for note in session.notes]
    return session


def test_workers_that_draw_the_same_numbers(tmp_path: Path) -> None:
    draws = session_faults(run_of(SAME_DRAWS, tmp_path))
    assert [one.code for one in draws] == ["same-draws"] * 5
    drawn = ["_generator.Generator 1", "random.Random 1", "torch._C.Generator 1", "numpy.random", "numpy.random"]
    assert all(name in one.evidence for one, name in zip(draws, drawn, strict=True)), draws
    assert ["in pass" in one.evidence for one in draws] == [False] * 4 + [True]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", SAME_ORDERS)
def test_a_random_order_that_is_drawn_again(name: str, tmp_path: Path) -> None:
    (found,) = session_faults(run_of(ORDERS + SAME_ORDERS[name], tmp_path, **CHECKED))
    assert (found.code, found.certainty) == ("same-order", "unless intended")
    assert "All 48 samples of passes 0 and 1" in found.evidence


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", OTHER_ORDERS)
def test_orders_that_differ_or_are_no_random_ones(name: str, tmp_path: Path) -> None:
    session = run_of(ORDERS + OTHER_ORDERS[name], tmp_path, **CHECKED)
    assert session_faults(session) == []
    assert len(session.trainers[0].keys) > 1


@pytest.mark.long
@pytest.mark.parametrize("name", DUPLICATES)
def test_workers_that_make_the_same_samples(name: str, tmp_path: Path) -> None:
    (found,) = session_faults(run_of(SAMPLES + DUPLICATES[name], tmp_path, **CHECKED))
    assert found.code == "worker-duplicates"
    assert "Workers 0 and 1 of pass 0" in found.evidence


@pytest.mark.long
def test_other_draws_raise_no_alarm(tmp_path: Path) -> None:
    session = run_of(OTHER_DRAWS, tmp_path)
    assert session_faults(session) == []
    assert [one.sampler_epoch for one in session.trainers[0].passes if one.sampler_epoch is not None] == [0, 3]


@pytest.mark.long
@pytest.mark.parametrize("streamed", APART_WORKERS)
def test_workers_with_samples_of_their_own_raise_no_alarm(streamed: str, tmp_path: Path) -> None:
    assert session_faults(run_of(SAMPLES + SPLIT + streamed, tmp_path, **CHECKED)) == []


IMAGES, LABELS = ("0.0", "8d1", 8), ("0.1", "1b5", 3)
TOKENS, MASK = ("1.input_ids", "77a", 8), ("1.attention_mask", "c02", 8)


def other(leaf: tuple[str, str, int]) -> tuple[str, str, int]:
    """Return a leaf of other values."""
    return leaf[0], leaf[1] + "0", leaf[2]


@pytest.mark.parametrize(
    ("ranks", "who"),
    [
        ([[[IMAGES, LABELS], [other(IMAGES), LABELS]]] * 2, "0, 1"),
        ([[[TOKENS, MASK], [other(TOKENS), MASK]]] * 3, "0, 1, 2"),
        ([[[IMAGES], [other(IMAGES)]], [[TOKENS], [MASK]], [[IMAGES], [other(IMAGES)]]], "0, 2"),
        ([[[IMAGES], [other(IMAGES)]], [[other(IMAGES)], [IMAGES]]], ""),
        ([[[LABELS], [other(LABELS)]]] * 2, ""),
        ([[[IMAGES], [IMAGES]]] * 2, ""),
        ([[[("0.0", "", 8)], [other(IMAGES)]]] * 2, ""),
        ([[[IMAGES], [other(IMAGES)]]], ""),
    ],
)
def test_first_inputs_of_ranks(ranks: Any, who: str) -> None:
    session = made_session()
    (trainer,), (process, *_) = session.trainers, session.processes
    session.trainers = [replace(trainer, pid=1000 + rank, rank=rank) for rank in range(len(ranks))]
    session.processes = [
        replace(process, pid=1000 + rank, facts={"facts": {"replica_inputs": inputs}})
        for rank, inputs in enumerate(ranks)
    ]
    found = list(shared_samples(session))
    assert [one.code for one in found] == ["shared-samples"] * bool(who)
    assert all(f"Ranks {who} train" in one.evidence for one in found)


LAUNCHER = rank_launcher.__file__


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", SHARED)
def test_ranks_that_train_on_the_same_samples(name: str, tmp_path: Path) -> None:
    (found,) = session_faults(run_of(RANKS + SHARED[name], tmp_path, LAUNCHER))
    assert found.code == "shared-samples"
    assert "Ranks 0, 1 " in found.evidence


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", APART)
@pytest.mark.long
def test_ranks_that_share_no_samples_raise_no_alarm(name: str, tmp_path: Path) -> None:
    session = run_of(RANKS + APART[name], tmp_path, LAUNCHER)
    facts = [session.process_facts(trainer)["facts"] for trainer in session.trainers]
    assert len(facts) == 2
    assert all("replica_inputs" in one for one in facts)
    assert session_faults(session) == []
