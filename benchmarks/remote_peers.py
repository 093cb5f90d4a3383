"""Another loader over remote.py's store, in its own environment; prints its figures as one line of JSON.

    python remote_peers.py prepare NAME TARS OUT      the photographs of a folder of tars in the loader's own form
    python remote_peers.py run NAME PATTERN SCRATCH   one epoch over the store of $AWS_ENDPOINT_URL

Each is set up as its documentation says, with two workers: webdataset reads tars by `pipe:curl`, shuffles shards and a
buffer of 1,000 samples; litdata and streaming download chunks and shards of 64 MB over S3's interface into a folder, by
boto3: litdata's other way, obstore, takes https alone, so leave obstore out of that environment.
All decode by torchvision and crop by its transforms v2, as in benchmarks/peers.
"""

import json
import os
import sys
import tarfile
import time
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))
BATCH, WORKERS = 256, 2
PACKAGES = {"webdataset": "webdataset", "litdata": "litdata", "streaming": "mosaicml-streaming"}


def photos(folder):
    """Yield the bytes and the class of each photograph of the tars of a folder."""
    for path in sorted(Path(folder).glob("*.tar")):
        with tarfile.open(path) as tar:
            content = {entry.name: tar.extractfile(entry).read() for entry in tar}
        for name in sorted(content):
            if name.endswith(".jpg"):
                yield content[name], int(content[name.removesuffix("jpg") + "cls"])


def as_stored(sample):
    return {"image": sample[0], "label": sample[1]}


def prepare(name, tars, out):
    if name == "litdata":
        import litdata

        litdata.optimize(as_stored, list(photos(tars)), out, chunk_bytes="64MB", num_workers=1, verbose=False)
    else:
        import streaming

        with streaming.MDSWriter(out=out, columns={"image": "bytes", "label": "int"}) as writer:
            for sample in photos(tars):
                writer.write(as_stored(sample))


def steps():
    from loaders.steps import Steps
    from task import TASKS

    return Steps(TASKS["train-uint8"])


def decoding(kind):
    """Return a streaming dataset's class with decoding."""
    transform = steps()

    class Photos(kind):
        def __getitem__(self, index):
            sample = super().__getitem__(index)
            return transform(sample["image"]), sample["label"]

    return Photos


def webdataset(pattern, scratch):
    import webdataset as wds

    url = f"pipe:curl -s -L {os.environ['AWS_ENDPOINT_URL']}/photos/{pattern}"
    dataset = wds.WebDataset(url, shardshuffle=100).shuffle(1000).to_tuple("jpg", "cls").map_tuple(steps(), int)
    return wds.WebLoader(dataset.batched(BATCH, partial=False), batch_size=None, num_workers=WORKERS)


def litdata(pattern, scratch):
    import litdata

    options = {"storage_options": {"endpoint_url": os.environ["AWS_ENDPOINT_URL"]}, "shuffle": True, "drop_last": True}
    dataset = decoding(litdata.StreamingDataset)("s3://litdata", cache_dir=scratch, **options)
    return litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=WORKERS)


def streaming(pattern, scratch):
    import streaming
    from torch.utils.data import DataLoader

    options = {"local": scratch, "shuffle": True, "batch_size": BATCH}
    dataset = decoding(streaming.StreamingDataset)(remote="s3://streaming", **options)
    return DataLoader(dataset, batch_size=BATCH, num_workers=WORKERS, drop_last=True)


def run(name, pattern, scratch):
    from processes import tree_cpu_s

    began_s, images, used_s, first_s = time.perf_counter(), 0, 0.0, 0.0
    for batch, _ in {"webdataset": webdataset, "litdata": litdata, "streaming": streaming}[name](pattern, scratch):
        first_s = first_s or time.perf_counter() - began_s
        images, used_s = images + len(batch), tree_cpu_s()
    rate = images / (time.perf_counter() - began_s)
    found = {"rate": rate, "first_s": first_s, "cpu_ms": used_s / images * 1e3, "version": version(PACKAGES[name])}
    print(json.dumps(found), flush=True)


def main():
    step, name, source, out = sys.argv[1:]
    if step == "run":
        run(name, source, out)
        return
    prepare(name, source, out)
    print(json.dumps({"prepared": name}))


if __name__ == "__main__":
    main()
