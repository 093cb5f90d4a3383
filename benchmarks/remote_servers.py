"""What remote.py serves: tars of photographs, by nginx on loopback, over a link with latency."""

import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "remote"))
from link_proxy import Link, LinkProxy  # the tests' own

__all__ = ["Link", "LinkProxy", "Nginx", "make_tars", "pattern"]

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
    paths = sorted(Path(photos).rglob("*.jpg"))
    if not paths:
        raise SystemExit(f"{photos}: expected *.jpg, found none; make some by benchmarks/make_photos.py")
    encoded = [path.read_bytes() for path in paths]
    for at in range(tars):
        path = folder / f"t-{at:03}.tar"
        if path.exists():
            continue
        with tarfile.open(path.with_suffix(".part"), "w") as tar:
            for member in range(members):
                sample = at * members + member
                for name, data in ((f"{sample:07}.jpg", encoded[sample % len(encoded)]),
                                   (f"{sample:07}.cls", str(sample % 100).encode())):  # fmt: skip
                    entry = tarfile.TarInfo(name)
                    entry.size = len(data)
                    tar.addfile(entry, io.BytesIO(data))
        path.with_suffix(".part").rename(path)


def pattern(tars):
    return f"t-{{000..{tars - 1:03}}}.tar"


class Nginx:
    """nginx over a folder, whose entries are buckets."""

    def __init__(self, root, folder):
        if shutil.which("nginx") is None:
            raise SystemExit("nginx: expected it on the PATH; install it, such as by apt-get install nginx-light")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "nginx.conf"
        config.write_text(CONFIG.format(folder=folder, root=root, port=self.port))
        user = ["-g", "user root;"] if os.getuid() == 0 else []
        command = ["nginx", "-e", str(folder / "error.log"), "-c", str(config), *user]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for _ in range(500):
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.01)
        self._process.kill()
        raise SystemExit(f"nginx did not start: {self._process.communicate()[1]}")

    def cpu_s(self):
        return sum(psutil.Process(self._process.pid).cpu_times()[:2])

    def stop(self):
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=10)


@contextmanager
def served(root, folder):
    """Serve a folder by nginx behind a link."""
    nginx = Nginx(root, folder)
    try:
        with LinkProxy(nginx.port) as proxy:
            yield nginx, proxy
    finally:
        nginx.stop()
