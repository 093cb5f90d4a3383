"""WebDataset: shards of tars read by torch's workers, shuffled in a buffer, decoded by torchvision."""

import webdataset as wds

from .folder import read, samples
from .steps import Steps

SHARDS = 16
BUFFER = 1000  # samples that each worker shuffles within


def prepare(photos, out, variant):
    found = samples(photos)
    # Neighbours in a shard stay neighbours in training, so classes are spread over the shards.
    for shard in range(SHARDS):
        with wds.TarWriter(str(out / f"photos-{shard:02d}.tar")) as writer:
            for index in range(shard, len(found), SHARDS):
                path, label = found[index]
                writer.write({"__key__": f"{index:08d}", "jpg": read(path), "cls": label})


def batches(source, task, variant):
    shards = str(source / f"photos-{{00..{SHARDS - 1:02d}}}.tar")
    dataset = (
        wds.WebDataset(shards, shardshuffle=SHARDS)
        .shuffle(BUFFER)
        .to_tuple("jpg", "cls")
        .map_tuple(Steps(task), int)
        .batched(task.batch_size, partial=False)
    )
    return iter(wds.WebLoader(dataset, batch_size=None, num_workers=task.workers))
