"""What do images inside parquet in a store cost: opening, and an epoch beside the same photographs in tars?

    python benchmarks/remote_parquet.py PHOTOS [--images 13000] [--latency-ms 20]

The photographs lie in four files each: tars, parquet as `datasets` writes it (plain pages with an index of them), and
parquet with pyarrow's defaults and 100 rows a group (dictionary, snappy). nginx serves them behind a proxy with
latency. A process opens them, and runs two epochs of RandomResizedCrop(224) with `order="windowed"`; the second one
counts. Times are of this machine, servers and proxy included; counts are the proxy's.
"""

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from harness import arguments, jpegs, process_json
from remote_servers import Link, make_tars, served

FILES = 4
RUN = """
import json, sys, time
import headrace as hr
from harness import epoch
where, column, epochs = sys.argv[1:]
began = time.perf_counter()
opened, found = hr.open(where), None
opening_s = time.perf_counter() - began
settings = {"batch_size": 256, "shuffle": True, "order": "windowed", "output": "numpy"}
if int(epochs):
    loader = hr.Loader(opened, {"image": hr.Image(source=column)}, view=hr.RandomResizedCrop(224, flip=0.5), **settings)
    for _ in range(int(epochs)):
        wall_s, cpu_s = epoch(loader)
    fetch = loader.stats().fetch
    asked = None if fetch is None else (fetch.counts.requests, fetch.counts.bytes)
    found = len(opened) / wall_s, cpu_s / len(opened) * 1e3, asked
print(json.dumps([opening_s, found]))
"""
AS_DATASETS = {"compression": "none", "use_dictionary": False, "write_page_index": True,
               "use_content_defined_chunking": {"min_chunk_size": 1 << 18, "max_chunk_size": 1 << 20}}  # fmt: skip


def make_parquet(photos, folder, images, options):
    folder.mkdir()
    paths, each = jpegs(photos), images // FILES
    for number in range(FILES):
        rows = range(number * each, (number + 1) * each)
        data = [{"bytes": paths[row % len(paths)].read_bytes() + b"%d" % row, "path": f"{row}.jpg"} for row in rows]
        pq.write_table(pa.table({"image": data, "label": rows}), folder / f"{number}.parquet", **options)


def asked(counts):
    return "" if counts is None else f"; {counts[0]:,} requests, {counts[1]:,} bytes"


def show(what, where, column, proxy, folder):
    """Open in one process; open again and read two epochs in another, which has the index of the first."""
    before, cache = proxy.counts(), str(folder / f"cache {what}")
    opening_s, _ = process_json("-c", RUN, where, column, 0, HEADRACE_CACHE=cache)
    passed = proxy.counts().since(before)
    is_remote = where.startswith(proxy.endpoint)
    opened = asked((passed.requests, passed.bytes) if is_remote else None)
    print(f"{what}: opened in {opening_s:.2f} s{opened}", flush=True)
    _, (rate, cpu_ms, counts) = process_json("-c", RUN, where, column, 2, HEADRACE_CACHE=cache)
    print(f"{what}: {rate:,.0f} images/s, {cpu_ms:.2f} ms of CPU an image{asked(counts)}", flush=True)


def main():
    args = arguments(__doc__, "photos", images=13_000, latency_ms=20.0)
    with tempfile.TemporaryDirectory() as made:
        root, last = Path(made, "root"), FILES - 1
        root.mkdir()
        make_tars(args.photos, root / "tars", FILES, args.images // FILES)
        make_parquet(args.photos, root / "datasets", args.images, AS_DATASETS)
        make_parquet(args.photos, root / "pyarrow", args.images, {"row_group_size": 100})
        total = sum(path.stat().st_size for path in (root / "datasets").iterdir())
        print(f"{args.images:,} photographs, {total:,} bytes, {FILES} files, {args.latency_ms:g} ms")
        with served(root, Path(made, "nginx")) as (_, proxy):
            proxy.change(Link(latency_s=args.latency_ms / 1e3))
            store = proxy.endpoint
            for what, where, column in (
                ("tars here", f"{root}/tars/*.tar", "jpg"),
                ("parquet here", f"{root}/datasets/*.parquet", "image"),
                ("tars", f"{store}/tars/t-{{000..{last:03}}}.tar", "jpg"),
                ("parquet of datasets", f"{store}/datasets/{{0..{last}}}.parquet", "image"),
                ("parquet of pyarrow", f"{store}/pyarrow/{{0..{last}}}.parquet", "image"),
            ):
                show(what, where, column, proxy, Path(made))


if __name__ == "__main__":
    main()
