"""Planted faults of workers, cores, ranks and the training loop:

python planted_workers.py fault_few_workers
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
from planted import burn, on_two_cores, planted, train
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Samples(Dataset[torch.Tensor]):
    """Samples that each sleep and compute for as long."""

    def __init__(self, length: int = 4_000, *, burns_s: float = 0.0, sleeps_s: float = 0.0) -> None:
        self.length, self.burns_s, self.sleeps_s = length, burns_s, sleeps_s

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.sleeps_s)
        burn(self.burns_s)
        return torch.full((16,), float(index))


class Signals(Dataset[torch.Tensor]):
    def __init__(self, numbers: int) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return 8_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((self.numbers,), float(index))


class Weight(torch.nn.Module):
    """One number, whatever the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, batch: Any) -> torch.Tensor:
        return self.weight * 2


@planted()
def healthy_balanced() -> None:
    """Batches are made a third faster than the device takes them: 60 ms in each of two workers, two thirds of that
    reading; a step: 40 ms."""
    train(DataLoader(Samples(sleeps_s=0.010, burns_s=0.005), 4, num_workers=2), seconds=0.040)


@planted()
def healthy_compute() -> None:
    """Bound by the device. A batch: 4 ms; a step: 40 ms."""
    train(DataLoader(Samples(burns_s=0.001), 4, num_workers=2), seconds=0.040)


@planted("1 worker never rests")
def fault_few_workers() -> None:
    """One worker makes batches more slowly than the device takes them, while a core is idle.

    A batch: 20 ms of computing; a step: 14 ms. Two workers would do."""
    on_two_cores()
    train(DataLoader(Samples(burns_s=0.005), 4, num_workers=1), seconds=0.014)


@planted("12 workers share 2 cores")
def fault_many_workers() -> None:
    """At the start of each epoch all make their batches at once, so the first one is ready when all are; two workers
    would have it after a sixth of that time.

    A batch: 20 ms of computing; a step: 14 ms; an epoch: 24 steps, so two cores keep up with it otherwise."""
    on_two_cores()
    train(DataLoader(Samples(4 * 24, burns_s=0.005), 4, num_workers=12, persistent_workers=True), seconds=0.014)


def open_dataset(worker: int) -> None:
    burn(0.150)


@planted("starting workers")
def fault_respawn() -> None:
    """Workers are started anew for each epoch, and each then opens its dataset, which takes 150 ms.

    A batch: 4 ms; a step: 12 ms; an epoch: 15 steps. persistent_workers=True heals it."""
    samples = Samples(4 * 15, burns_s=0.001)
    train(DataLoader(samples, 4, num_workers=2, worker_init_fn=open_dataset), seconds=0.012)


class RareHugeFiles(Samples):
    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.250 if index % 80 == 7 else 0.0025)
        return super().__getitem__(index)


@planted("a later batch is ready")
def fault_head_of_line() -> None:
    """One sample in 80 is a huge file that takes 250 ms; batches made after it wait for it in the queue.

    A batch of 4: 10 ms, or 260 once in 20; a step: 14 ms. Four workers make 4 batches in that time and keep up by far,
    but for the order."""
    train(DataLoader(RareHugeFiles(8_000), 4, num_workers=4), seconds=0.014)


def use_threads(worker: int) -> None:
    torch.set_num_threads(8)


class Filtered(Samples):
    def __getitem__(self, index: int) -> torch.Tensor:
        image = torch.full((512, 512), float(index))
        for _ in range(50):
            image = image.cos()
        return image[:16]


@planted("threads want to run on 2 cores")
def fault_threads() -> None:
    """Each of two workers computes with 8 threads of torch's, on two cores.

    A batch: some 200 filters of a small image, each shared out among 8 threads that wait for one another; a step:
    10 ms."""
    on_two_cores()
    torch.set_num_threads(1)
    train(DataLoader(Filtered(), 4, num_workers=2, worker_init_fn=use_threads), seconds=0.010)


RECORDS, A_SAMPLE = 3_000_000, 10_000


class Records(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.records = [f"images/train/{number:032d}.jpg" for number in range(RECORDS)]

    def __len__(self) -> int:
        return RECORDS // A_SAMPLE * 100

    def __getitem__(self, index: int) -> torch.Tensor:
        start = index * A_SAMPLE % RECORDS
        return torch.tensor([sum(map(len, self.records[start : start + A_SAMPLE]))])


@planted("shared with their parent", steps=300)
def fault_copy_on_write() -> None:
    """The dataset is a list of three million Python objects; workers that read it copy it, page by page.

    A batch is made in 5 ms; a step: 20 ms; 3 workers come to hold 1 GB that they shared at first. Memory is looked at
    every five seconds."""
    train(DataLoader(Records(), batch_size=4, shuffle=True, num_workers=3), seconds=0.020)


class Validated:
    """Batches for training, with a validation after every 20 of them."""

    def __init__(self, training: DataLoader[Any], validation: DataLoader[Any]) -> None:
        self.training, self.validation = training, validation

    def __iter__(self) -> Iterator[Any]:
        for number, batch in enumerate(self.training):
            if number and number % 20 == 0:
                with torch.no_grad():
                    for held_out in self.validation:
                        held_out.square().mean()
            yield batch


@planted("Evaluation takes")
def fault_validation() -> None:
    """After every 20 steps a validation whose batches are made in the training thread, 20 ms each.

    A training batch is made at once; a step: 6 ms; a validation: 10 batches, 200 ms."""
    validation = DataLoader(Samples(40, burns_s=0.005), batch_size=4)
    train(Validated(DataLoader(Samples(8_000), batch_size=4, num_workers=1), validation), seconds=0.006)


class Normalised:
    """What a script's loop does to its batches, around the loader."""

    def __init__(self, batches: DataLoader[torch.Tensor]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[torch.Tensor]:
        for batch in self.batches:
            yield torch.tensor([[value / 255 for value in sample.tolist()] for sample in batch])


@planted("data work in the training loop itself")
def fault_loop_work() -> None:
    """The training loop itself normalises each batch, number by number, before the model has it.

    A batch of 8: some 30 ms of that in the training thread; a step: 5 ms."""
    train(Normalised(DataLoader(Signals(25_000), batch_size=8, num_workers=2)), seconds=0.005, model=Weight())


class Copying(torch.nn.DataParallel[torch.nn.Module]):
    """Takes the time that copies of a large model to two devices would. Without a GPU torch leaves `device_ids` empty,
    and runs the module as it is."""

    @property
    def device_ids(self) -> list[int]:
        return [0, 1]

    @device_ids.setter
    def device_ids(self, found: list[int]) -> None:
        assert found == [], "this machine has GPUs"

    def forward(self, *inputs: Any) -> Any:
        time.sleep(0.008)
        return self.module(*inputs)


@planted("DataParallel")
def fault_data_parallel() -> None:
    """nn.DataParallel, which copies the model to each device in every step: 8 ms of it, before 12 ms of computing.

    A batch is made in less than 1 ms."""
    batches = DataLoader(TensorDataset(torch.ones(4_000, 4)), batch_size=4, num_workers=1)
    train(batches, seconds=0.012, model=Copying(Weight()))


def train_together(*datasets: Dataset[torch.Tensor], seconds: Any) -> None:
    """Train on a dataset for each rank, under DistributedDataParallel on gloo."""
    torch.distributed.init_process_group("gloo")
    batches = DataLoader(datasets[torch.distributed.get_rank()], batch_size=4, num_workers=1)
    train(batches, seconds=seconds, model=DistributedDataParallel(Weight()))
    torch.distributed.destroy_process_group()


@planted("Rank 1 is the last", ranks=2)
def fault_slow_rank() -> None:
    """Rank 1 of two makes its batches more slowly than the other, which waits for it in each step.

    A batch: 2 ms on rank 0, 60 ms on rank 1; a step: 10 ms."""
    train_together(Samples(sleeps_s=0.0005), Samples(sleeps_s=0.015), seconds=0.010)


SECONDS_PER_PIXEL = 0.008 / 128**2


class Crops(Dataset[torch.Tensor]):
    """Images whose size each four of them share."""

    def __init__(self, seed: str) -> None:
        self.seed = seed

    def __len__(self) -> int:
        return 8_000

    def __getitem__(self, index: int) -> torch.Tensor:
        side = random.Random(f"{self.seed} {index // 4}").randrange(128, 257, 32)
        return torch.zeros(3, side, side, dtype=torch.uint8)


@planted("differ across ranks", ranks=2)
def fault_rank_shapes() -> None:
    """Each rank draws the size of each of its batches by itself, so that both wait for the larger one.

    A batch is made in 1 ms; a step: 8 to 32 ms by the size, on average 20 and 24 for the larger of two."""
    train_together(Crops("0"), Crops("1"), seconds=lambda batch: batch[0, 0].numel() * SECONDS_PER_PIXEL)


def by_device(samples: list[torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    parts = samples[:4], samples[4:]
    return [{"image": torch.stack(part), "label": torch.zeros(4, dtype=torch.int64)} for part in parts]


@planted("Batches are lists of 2 parts, which differ in size")
def fault_device_parts() -> None:
    """Each batch is a list of a dict for each of two devices, whose images are of sizes of their own.

    A batch is made in 1 ms; a step: 8 to 32 ms by the larger part's size, on average 24, and 20 for parts of one
    size."""

    def seconds(batch: Any) -> float:
        return max(float(part["image"][0, 0].numel()) for part in batch) * SECONDS_PER_PIXEL

    train(DataLoader(Crops(""), batch_size=8, num_workers=1, collate_fn=by_device), seconds=seconds)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
