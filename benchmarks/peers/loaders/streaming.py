"""MosaicML Streaming: MDS shards of JPEGs as they are under torch's DataLoader, decoded by torchvision."""

import streaming
from streaming.base.util import clean_stale_shared_memory
from torch.utils.data import DataLoader

from .folder import read, samples
from .steps import Steps


def prepare(photos, out, variant):
    with streaming.MDSWriter(out=str(out / "mds"), columns={"image": "bytes", "label": "int"}) as writer:
        for path, label in samples(photos):
            writer.write({"image": read(path), "label": label})


class Photos(streaming.StreamingDataset):
    def __init__(self, shards, task):
        super().__init__(local=shards, shuffle=True, batch_size=task.batch_size)
        self.steps = Steps(task)

    def __getitem__(self, index):
        sample = super().__getitem__(index)
        return self.steps(sample["image"]), sample["label"]


def batches(source, task, variant):
    clean_stale_shared_memory()  # what an interrupted run left would be taken for a running one
    dataset = Photos(str(source / "mds"), task)
    return iter(DataLoader(dataset, batch_size=task.batch_size, num_workers=task.workers, drop_last=True))
