"""What do images inside parquet in a store cost: opening, and an epoch beside the same photographs in tars?

    python benchmarks/remote_parquet.py PHOTOS [--images 13000] [--latency-ms 20]

The photographs lie in four files each: tars, parquet as `datasets` writes it (plain pages with an index of them), and
parquet with pyarrow's defaults and 100 rows a group (dictionary, snappy). nginx serves them behind a proxy with
latency. A process opens them, and runs two epochs of RandomResizedCrop(224) with `order="windowed"`; the second one
counts. Times are of this machine, servers and proxy included; counts are the proxy's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from remote_servers import Link, LinkProxy, make_tars, served

FILES = 4
RUN = """
import collections, json, sys, time
import headrace as hr
where, column = sys.argv[1:]
began = time.perf_counter()
opened = hr.open(where)
opening_s = time.perf_counter() - began
print(json.dumps({"opening_s": opening_s}), flush=True)
sys.stdin.readline()
loader = hr.Loader(opened, {"image": hr.Image(source=column)}, view=hr.RandomResizedCrop(224, flip=0.5), batch_size=256,
                   shuffle=True, order="windowed", output="numpy")
for epoch in range(2):
    began, cpu = time.perf_counter(), time.process_time()
    collections.deque(loader, maxlen=0)
took, cpu = time.perf_counter() - began, time.process_time() - cpu
fetch = loader.stats().fetch
print(json.dumps({"rate": len(opened) / took, "cpu_ms": cpu / len(opened) * 1e3,
                  "requests": None if fetch is None else fetch.counts.requests,
                  "bytes": None if fetch is None else fetch.counts.bytes}), flush=True)
"""
AS_DATASETS = {"compression": "none", "use_dictionary": False, "write_page_index": True,
               "use_content_defined_chunking": {"min_chunk_size": 1 << 18, "max_chunk_size": 1 << 20}}  # fmt: skip


def make_parquet(photos: Path, folder: Path, images: int, options: dict[str, object]) -> None:
    folder.mkdir()
    paths = sorted(photos.rglob("*.jpg"))
    each = images // FILES
    for number in range(FILES):
        rows = range(number * each, (number + 1) * each)
        data = [{"bytes": paths[row % len(paths)].read_bytes() + b"%d" % row, "path": f"{row}.jpg"} for row in rows]
        pq.write_table(pa.table({"image": data, "label": list(rows)}), folder / f"{number}.parquet", **options)


def show(what: str, where: str, column: str, proxy: LinkProxy | None, folder: Path) -> None:
    env = {**os.environ, "HEADRACE_CACHE": str(folder / f"cache {what}")}
    before = None if proxy is None else proxy.counts()
    command = [sys.executable, "-c", RUN, where, column]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        opening = json.loads(process.stdout.readline())["opening_s"]
        asked = (
            "" if proxy is None else "; {0.requests:,} requests, {0.bytes:,} bytes".format(proxy.counts().since(before))
        )
        print(f"{what}: opened in {opening:.2f} s{asked}", flush=True)
        process.stdin.write("\n")
        process.stdin.flush()
        epoch = json.loads(process.stdout.readline())
    read = "" if epoch["bytes"] is None else f"; {epoch['requests']:,} requests, {epoch['bytes']:,} bytes"
    print(f"{what}: {epoch['rate']:,.0f} images/s, {epoch['cpu_ms']:.2f} ms of CPU an image{read}", flush=True)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("photos", type=Path)
    ask.add_argument("--images", type=int, default=13_000)
    ask.add_argument("--latency-ms", type=float, default=20)
    options = ask.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        root = folder / "root"
        root.mkdir()
        make_tars(options.photos, root / "tars", FILES, options.images // FILES)
        make_parquet(options.photos, root / "datasets", options.images, AS_DATASETS)
        make_parquet(options.photos, root / "pyarrow", options.images, {"row_group_size": 100})
        total = sum(path.stat().st_size for path in (root / "datasets").iterdir())
        print(f"{options.images:,} photographs, {total:,} bytes, {FILES} files, {options.latency_ms:g} ms")
        with served(root, folder / "nginx") as (_, proxy):
            proxy.change(Link(latency_s=options.latency_ms / 1e3))
            last = FILES - 1
            show("tars here", f"{root}/tars/*.tar", "jpg", None, folder)
            show("parquet here", f"{root}/datasets/*.parquet", "image", None, folder)
            show("tars", f"{proxy.endpoint}/tars/t-{{000..{last:03}}}.tar", "jpg", proxy, folder)
            show("parquet of datasets", f"{proxy.endpoint}/datasets/{{0..{last}}}.parquet", "image", proxy, folder)
            show("parquet of pyarrow", f"{proxy.endpoint}/pyarrow/{{0..{last}}}.parquet", "image", proxy, folder)


if __name__ == "__main__":
    main()
