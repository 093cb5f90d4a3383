"""Samples that are objects: dear to pickle in the worker, and to unpickle in the training thread.

A sample: getitem 3 ms, 2 ms to pickle, 1 ms to unpickle. A batch of 4: 12 ms made, 8 ms pickled, 4 ms unpickled."""

from __future__ import annotations

from known_training import Pace, arguments, loader, train
from known_truth import stage
from known_work import PacedPickle, sleep
from torch.utils.data import Dataset


class Objects(Dataset[PacedPickle]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> PacedPickle:
        with stage("getitem"):
            sleep(0.003)
            return PacedPickle(0.002, 0.001)


if __name__ == "__main__":
    known = arguments(workers=1)
    batches = loader(Objects(4 * known.steps), known, batch_size=4, collate_fn=list)
    train(batches, Pace(forward=0.002 * known.compute, backward=0.002), steps=known.steps)
