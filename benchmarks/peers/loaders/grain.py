"""Grain: a MapDataset over the files, batched in worker processes, decoded by torchvision."""

import grain
import torch

from .folder import read, samples
from .steps import Steps


class Load:
    def __init__(self, task):
        self.steps = Steps(task)

    def __call__(self, sample):
        path, label = sample
        return self.steps(read(path)).numpy(), label


def batches(source, task, variant):
    reading = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)  # batches, and the cores have workers already
    dataset = grain.MapDataset.source(samples(source)).shuffle(seed=0).map(Load(task))
    dataset = dataset.batch(task.batch_size, drop_remainder=True).to_iter_dataset(reading)
    return iter(dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=task.workers), one_thread))


def one_thread(worker, workers):
    """Have each worker decode on its own core, as torch's DataLoader has its workers do."""
    torch.set_num_threads(1)
