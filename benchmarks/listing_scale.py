"""How long does a listing of very many keys take: all of a prefix, and a pattern that names a part of it?

    python benchmarks/listing_scale.py [--keys 1000000] [--classes 1000] [--latency-ms 100]

A process answers ListObjectsV2 as S3 does, in pages of 1,000 keys after the latency, from names in memory. The keys are
in class folders as ImageNet's are, or with `--classes 1` all in one. `one thread` lists them page by page.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from urllib.parse import parse_qs, urlsplit

from headrace.data.remote import key_ranges
from headrace.data.remote.key_ranges import list_objects
from headrace.data.remote.listing import Stores
from headrace.stores import ObjectStore

PAGE = 1000
ENTRY = (
    "<Contents><Key>{}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>"
    "<ETag>&quot;0123456789abcdef0123456789abcdef&quot;</ETag><Size>110000</Size></Contents>"
)


def made_keys(count: int, classes: int) -> list[str]:
    each = -(-count // classes)
    return sorted(
        f"train/n{number * 7919 % 10**8:08}/n{number:04}_{image * 37 % 100_000:05}.JPEG"
        for number in range(classes)
        for image in range(min(each, count - number * each))
    )


def serve(to: Connection, count: int, classes: int, latency_s: float) -> None:
    """Send the port, and after any message the requests so far."""
    keys, asked = made_keys(count, classes), [0]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            asked[0] += 1
            query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            prefix = query.get("prefix", "")
            after = query.get("continuation-token") or query.get("start-after", "")
            first = max(bisect_left(keys, prefix), bisect_right(keys, after))
            end = bisect_left(keys, prefix + "\U0010ffff")
            page = keys[first : min(first + PAGE, end)]
            more = first + PAGE < end
            token = f"<NextContinuationToken>{page[-1]}</NextContinuationToken>" if more else ""
            state = f"<IsTruncated>{str(more).lower()}</IsTruncated><KeyCount>{len(page)}</KeyCount>{token}"
            text = f"<ListBucketResult>{state}{''.join(map(ENTRY.format, page))}</ListBucketResult>".encode()
            time.sleep(latency_s)
            self.wfile.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        to.send(server.server_port)
        server.timeout = 0.05
        while not to.poll():
            server.handle_request()


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--keys", type=int, default=1_000_000)
    ask.add_argument("--classes", type=int, default=1000)
    ask.add_argument("--latency-ms", type=float, default=100)
    options = ask.parse_args()
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(there, options.keys, options.classes, options.latency_ms / 1e3), daemon=True
    )
    server.start()
    stores = Stores({"endpoint": f"http://127.0.0.1:{here.recv()}", "region": "r", "anonymous": True})
    store = stores.path("s3://bucket/x").store
    counted, listed = [0], ObjectStore.list

    def counting(*given: object, **named: object) -> object:
        counted[0] += 1
        return listed(*given, **named)  # type: ignore[arg-type]

    ObjectStore.list = counting  # type: ignore[method-assign, assignment]

    def show(what: str, work: Callable[[], list[object]]) -> None:
        counted[0], began, cpu = 0, time.perf_counter(), time.process_time()
        found = work()
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        print(f"{what}: {len(found):,} keys in {took:.1f} s, {cpu:.1f} s of CPU, {counted[0]:,} ranges", flush=True)

    show("all", lambda: list(list_objects(store, "train")))
    show("train/n0[0-4]*/*", lambda: list(stores.resolve("s3://bucket/train/n0[0-4]*/*")))
    show("train/n01*/*", lambda: list(stores.resolve("s3://bucket/train/n01*/*")))
    key_ranges._THREADS = 1
    show("all, one thread", lambda: list(list_objects(store, "train")))
    here.send(None)


if __name__ == "__main__":
    main()
