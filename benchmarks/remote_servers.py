"""What remote.py serves: tars of photographs, by nginx on loopback, over a link with latency."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from harness import jpegs, write_tar

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "remote"))
from link_proxy import Link, LinkProxy  # the tests' own

__all__ = ["Link", "LinkProxy", "make_tars", "pattern", "served"]

CONFIG = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""


def make_tars(photos, folder, tars, members):
    """Write so many tars of photographs with classes, unless they are there. Photographs come again and again."""
    folder.mkdir(parents=True, exist_ok=True)
    encoded = [path.read_bytes() for path in jpegs(photos)]
    for at in range(tars):
        samples, path = range(at * members, (at + 1) * members), folder / f"t-{at:03}.tar"
        if not path.exists():
            pairs = ((f"{n:07}", encoded[n % len(encoded)], str(n % 100).encode()) for n in samples)
            files = (file for key, jpg, cls in pairs for file in ((f"{key}.jpg", jpg), (f"{key}.cls", cls)))
            write_tar(path.with_suffix(".part"), files).rename(path)


def pattern(tars):
    return f"t-{{000..{tars - 1:03}}}.tar"


@contextmanager
def served(root, folder):
    """Serve a folder, whose entries are buckets, by nginx behind a link; yield nginx's process and the link's proxy."""
    if shutil.which("nginx") is None:
        raise SystemExit("nginx: expected it on the PATH; install it, such as by apt-get install nginx-light")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "nginx.conf"
    config.write_text(CONFIG.format(folder=folder, root=root, port=port))
    user = ["-g", "user root;"] if os.getuid() == 0 else []
    command = ["nginx", "-e", str(folder / "error.log"), "-c", str(config), *user]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for(port, process)
            with LinkProxy(port) as proxy:
                yield psutil.Process(process.pid), proxy
        finally:
            process.send_signal(signal.SIGTERM)


def wait_for(port, process):
    for _ in range(500):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.01)
    process.kill()
    raise SystemExit(f"nginx did not start: {process.stderr.read()}")
