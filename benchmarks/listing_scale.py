"""How long does a listing of very many keys take: all of a prefix, and a pattern that names a part of it?

    python benchmarks/listing_scale.py [--keys 1000000] [--classes 1000] [--latency-ms 100]

A process answers ListObjectsV2 as S3 does, in pages of 1,000 keys after the latency, from names in memory. The keys are
in class folders as ImageNet's are, or with `--classes 1` all in one. `one thread` lists them page by page.
"""

import multiprocessing
import time
from bisect import bisect_left, bisect_right
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest import mock
from urllib.parse import parse_qs, urlsplit

from harness import arguments, cost

from headrace.data.remote import key_ranges
from headrace.data.remote.listing import Stores
from headrace.stores import ObjectStore

PAGE = 1000
ENTRY = (
    "<Contents><Key>{}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>"
    "<ETag>&quot;0123456789abcdef0123456789abcdef&quot;</ETag><Size>110000</Size></Contents>"
)


def made_keys(count, classes):
    each = -(-count // classes)
    return sorted(
        f"train/n{number * 7919 % 10**8:08}/n{number:04}_{image * 37 % 100_000:05}.JPEG"
        for number in range(classes)
        for image in range(min(each, count - number * each))
    )


def serve(to, count, classes, latency_s):
    """Send the port, and serve until a message comes."""
    keys = made_keys(count, classes)

    class Handler(BaseHTTPRequestHandler):
        protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

        def log_message(self, *_):
            pass

        def do_GET(self):
            query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            prefix = query.get("prefix", "")
            after = query.get("continuation-token") or query.get("start-after", "")
            first, end = (
                max(bisect_left(keys, prefix), bisect_right(keys, after)),
                bisect_left(keys, prefix + "\U0010ffff"),
            )
            page, more = keys[first : min(first + PAGE, end)], first + PAGE < end
            token = f"<NextContinuationToken>{page[-1]}</NextContinuationToken>" if more else ""
            state = f"<IsTruncated>{str(more).lower()}</IsTruncated><KeyCount>{len(page)}</KeyCount>{token}"
            text = f"<ListBucketResult>{state}{''.join(map(ENTRY.format, page))}</ListBucketResult>".encode()
            time.sleep(latency_s)
            self.wfile.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads, server.timeout = True, 0.05
        to.send(server.server_port)
        while not to.poll():
            server.handle_request()


def show(what, listing):
    found = []
    with mock.patch.object(ObjectStore, "list", autospec=True, side_effect=ObjectStore.list) as listed:
        wall_s, cpu_s = cost(lambda: found.extend(listing()))
    print(
        f"{what}: {len(found):,} keys in {wall_s:.1f} s, {cpu_s:.1f} s of CPU, {listed.call_count:,} ranges", flush=True
    )


def main():
    args = arguments(__doc__, keys=1_000_000, classes=1000, latency_ms=100.0)
    here, there = multiprocessing.Pipe()
    serving = (there, args.keys, args.classes, args.latency_ms / 1e3)
    multiprocessing.get_context("spawn").Process(target=serve, args=serving, daemon=True).start()
    stores = Stores({"endpoint": f"http://127.0.0.1:{here.recv()}", "region": "r", "anonymous": True})
    store = stores.path("s3://bucket/x").store
    show("all", lambda: key_ranges.list_objects(store, "train"))
    for pattern in ("train/n0[0-4]*/*", "train/n01*/*"):
        show(pattern, lambda pattern=pattern: stores.resolve(f"s3://bucket/{pattern}"))
    with mock.patch.object(key_ranges, "_THREADS", 1):
        show("all, one thread", lambda: key_ranges.list_objects(store, "train"))
    here.send(None)


if __name__ == "__main__":
    main()
