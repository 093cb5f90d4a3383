"""LitData: chunks of JPEGs as they are, its StreamingDataset and StreamingDataLoader, decoded by torchvision."""

import litdata

from .folder import read, samples
from .steps import Steps


def prepare(photos, out, variant):
    litdata.optimize(stored, samples(photos), str(out / "chunks"), chunk_bytes="64MB", num_workers=2, verbose=False)


def stored(sample):
    path, label = sample
    return {"image": read(path), "label": label}


class Photos(litdata.StreamingDataset):
    def __init__(self, chunks, steps):
        super().__init__(chunks, shuffle=True, drop_last=True)
        self.steps = steps

    def __getitem__(self, index):
        sample = super().__getitem__(index)
        return self.steps(sample["image"]), sample["label"]


def batches(source, task, variant):
    dataset = Photos(str(source / "chunks"), Steps(task))
    return iter(litdata.StreamingDataLoader(dataset, batch_size=task.batch_size, num_workers=task.workers))
